"""RabbitBroker: each ready token is announced by a message; a worker that receives it leases the token.

- A message is acknowledged when the step it led to is committed and what that made ready is confirmed, or once a node
  has run for ``ACKNOWLEDGED_AFTER``: from then on its lease alone protects it.
- Messages and acknowledgements use two connections: an alarm of the broker blocks the one that publishes, and
  acknowledgements must still arrive.
- While RabbitMQ is away, blocked or silent, workers claim from the ledger, as on the bare store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence

from msgspec import Struct

from dalsegno.adapters.rabbitmq.amqp.channel import Channel, Message
from dalsegno.adapters.rabbitmq.announcements import KnownTokens, token_of
from dalsegno.adapters.rabbitmq.foreign_messages import ForeignMessages
from dalsegno.adapters.rabbitmq.receiver import Receiver
from dalsegno.adapters.rabbitmq.sender import Sender
from dalsegno.adapters.rabbitmq.taking import Taking
from dalsegno.adapters.rabbitmq.topology import fits
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.token import SYSTEM_QUEUE, Lease
from dalsegno.model.transition import ReadyToken, Transition, handed_back
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.rabbitmq")

ACKNOWLEDGED_AFTER = 60.0
LOOK_FOR_LONG = 5.0
"""Seconds between two looks for nodes that have run that long."""
MOST_TAKINGS = 20
"""Largest number of channels kept open, one per set of queues. Beyond it, unused channels are closed."""
REPEATED_AFTER = 5.0
"""Seconds within which what an execution has ready is announced again at most once."""
MOST_REPEATED = 10_000
DRAIN = 2.0
"""Seconds that a process which ends waits for confirmations."""


class Held(Struct):
    """A message whose token this process has leased."""

    message: Message
    receiver: Receiver
    channel: Channel | None
    since: float


class RabbitBroker:
    def __init__(
        self,
        ledger: Ledger,
        bare: Broker,
        sender: Sender,
        receiver: Receiver,
        foreign: ForeignMessages,
        known: KnownTokens,
    ) -> None:
        self.ledger = ledger
        self.bare = bare
        """The store's own broker: used while RabbitMQ is not usable."""
        self.sender = sender
        self.receiver = receiver
        """That of the queues which were taken from first: those of the worker, where there is one."""
        self.foreign = foreign
        self.known = known
        self.duplicates = 0
        """Messages whose token could not be leased."""
        self._held: dict[str, Held] = {}
        """By token."""
        self._unacknowledged: deque[tuple[int, Held]] = deque()
        """Messages of finished steps, each with the number of the message sent last before it."""
        self._announcing = 0
        self._behind: list[Held] = []
        """Messages of steps that ended while something was being announced."""
        self._takings: dict[frozenset[str], Taking] = {}
        """By the queues that are served."""
        self._repeated: dict[str, float] = {}
        """When what an execution has ready was last announced again."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._long: asyncio.TimerHandle | None = None
        sender.on_answer = self._answered
        sender.on_ready(self._wake)
        sender.link.on_up(self._wake)
        sender.link.on_down = self._wake
        receiver.link.on_up(self._wake)
        receiver.link.on_down = self._wake
        foreign.on_free = self._wake

    # -- announcing ---------------------------------------------------------------------------------------------

    def committed(self, transition: Transition) -> None:
        """Note a commit of this process whose tokens will be announced: its messages tell more of them."""
        self.known.committed(transition)

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        """Announce tokens. Those that cannot be announced now are claimed from the ledger."""
        tokens = [token for token in tokens if token.token]
        if not tokens:
            return
        if not self.sender.may_send():
            await self._announce_bare(tokens)
            return
        self._announcing += 1
        try:
            sent = [token for token in tokens if fits(token.queue)]
            letters = await self.known.letters(sent)
            await self._declare({token.queue for token in sent})
            if not self.sender.may_send():
                await self._announce_bare(tokens)
                return
            for letter in letters:
                self.sender.send(letter, self._confirmed)
            if len(sent) < len(tokens) or self._lacks_consumer(tokens):
                self._claim_at_once()
        finally:
            self._announcing -= 1
            if not self._announcing:
                behind, self._behind = self._behind, []
                for held in behind:
                    self._acknowledge(held)

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        await self.announce(tokens)

    async def _announce_bare(self, tokens: Sequence[ReadyToken]) -> None:
        self.known.forget_spawned()
        await self.bare.announce(tokens)
        self._claim_at_once()

    async def _declare(self, queues: Iterable[str]) -> None:
        """Declare the queues of users that were not announced to before."""
        topology, connection = self.sender.topology, self.sender.link.connection
        unknown = [queue for queue in queues if not topology.knows(queue)]
        if not unknown or connection is None:
            return
        try:
            channel = await connection.channel()
            await topology.declare_execution_queues(channel, unknown)
            await channel.close()
        except DalSegnoError as error:
            logger.warning("the queues of %s cannot be declared: %s", ", ".join(sorted(unknown)), error)

    def _confirmed(self, confirmed: bool) -> None:
        if not confirmed:
            self._claim_at_once()

    def _lacks_consumer(self, tokens: Sequence[ReadyToken]) -> bool:
        """Return True for bookkeeping tokens if this worker serves them without the queue of nodes that they share."""
        is_special = any(taking.lacks_bookkeeping for taking in self._takings.values())
        return is_special and any(token.queue == SYSTEM_QUEUE for token in tokens)

    def _claim_at_once(self) -> None:
        for taking in self._takings.values():
            taking.claim_at_once()

    # -- taking -------------------------------------------------------------------------------------------------

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        leases = await self._taking(queues).take(worker, limit)
        self.known.leased(leases)
        return leases

    def _taking(self, queues: Sequence[str]) -> Taking:
        """Return what takes for all who serve these queues."""
        key = frozenset(queues)
        taking = self._takings.pop(key, None)
        if taking is None:
            if len(self._takings) >= MOST_TAKINGS:
                self._discard_unused()
            receiver = self.receiver if not self._takings else self.receiver.another()
            taking = Taking(
                queues,
                receiver,
                self.sender,
                self.ledger,
                self.bare,
                self._from_messages,
                lambda worker, leases: self._start(self._hand_back(worker, leases)),
            )
        self._takings[key] = taking  # the one used last is the last one
        return taking

    def _discard_unused(self) -> None:
        """Close the channels of queues that are no longer served."""
        for key, taking in list(self._takings.items()):
            if taking.is_unused and taking.receiver is not self.receiver:
                del self._takings[key]
                self._start(self.receiver.discard(taking.receiver))

    async def _hand_back(self, worker: str, leases: Sequence[Lease]) -> None:
        """Release what was claimed under a name that the worker no longer uses."""
        await self.ledger.release(worker, leases)
        await self.announce(handed_back(leases))

    async def _from_messages(self, receiver: Receiver, worker: str, limit: int) -> list[Lease]:
        """Lease the tokens of messages that were delivered; messages of others go to the intake."""
        channel = receiver.channel
        messages: dict[str, tuple[ReadyToken, Message]] = {}
        for message in receiver.next(limit):
            token = token_of(message.body, message.delivery.routing_key)
            if token is None:
                self.foreign.receive(receiver, message)
            elif token.token in messages or token.token in self._held:
                self.duplicates += 1
                receiver.ack(channel, message)
            else:
                messages[token.token] = (token, message)
        if not messages:
            return []
        try:
            leases = await self.ledger.lease(worker, [token for token, _ in messages.values()])
        except OperatorError:
            for _, message in messages.values():
                receiver.give_back(channel, message)
            raise
        now = asyncio.get_running_loop().time()
        for lease in leases:
            _, message = messages.pop(lease.token)
            self._held[lease.token] = Held(message, receiver, channel, now)
        if leases and self._long is None:
            self._long = asyncio.get_running_loop().call_later(LOOK_FOR_LONG, self._look_for_long)
        if messages:
            self.duplicates += len(messages)
            held = [Held(message, receiver, channel, now) for _, message in messages.values()]
            self._start(self._not_leased([token for token, _ in messages.values()], held))
        return leases

    async def _not_leased(self, tokens: Sequence[ReadyToken], held: Sequence[Held]) -> None:
        """Announce again what the executions of consumed tokens have ready, then acknowledge the messages.

        A message comes again if its worker died before what it had made ready was confirmed. A token that is leased,
        paused or waits for a slot of its limit is announced by the process that frees it.
        """
        try:
            named = {token.token for token in tokens}
            for execution in {token.execution for token in tokens}:
                if self._may_repeat(execution):
                    ready = [each for each in await self.ledger.ready(execution) if each.token not in named]
                    await self.announce(ready)
        except OperatorError as error:
            logger.debug("what is ready cannot be announced again: %s", error)
            for each in held:
                each.receiver.give_back(each.channel, each.message)
            return
        for each in held:
            self._acknowledge(each)

    def _may_repeat(self, execution: str) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._repeated.get(execution, -REPEATED_AFTER) < REPEATED_AFTER:
            return False
        if len(self._repeated) >= MOST_REPEATED:
            self._repeated = {key: at for key, at in self._repeated.items() if now - at < REPEATED_AFTER}
        self._repeated[execution] = now
        return True

    # -- acknowledging ------------------------------------------------------------------------------------------

    def settled(self, lease: Lease) -> None:
        held = self._held.pop(lease.token, None)
        if held is not None:
            self._acknowledge(held)

    def _acknowledge(self, held: Held) -> None:
        """Acknowledge a message when everything that was sent before now is answered."""
        if self._announcing:
            self._behind.append(held)
        elif self.sender.oldest > self.sender.last:
            held.receiver.ack(held.channel, held.message)
        else:
            self._unacknowledged.append((self.sender.last, held))

    def _answered(self, oldest: int) -> None:
        waiting = self._unacknowledged
        while waiting and waiting[0][0] < oldest:
            held = waiting.popleft()[1]
            held.receiver.ack(held.channel, held.message)

    def _look_for_long(self) -> None:
        """Acknowledge the messages of nodes that have run long."""
        loop = asyncio.get_running_loop()
        self._long = None
        before = loop.time() - ACKNOWLEDGED_AFTER
        for token in [token for token, held in self._held.items() if held.since <= before]:
            held = self._held.pop(token)
            held.receiver.ack(held.channel, held.message)
        if self._held:
            self._long = loop.call_later(LOOK_FOR_LONG, self._look_for_long)

    # -- the end ------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Wait a moment for confirmations; what is not acknowledged then goes back to its queue."""
        if self._long is not None:
            self._long.cancel()
        await self.foreign.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN)
        await self.sender.drain(DRAIN)
        for task in list(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for taking in self._takings.values():
            await taking.close()
        await self.receiver.close()
        await self.sender.close()
        await self.receiver.link.close()
        await self.sender.link.close()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("a message could not be handled: %s", error, exc_info=error)

    def _wake(self) -> None:
        for taking in self._takings.values():
            taking.wake()

    @property
    def delivered(self) -> int:
        """Messages that were delivered to this process."""
        return sum(each.delivered for each in (self.receiver, *self.receiver.others))

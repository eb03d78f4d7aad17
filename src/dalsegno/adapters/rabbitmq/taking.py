"""Leases for the takers of one set of queues in this process: a worker, or claims for other programs.

The takers share a channel, so messages of other queues do not reach them. While RabbitMQ is not usable, each of them
takes from the store's own broker.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from math import inf

from dalsegno.adapters.rabbitmq.receiver import Receiver
from dalsegno.adapters.rabbitmq.sender import Sender
from dalsegno.adapters.rabbitmq.topology import execution_queue_name, fits
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, Lease
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

IDLE_LOOK = 5.0
"""Seconds without work after which a worker claims from the ledger what no message has brought."""

GATHER_PER_MESSAGE = 0.00005
LONGEST_GATHER = 0.025
"""Seconds between two leases of what messages bring, for each message that is held, and at most. A worker with much to
do leases, runs, commits and publishes many steps together; one with little to do never waits.
"""
LITTLE = 20
"""Messages held up to which nothing is gathered."""

FromMessages = Callable[[Receiver, str, int], Awaitable[list[Lease]]]
"""Leases the tokens of messages that were delivered to a receiver."""
HandBack = Callable[[str, Sequence[Lease]], None]


class Taking:
    def __init__(
        self,
        queues: Sequence[str],
        receiver: Receiver,
        sender: Sender,
        ledger: Ledger,
        bare: Broker,
        from_messages: FromMessages,
        hand_back: HandBack,
    ) -> None:
        """``bare``: the store's own broker."""
        self.queues = tuple(queues)
        self.receiver = receiver
        self.sender = sender
        self.ledger = ledger
        self.bare = bare
        self._from_messages = from_messages
        self._hand_back = hand_back
        self._takers: Counter[str] = Counter()
        self._bare_takes: dict[str, asyncio.Task[list[Lease]]] = {}
        """By the name under which they lease."""
        self._changed = asyncio.Event()
        self._claims_at_once = False
        """Something is ready in the ledger that no message announces."""
        self._unannounced_until = -inf
        """When the last of that became ready, at the latest."""
        self._was_bare = False
        """RabbitMQ was not usable at the last take."""
        self._has_claimed = False
        """The last leases were claimed: the next ones are those of messages."""
        self._leased_at = -inf
        """When the messages were last asked for."""
        receiver.on_message = self.wake

    @property
    def is_unused(self) -> bool:
        return not self._takers and not self._bare_takes and not self.receiver.unanswered

    @property
    def lacks_bookkeeping(self) -> bool:
        """Whether bookkeeping tokens are served here without the queue of nodes that they share."""
        return SYSTEM_QUEUE in self.queues and DEFAULT_QUEUE not in self.queues

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def claim_at_once(self) -> None:
        """Claim what is ready by now, besides what messages bring."""
        self._unannounced_until = self.ledger.now()
        self._claims_at_once = True
        self.wake()

    async def take(self, worker: str, limit: int) -> list[Lease]:
        self._takers[worker] += 1
        try:
            connecting = self.receiver.link.start()
            if self.sender.link.is_ready:
                await asyncio.shield(connecting)
                await self.receiver.open()
            return await self._take(worker, limit)
        except asyncio.CancelledError:
            self._end_bare_take(worker)
            raise
        finally:
            self._takers[worker] -= 1
            if not self._takers[worker]:
                del self._takers[worker]
            if not self._takers:
                self.receiver.idle()

    async def _take(self, worker: str, limit: int) -> list[Lease]:
        loop = asyncio.get_running_loop()
        idle_at = loop.time() + IDLE_LOOK
        while True:
            changed = self._changed
            leases = self._of_bare_take(worker)
            if not leases and self._is_usable():
                await self.receiver.serve(_consumed(self.queues), limit)
                if self._was_bare:
                    self._was_bare = False
                    self.claim_at_once()
                leases = await self._take_in_turn(worker, limit)
                if not leases and loop.time() >= idle_at:
                    idle_at = loop.time() + IDLE_LOOK
                    self._unannounced_until = self.ledger.now() - IDLE_LOOK
                    leases = await self._claim(worker, limit)
            elif not leases:
                self._was_bare = True
                idle_at = loop.time() + IDLE_LOOK  # the store's broker looks by itself
                self._take_bare(worker, limit)
            if leases:
                return leases
            if not self.receiver.waiting or not self._is_usable():  # else the loop would never let others run
                await self._wait(worker, changed, idle_at)

    async def _take_in_turn(self, worker: str, limit: int) -> list[Lease]:
        """Take what messages bring and, as long as there may be any, what none announces, in turn."""
        claims_first = self._claims_at_once and not self._has_claimed
        leases = await self._claim(worker, limit) if claims_first else []
        if leases:
            return leases
        self._has_claimed = False
        await self._gather(limit)
        leases = await self._from_messages(self.receiver, worker, limit)
        if not leases and self._claims_at_once:
            leases = await self._claim(worker, limit)
        return leases

    async def _gather(self, limit: int) -> None:
        """Let messages gather if the last ones were leased a moment ago and many are held."""
        loop, held = asyncio.get_running_loop(), self.receiver.unanswered
        if held > LITTLE and 0 < len(self.receiver.waiting) < limit:
            pause = min(GATHER_PER_MESSAGE * held, LONGEST_GATHER)
            left = self._leased_at + pause - loop.time()
            if left > 0:
                await asyncio.sleep(left)
        self._leased_at = loop.time()

    async def _claim(self, worker: str, limit: int) -> list[Lease]:
        """Claim from the ledger. If that brings as much as was asked for, there may be more of what was left
        unannounced; what has become ready since then is left to its messages.
        """
        self._claims_at_once, until = False, self._unannounced_until
        leases = await self.ledger.claim(worker, self.queues, limit)
        self._has_claimed = True
        if len(leases) >= limit and any(lease.ready_at <= until for lease in leases):
            self._claims_at_once = True
        return leases

    def _is_usable(self) -> bool:
        return self.sender.may_send() and self.receiver.is_ready

    async def _wait(self, worker: str, changed: asyncio.Event, until: float) -> None:
        """Wait for anything new: a message, the bare store's leases, or RabbitMQ coming and going."""
        waiting = asyncio.get_running_loop().create_task(changed.wait())
        tasks: set[asyncio.Task[object]] = {waiting}
        if worker in self._bare_takes:
            tasks.add(self._bare_takes[worker])
        try:
            await asyncio.wait(
                tasks,
                timeout=max(until - asyncio.get_running_loop().time(), 0.001),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiting.cancel()

    # -- without RabbitMQ ---------------------------------------------------------------------------------------

    def _take_bare(self, worker: str, limit: int) -> None:
        if worker not in self._bare_takes:
            take = asyncio.get_running_loop().create_task(self.bare.take(worker, self.queues, limit))
            self._bare_takes[worker] = take
            take.add_done_callback(lambda _: self._bare_take_done(worker))

    def _bare_take_done(self, worker: str) -> None:
        if worker not in self._takers:
            self._end_bare_take(worker)

    def _of_bare_take(self, worker: str) -> list[Lease]:
        """Return what the bare store's broker has brought. It may still wait when RabbitMQ is back: a claim must not
        be interrupted."""
        take = self._bare_takes.get(worker)
        if take is None or not take.done():
            return []
        del self._bare_takes[worker]
        return [] if take.cancelled() else take.result()

    def _end_bare_take(self, worker: str) -> None:
        """Hand back what was claimed under a name that takes no more."""
        take = self._bare_takes.pop(worker, None)
        if take is None or take.cancel() or take.cancelled():
            return
        if take.exception() is None and (leases := take.result()):
            self._hand_back(worker, leases)

    async def close(self) -> None:
        takes = list(self._bare_takes.values())
        self._bare_takes.clear()
        for take in takes:
            take.cancel()
        await asyncio.gather(*takes, return_exceptions=True)


def _consumed(queues: Sequence[str]) -> list[str]:
    """Return the queues to consume. Bookkeeping tokens share a queue with those of nodes: a worker that does not serve
    the latter finds them in the ledger.
    """
    consumed = [queue for queue in queues if fits(queue)]
    if DEFAULT_QUEUE not in queues:
        consumed = [
            queue for queue in consumed if execution_queue_name(queue) != execution_queue_name(DEFAULT_QUEUE)
        ]
    return consumed

"""PostgresBroker: the token table is the queue; processes wake each other over the listener.

- A process whose claim found nothing reports for which queues it is idle. A process that announces tokens of such
  a queue wakes as many idle processes as could be of use, and no longer counts them as idle until they report
  again. So a busy system sends nothing, and an idle one only polls slowly, in case a message was lost.
- An announcement made while a report is on its way would be missed by both sides. Therefore announcements are
  remembered for a moment, and a process that reports idle is woken if one of them may have come after its claim. A
  process that ends in that moment, or cannot send yet, makes all poll.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Collection, Sequence

from dalsegno.adapters.neighbours import Message
from dalsegno.adapters.postgres.claim.waiting_workers import WaitingWorker, WaitingWorkers, is_suspect
from dalsegno.adapters.postgres.messaging.listener import Listener
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition
from dalsegno.ports.ledger import Ledger

LOOK_EVERY = 15.0
"""Seconds between two claims of a worker without messages."""
LOOK_ALONE = 1.0
"""The same if messages do not arrive."""
MESSAGE_DELAY = 0.1
"""Longest delay of a message in seconds."""
SPARE_WAKES = 2
"""Idle processes woken in addition to those needed: one of them may have died since."""
REMEMBERED = 1000
"""Most processes whose last wake is remembered; their names are always new."""
LONGEST_SILENCE = 0.1
"""Longest time in seconds for which a process that is repeatedly woken in vain does not report idle."""
ANSWERED_AFTER = LONGEST_SILENCE + 2 * MESSAGE_DELAY
"""Seconds after an announcement within which a process may first report that it was idle for it."""
OFFER_PAUSE = 1.5 * LONGEST_SILENCE
"""Seconds for which a process that has offered tokens to others claims nothing: it would only get them again, and
the others may be silent just then.
"""


class PostgresBroker:
    def __init__(self, ledger: Ledger, listener: Listener, waiting_workers: WaitingWorkers) -> None:
        self.ledger = ledger
        self.listener = listener
        self.waiting_workers = waiting_workers
        self.waiting_workers.on_leased = self._hand_over
        self.waiting_workers.suspects.on_ended = self._suspects_ended
        self.on_news: list[Callable[[], None]] = []
        """Called when something may be ready that no process has announced: for another broker over this ledger."""
        self._changed = asyncio.Event()
        self._reported: set[str] = set()
        """Queues for which this process has reported idle since it was last woken."""
        self._idle: dict[str, frozenset[str]] = {}
        """Other processes that have reported idle, and their queues."""
        self._announced: dict[str, float] = {}
        """When tokens of each queue that others might take were last announced."""
        self._woken: dict[str, float] = {}
        """When each of the other processes was last woken from here: it has seen all announcements until then."""
        self._unsure_at = -math.inf
        """When something was last announced without knowing that another process takes it."""
        self._vain_wakes = 0
        self._paused_until = -math.inf
        self._exhausted: tuple[str, frozenset[str], asyncio.Event, float] | None = None
        """The worker that took less than it asked for, the queues, the event from before that claim, and its time.
        """

    # -- the port ---------------------------------------------------------------------------------------------

    def committed(self, transition: Transition) -> None:
        """Do nothing: an announcement only names tokens."""

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if not tokens:
            return
        queues = {token.queue for token in tokens}
        left = len(tokens) - self.waiting_workers.room(queues)
        self._wake_all()
        if left > 0 or "" in queues:
            self._wake_others(queues, left)
        else:
            self._unsure_at = _clock()  # in case the workers that wait here are stopped before they have it

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Wake all other processes: it is not known here which can run the tokens."""
        self._paused_until = _clock() + OFFER_PAUSE
        self._wake_others({token.queue for token in tokens}, len(self._idle))

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        served = frozenset(queues)
        leases = await self._wait_if_exhausted(worker, served, limit)
        while not leases:
            if self._paused_until > _clock():
                await asyncio.sleep(self._paused_until - _clock())
            # Taken before the claim: tokens that become ready during it set this event.
            changed = self._changed
            asked_at = _clock()
            leases = await self.ledger.claim(worker, queues, limit)
            if not leases:
                leases = await self._wait(WaitingWorker(worker, served, limit, changed, asked_at))
            elif len(leases) < limit and not any(map(is_suspect, leases)):
                self._exhausted = (worker, served, changed, asked_at)
        self._vain_wakes = 0
        return leases

    def settled(self, lease: Lease) -> None:
        """Do nothing: there are no messages to acknowledge."""

    async def close(self) -> None:
        self._wake_all()
        if _clock() - self._unsure_at < ANSWERED_AFTER:
            self.listener.send(Message(self.listener.name, news=True))
        await self.listener.close()

    # -- waiting ----------------------------------------------------------------------------------------------

    async def _wait_if_exhausted(self, worker: str, queues: frozenset[str], limit: int) -> list[Lease]:
        """Wait if the last claim brought less than was asked for: it left nothing, so the next one would be in vain.

        Not so if it brought a token that killed workers before: of these it brings one at a time.
        """
        last, self._exhausted = self._exhausted, None
        if last is None:
            return []
        last_worker, last_queues, news, asked_at = last
        if (last_worker, last_queues) != (worker, queues) or news.is_set():
            return []
        return await self._wait(WaitingWorker(worker, queues, limit, news, asked_at))

    async def _wait(self, waiting: WaitingWorker) -> list[Lease]:
        """Wait for a message; return the leases that the worker was given meanwhile."""
        self.waiting_workers.add(waiting)
        try:
            delay = min(self._vain_wakes * 0.005, LONGEST_SILENCE)
            if not delay or not await _is_set_within(waiting.changed, delay):
                self._report_idle(waiting.queues, waiting.asked_at)
                pause = LOOK_EVERY if self.listener.working else LOOK_ALONE
                await _is_set_within(waiting.changed, pause * random.uniform(0.8, 1.2))  # noqa: S311 - so that processes do not look in step
            return await waiting.reserved()
        finally:
            self.waiting_workers.remove(waiting)

    def _hand_over(self, waiting: WaitingWorker) -> None:
        """Stop the worker's wait: it was leased all that is known here, and need not claim."""
        is_all = not waiting.changed.is_set()
        self._wake_all()
        if is_all:
            self._exhausted = (waiting.worker, waiting.queues, self._changed, waiting.asked_at)

    def _report_idle(self, queues: Collection[str], asked_at: float) -> None:
        if self.listener.working and not self._reported.issuperset(queues):
            self._reported.update(queues)
            since = _clock() - asked_at
            self.listener.send(Message(self.listener.name, idle=tuple(sorted(self._reported)), since=since))

    def _wake_all(self) -> None:
        """Wake every worker that waits here; the next news set another event."""
        self._changed.set()
        self._changed = asyncio.Event()

    # -- other processes --------------------------------------------------------------------------------------

    def _wake_others(self, queues: Collection[str], tokens: int) -> None:
        now = _clock()
        for queue in queues:
            self._announced[queue] = now
        serving = [name for name, served in self._idle.items() if _serves(served, queues)]
        wanted = len(serving) if "" in queues else max(tokens, SPARE_WAKES)
        if len(serving) < wanted or len(queues) > 1 or "" in queues:
            self._unsure_at = now
        chosen = serving if len(serving) <= wanted else random.sample(serving, wanted)
        if not self.listener.working:
            self.listener.send(Message(self.listener.name, news=True))
        elif chosen:
            self._wake(chosen)

    def _wake(self, names: Collection[str]) -> None:
        if len(self._woken) > REMEMBERED:
            self._woken.clear()
        for name in names:
            self._idle.pop(name, None)
            self._woken[name] = _clock()
        self.listener.send(Message(self.listener.name, wake=tuple(names)))

    def handle(self, message: Message) -> None:
        """Handle a message of another process about work."""
        if message.idle:
            self._handle_idle(message)
        if message.news:
            self._look_again()
            self._pass_on_news()
        if message.hello and self._reported:
            self.listener.send(
                Message(self.listener.name, idle=tuple(sorted(self._reported)), since=MESSAGE_DELAY)
            )
        for name in message.wake:
            self._idle.pop(name, None)
            if name == self.listener.name:
                self._look_again()

    def _suspects_ended(self) -> None:
        self._wake_all()
        self._pass_on_news()

    def _pass_on_news(self) -> None:
        for notice in self.on_news:
            notice()

    def _look_again(self) -> None:
        """Look for work again; after repeated vain looks stay silent for a moment before reporting idle."""
        self._reported.clear()
        self._vain_wakes += 1
        self._wake_all()

    def _handle_idle(self, message: Message) -> None:
        asked_at = _clock() - message.since - MESSAGE_DELAY
        since = max(asked_at, self._woken.get(message.sender, asked_at))
        missed = any(self._announced.get(queue, since) > since for queue in (*message.idle, ""))
        if missed:
            self._wake([message.sender])
        else:
            self._idle[message.sender] = frozenset(message.idle)

    def connected(self) -> None:
        """Handle a new connection of the listener: messages may have been missed on both sides."""
        self._reported.clear()
        self._wake_all()

    def disconnected(self) -> None:
        """Handle a lost connection of the listener: messages sent may not have arrived."""
        self._idle.clear()
        self._woken.clear()
        self._reported.clear()
        self._wake_all()


def _serves(served: Collection[str], queues: Collection[str]) -> bool:
    return "" in queues or any(queue in served for queue in queues)


def _clock() -> float:
    return asyncio.get_running_loop().time()


async def _is_set_within(changed: asyncio.Event, seconds: float) -> bool:
    """Return True if the event is set within that time."""
    try:
        async with asyncio.timeout(seconds):
            await changed.wait()
    except TimeoutError:
        return False
    return True

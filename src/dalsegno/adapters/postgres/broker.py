"""PostgresBroker: the table of tokens is the queue; processes wake each other over the listener.

A process whose claim found nothing says for which queues it is idle. Whoever announces tokens of such a queue wakes as
many of the idle processes as could be of use, and forgets that they are idle until they say so again. So a busy system
sends nothing, and an idle one asks nothing but for a slow look, in case a message was lost.

What is announced while a message of idleness is on its way would be missed by both sides; therefore announcements are
remembered for a moment, and a process that says it is idle is woken if one of them may have come after its claim.
Whoever ends in that moment, or is not heard yet, tells everybody to look.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Collection, Sequence

from dalsegno.adapters.postgres.listener import Listener
from dalsegno.adapters.postgres.messages import Message
from dalsegno.adapters.postgres.suspects import is_suspect
from dalsegno.adapters.postgres.takers import Taker, Takers
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.ledger import Ledger

LOOK_EVERY = 15.0
"""Seconds between two looks of a worker that nobody wakes."""
LOOK_ALONE = 1.0
"""The same where messages do not arrive."""
ON_THE_WAY = 0.1
"""Seconds that a message may take."""
SPARE = 2
"""Idle processes that are woken for a single token: one of them may have died since."""
REMEMBERED = 1000
"""Processes of which it is known when they were woken; they come and go under ever new names."""
LONGEST_SILENCE = 0.1
"""Seconds for which a process that was woken in vain again and again does not say that it is idle."""
ANSWERED_AFTER = LONGEST_SILENCE + 2 * ON_THE_WAY
"""Seconds after an announcement in which somebody may say for the first time that he would have taken it."""
COURTESY = 1.5 * LONGEST_SILENCE
"""Seconds for which a process that has offered something to others claims nothing: it would only get it again, and
those who can run it may be silent just then."""


class PostgresBroker:
    def __init__(self, ledger: Ledger, listener: Listener, takers: Takers) -> None:
        self.ledger = ledger
        self.listener = listener
        self.takers = takers
        self.takers.tell = self._hand_over
        self.takers.suspects.tell = self._tell
        self._news = asyncio.Event()
        self._said: set[str] = set()
        """Queues for which this process has said that it is idle, since it was last woken."""
        self._idle: dict[str, frozenset[str]] = {}
        """Other processes that have said so."""
        self._announced: dict[str, float] = {}
        """When tokens of each queue were announced that others might take."""
        self._woken: dict[str, float] = {}
        """When each of the other processes was last woken from here: it has seen what was announced until then."""
        self._unsure_at = -math.inf
        """When something was last announced of which it was not known here that another process takes it."""
        self._in_vain = 0
        self._courteous_until = -math.inf
        self._exhausted: tuple[str, frozenset[str], asyncio.Event, float] | None = None
        """Who took less than it asked for, of which queues, the news of before that claim and when it was made."""

    # -- the port ---------------------------------------------------------------------------------------------

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if not tokens:
            return
        queues = {token.queue for token in tokens}
        left = len(tokens) - self.takers.room(queues)
        self._tell()
        if left > 0 or "" in queues:
            self._wake_others(queues, left)
        else:
            self._unsure_at = _clock()  # should those who wait here be stopped before they have it

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """All of them are woken: it is not known here who can run it."""
        self._courteous_until = _clock() + COURTESY
        self._wake_others({token.queue for token in tokens}, len(self._idle))

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        served = frozenset(queues)
        leases = await self._wait_if_exhausted(worker, served, limit)
        while not leases:
            if self._courteous_until > _clock():
                await asyncio.sleep(self._courteous_until - _clock())
            news = self._news  # that of before the claim: whatever becomes ready during it is news
            asked_at = _clock()
            leases = await self.ledger.claim(worker, queues, limit)
            if not leases:
                leases = await self._wait(Taker(worker, served, limit, news, asked_at))
            elif len(leases) < limit and not any(map(is_suspect, leases)):
                self._exhausted = (worker, served, news, asked_at)
        self._in_vain = 0
        return leases

    async def close(self) -> None:
        self._tell()
        if _clock() - self._unsure_at < ANSWERED_AFTER:
            self.listener.send(Message(self.listener.name, news=True))
        await self.listener.close()

    # -- waiting ----------------------------------------------------------------------------------------------

    async def _wait_if_exhausted(self, worker: str, queues: frozenset[str], limit: int) -> list[Lease]:
        """A claim that brought less than was asked for left nothing: without news the next one would be in vain. Not so
        if it brought one that killed workers before, of which it brings one at a time."""
        last, self._exhausted = self._exhausted, None
        if last is None or last[:2] != (worker, queues) or last[2].is_set():
            return []
        return await self._wait(Taker(worker, queues, limit, *last[2:]))

    async def _wait(self, taker: Taker) -> list[Lease]:
        """Until there is news. Returns what the taker was handed meanwhile."""
        self.takers.add(taker)
        try:
            silence = min(self._in_vain * 0.005, LONGEST_SILENCE)
            if not silence or not await _happens(taker.news, silence):
                self._say_idle(taker.queues, taker.asked_at)
                pause = LOOK_EVERY if self.listener.working else LOOK_ALONE
                await _happens(taker.news, pause * random.uniform(0.8, 1.2))  # noqa: S311 - so that processes do not look in step
            return await taker.kept_promise()
        finally:
            self.takers.remove(taker)

    def _hand_over(self, taker: Taker) -> None:
        """It was leased all there is for it, as far as is known here: it need not ask for more."""
        is_all = not taker.news.is_set()
        self._tell()
        if is_all:
            self._exhausted = (taker.worker, taker.queues, self._news, taker.asked_at)

    def _say_idle(self, queues: Collection[str], asked_at: float) -> None:
        if self.listener.working and not self._said.issuperset(queues):
            self._said.update(queues)
            since = _clock() - asked_at
            self.listener.send(Message(self.listener.name, idle=tuple(sorted(self._said)), since=since))

    def _tell(self) -> None:
        """Everybody who waits here, however many they are: the next news are another event."""
        self._news.set()
        self._news = asyncio.Event()

    # -- other processes --------------------------------------------------------------------------------------

    def _wake_others(self, queues: Collection[str], tokens: int) -> None:
        now = _clock()
        for queue in queues:
            self._announced[queue] = now
        able = [name for name, served in self._idle.items() if _serves(served, queues)]
        wanted = len(able) if "" in queues else max(tokens, SPARE)
        if len(able) < wanted or len(queues) > 1 or "" in queues:
            self._unsure_at = now
        chosen = able if len(able) <= wanted else random.sample(able, wanted)
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

    def hear(self, message: Message) -> None:
        """What another process says about work."""
        if message.idle:
            self._hear_idle(message)
        if message.news:
            self._look_again()
        if message.hello and self._said:
            self.listener.send(Message(self.listener.name, idle=tuple(sorted(self._said)), since=ON_THE_WAY))
        for name in message.wake:
            self._idle.pop(name, None)
            if name == self.listener.name:
                self._look_again()

    def _look_again(self) -> None:
        """If there is nothing for it, again and again, this process is silent for a moment before it says that it is
        idle."""
        self._said.clear()
        self._in_vain += 1
        self._tell()

    def _hear_idle(self, message: Message) -> None:
        asked_at = _clock() - message.since - ON_THE_WAY
        since = max(asked_at, self._woken.get(message.sender, asked_at))
        missed = any(self._announced.get(queue, since) > since for queue in (*message.idle, ""))
        if missed:
            self._wake([message.sender])
        else:
            self._idle[message.sender] = frozenset(message.idle)

    def came(self) -> None:
        """The listener is there: what was said before is not known to everybody, and something may have been missed."""
        self._said.clear()
        self._tell()

    def gone(self) -> None:
        """The listener lost its connection: whatever was said may not have arrived."""
        self._idle.clear()
        self._woken.clear()
        self._said.clear()
        self._tell()


def _serves(served: Collection[str], queues: Collection[str]) -> bool:
    return "" in queues or any(queue in served for queue in queues)


def _clock() -> float:
    return asyncio.get_running_loop().time()


async def _happens(news: asyncio.Event, seconds: float) -> bool:
    """Whether it happens within that time."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        return False
    return True

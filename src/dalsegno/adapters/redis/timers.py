"""Timers that other programs plant: ``scheduler:timers``, ``scheduler:payloads``, ``scheduler:processing``.

- One scheduler at a time has the turn: it looks every half second, by one command, and claims all that is due by one
  script. The turn of a scheduler that died ends by itself; the others look when it would.
- A claimed timer lies in ``scheduler:processing`` until what it causes is committed. What lies there for five seconds
  is claimed again: its scheduler has died, or its store was away. The timer's id is the message's identity, so that a
  timer which is handed over twice fires once.
- A payload that is refused becomes a dead letter, as does one whose taking in fails three times for another reason
  than the store's absence. A timer without a payload may be half planted: it is dropped after five seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from secrets import token_hex
from typing import Any

from redis.commands.core import AsyncScript
from redis.exceptions import ResponseError

from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.dead_letters import RedisDeadLetters
from dalsegno.adapters.redis.errors import BROKEN, described, end_tasks, expect_not_cancelled
from dalsegno.adapters.redis.own_connection import Command
from dalsegno.errors import StoreLost, Unavailable
from dalsegno.ports.messages import DeadMessage, ForeignMessage, Intake, Taken
from dalsegno.ports.stack import Backlog, Measured

logger = logging.getLogger("dalsegno.redis")

TIMERS, PAYLOADS, PROCESSING = "scheduler:timers", "scheduler:payloads", "scheduler:processing"
TURN = "wf:timers:turn"
LOOK_EVERY = 0.5
TURN_SECONDS = 4.5
"""A turn that is not renewed for this long ends."""
RENEW_AFTER = 3.0
STALE_SECONDS = 5.0
LOOKS_PER_STALE_LOOK = 10
FIRST_LOOKS, FIRST_LOOKS_PER_STALE_LOOK = 20, 4
"""In its first looks a scheduler looks more often for what the one before it has claimed."""
LATE_SECONDS = 5.0
"""Seconds after which a planted timer that is due and not claimed counts as late."""
MOST_CLAIMED = 500
AT_ONCE = 50
"""Timers that are handed over concurrently: payloads may be large."""
LARGEST = 10 * 1024 * 1024
"""Bytes of a payload. A larger one is not read but refused."""
BYTES_AT_ONCE = 32 * 1024 * 1024
SHOWN = 65_536
"""Bytes of a payload that is too large which its dead letter keeps."""
MOST_TRIES = 3
PAUSE = 1.0


def _script(name: str) -> str:
    return (files("dalsegno.adapters.redis") / "scripts" / f"{name}.lua").read_text(encoding="utf-8")


class RedisTimers:
    def __init__(self, connection: RedisConnection, dead_letters: RedisDeadLetters) -> None:
        self.connection = connection
        self._dead_letters = dead_letters
        self._name = token_hex(8)
        self._claim: AsyncScript = connection.client.register_script(_script("claim_timers"))
        self._read: AsyncScript = connection.client.register_script(_script("read_payloads"))
        self._finish: AsyncScript = connection.client.register_script(_script("finish_timers"))
        self._in_hand: set[bytes] = set()
        """Claimed here and not handed over yet."""
        self._tries: Counter[bytes] = Counter()
        self._turn_until = -math.inf
        """Until when this scheduler has the turn, by the loop's clock."""
        self._looks = 0
        """Since it has the turn."""
        self._ahead = 0.0
        """By how many seconds the server's clock is ahead of this machine's."""
        self._task: asyncio.Task[None] | None = None
        self.fired = 0
        dead_letters.requeue_to(PAYLOADS, _planted_again)
        connection.measures.append(self._measure)

    def start(self, intake: Intake) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(intake), name="planted timers")

    async def stop(self) -> None:
        """Stop looking. What was claimed and not handed over is stale at once, so that another scheduler takes it."""
        if self._task is None:
            return
        await end_tasks(self._task)
        self._task, self._turn_until = None, -math.inf
        if self._in_hand:
            self.connection.send(
                "ZADD", PROCESSING, "XX", *(each for timer in self._in_hand for each in (0, timer))
            )
            self._in_hand.clear()

    async def _measure(self) -> Measured:
        client, now = self.connection.client, (time.time() + self._ahead) * 1000
        first: Any = await client.zrange(TIMERS, 0, 0, withscores=True)
        late = max(now - first[0][1], 0.0) / 1000 if first else 0.0
        figures = {
            "timers_late": await client.zcount(TIMERS, "-inf", now - LATE_SECONDS * 1000),
            "timers_in_hand": await client.zcard(PROCESSING),
        }
        return Measured([Backlog(TIMERS, "timers", await client.zcard(TIMERS), late)], figures)

    async def _run(self, intake: Intake) -> None:
        while True:
            try:
                pause = await self._look(intake)
            except StoreLost:
                return
            except Unavailable as error:
                logger.debug("planted timers wait: %s", error)
                pause = PAUSE
            except ResponseError as error:
                expect_not_cancelled()
                self.connection.warn("planted timers cannot be read: %s", described(error))
                pause = PAUSE
            except BROKEN as error:
                expect_not_cancelled()
                logger.debug("planted timers wait for Redis: %s", described(error))
                pause = PAUSE
            except Exception:
                logger.exception("planted timers could not be looked for; trying again")
                pause = PAUSE
            await asyncio.sleep(pause)

    async def _look(self, intake: Intake) -> float:
        """Claim and hand over all that is due; return the seconds until the next look."""
        if not self.connection.working:
            return PAUSE
        if (others_turn := await self._take_turn()) > 0:
            return others_turn + random.uniform(0.1, 0.5)  # noqa: S311 - so that schedulers do not look in step
        if not await self._is_anything_due():
            return LOOK_EVERY
        while True:
            due, stale, now = await self._claim(
                keys=(TIMERS, PROCESSING), args=(int(STALE_SECONDS * 1000), MOST_CLAIMED)
            )
            self._ahead = now / 1000 - time.time()
            await self._hand_over(due, [timer for timer in stale if timer not in self._in_hand], intake)
            if len(due) + len(stale) < MOST_CLAIMED:
                return LOOK_EVERY

    async def _take_turn(self) -> float:
        """Take or renew the turn. Return for how many seconds another scheduler has it at least, 0 if this one has."""
        client, now, lasts = (
            self.connection.client,
            asyncio.get_running_loop().time(),
            int(TURN_SECONDS * 1000),
        )
        if now < self._turn_until - TURN_SECONDS + RENEW_AFTER:
            return 0.0
        if now < self._turn_until and await client.pexpire(TURN, lasts):
            self._turn_until = now + TURN_SECONDS
            return 0.0
        left = int(await client.pttl(TURN))
        if left <= 0 and await client.set(TURN, self._name, nx=True, px=lasts):
            self._turn_until, self._looks = now + TURN_SECONDS, 0
            return 0.0
        return max(left / 1000, LOOK_EVERY)

    async def _is_anything_due(self) -> bool:
        """Look with one command. Old claims are looked for less often; the first look is at everything."""
        number, self._looks = self._looks, self._looks + 1
        if number == 0:
            return True
        now = (time.time() + self._ahead) * 1000
        often = FIRST_LOOKS_PER_STALE_LOOK if number < FIRST_LOOKS else LOOKS_PER_STALE_LOOK
        if number % often == 0:
            old = await self.connection.client.zrangebyscore(
                PROCESSING, "-inf", now - STALE_SECONDS * 1000, start=0, num=1
            )
            if old:
                return True
        return bool(await self.connection.client.zrangebyscore(TIMERS, "-inf", now, start=0, num=1))

    async def _hand_over(self, due: Sequence[bytes], stale: Sequence[bytes], intake: Intake) -> None:
        claimed, first_seen = [*due, *stale], set(due)
        self._in_hand.update(claimed)
        try:
            begin = 0
            while begin < len(claimed):
                ids = claimed[begin : begin + AT_ONCE]
                found: list[Any] = await self._read(
                    keys=(PAYLOADS,), args=(LARGEST, BYTES_AT_ONCE, SHOWN, *ids)
                )
                ids = ids[: len(found)]
                begin += len(ids)
                await self._refuse_large(ids, found)
                small = [
                    (timer, body) for timer, (size, body) in zip(ids, found, strict=True) if size <= LARGEST
                ]
                await self._take([each[0] for each in small], [each[1] for each in small], first_seen, intake)
        finally:
            if (task := asyncio.current_task()) is None or not task.cancelling():
                self._in_hand.difference_update(claimed)

    async def _refuse_large(self, ids: Sequence[bytes], found: Sequence[tuple[int, bytes]]) -> None:
        large = [
            (timer, size, body) for timer, (size, body) in zip(ids, found, strict=True) if size > LARGEST
        ]
        letters = [
            self._letter(
                timer,
                body,
                f"the payload has {size:,} bytes, more than {LARGEST:,}; this is its beginning",
                "TOO_LARGE",
            )
            for timer, size, body in large
        ]
        await self._remove([timer for timer, _, _ in large], letters)

    async def _take(
        self, ids: Sequence[bytes], payloads: Sequence[bytes | None], first_seen: set[bytes], intake: Intake
    ) -> None:
        """Hand one lot over, then remove what is committed."""
        whole = [(timer, body) for timer, body in zip(ids, payloads, strict=True) if body is not None]
        lost = [
            timer
            for timer, body in zip(ids, payloads, strict=True)
            if body is None and timer not in first_seen
        ]
        for timer in lost:
            logger.warning(
                "the timer %r has no payload in %s; it is dropped", timer.decode(errors="replace"), PAYLOADS
            )
        replies = await asyncio.gather(
            *(intake.take(_message(timer, body)) for timer, body in whole), return_exceptions=True
        )
        done, letters = list(lost), []
        outage: BaseException | None = None
        for (timer, body), reply in zip(whole, replies, strict=True):
            if isinstance(reply, Taken):
                done.append(timer)
                self.fired += reply.outcome == "applied"
                if reply.outcome == "refused":
                    letters.append(self._letter(timer, body, reply.reason, reply.code))
            elif isinstance(reply, Unavailable | StoreLost) or not isinstance(reply, Exception):
                outage = reply
            elif self._has_failed_for_good(timer, reply):
                done.append(timer)
                reason = f"it could not be taken in: {type(reply).__name__}: {reply}"
                letters.append(self._letter(timer, body, reason, "INTERNAL"))
        await self._remove(done, letters)
        if outage is not None:
            raise outage

    def _has_failed_for_good(self, timer: bytes, error: Exception) -> bool:
        self._tries[timer] += 1
        logger.error("the timer %r cannot be taken in", timer.decode(errors="replace"), exc_info=error)
        return self._tries[timer] >= MOST_TRIES

    def _letter(self, timer: bytes, body: bytes, reason: str, code: str) -> Command:
        return self._dead_letters.entry(
            PAYLOADS, body, reason, code, {"timer": timer.decode(errors="backslashreplace")}
        )

    async def _remove(self, done: Sequence[bytes], letters: Sequence[Command]) -> None:
        """Remove timers, after their dead letters are written: twice is better than never."""
        if letters:
            await self.connection.transaction(*letters)
        if done:
            await self._finish(keys=(TIMERS, PAYLOADS, PROCESSING), args=done)
        for timer in done:
            self._tries.pop(timer, None)
            self._in_hand.discard(timer)


def _message(timer: bytes, body: bytes) -> ForeignMessage:
    return ForeignMessage(body, PAYLOADS, timer.decode(errors="backslashreplace"), timer=True)


def _planted_again(letter: DeadMessage) -> Sequence[Command]:
    timer = letter.headers.get("timer", letter.id)
    return (("HSET", PAYLOADS, timer, letter.body), ("ZADD", TIMERS, int(letter.at * 1000), timer))

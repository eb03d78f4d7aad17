"""RedisStore: one Redis, the connections to it, its scripts and its clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from dalsegno.adapters.redis.errors import driver_errors
from dalsegno.adapters.redis.keys import Keys
from dalsegno.adapters.redis.scripts import SCRIPTS
from dalsegno.ports.clock import Clock

Argument = str | bytes | int | float
Call = tuple[str, Sequence[str], Sequence[Argument]]
"""A script's name, the keys and the arguments it takes beside those that all take."""


class RedisStore:
    """What ledger and broker of one process share. Open it with :meth:`open`."""

    def __init__(self, client: Redis, keys: Keys, clock: Clock | None) -> None:
        # redis-py types every answer as bytes or str; without decode_responses it is bytes.
        self.client: Any = client
        self.keys = keys
        self._clock = clock
        self._offset = 0.0

    @classmethod
    async def open(cls, url: str, clock: Clock | None = None, *, partition: str | None = None) -> RedisStore:
        """Connects and loads the scripts. ``clock`` replaces the server's in tests."""
        store = cls(Redis.from_url(url), Keys(partition), clock)
        with driver_errors():
            seconds, microseconds = await store.client.time()
            await store._load_scripts()
        store.saw(seconds + microseconds / 1e6)
        return store

    async def _load_scripts(self) -> None:
        for script in SCRIPTS.values():
            await self.client.script_load(script.text)

    def now(self) -> float:
        """The server's clock as last seen."""
        return self._clock.now() if self._clock is not None else time.time() + self._offset

    def saw(self, server_now: float) -> None:
        self._offset = server_now - time.time()

    async def run(self, *calls: Call) -> list[Any]:
        """Runs scripts in one round trip, each atomic by itself. An answer may be an error, still untold."""
        with driver_errors():
            answers = await self._send(calls)
            lost = [index for index, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if lost:  # the server was restarted, or its scripts were flushed
                await self._load_scripts()
                again = await self._send([calls[index] for index in lost])
                for index, answer in zip(lost, again, strict=True):
                    answers[index] = answer
        return answers

    async def run_one(self, script: str, *arguments: Argument) -> Any:
        [answer] = await self.run((script, (), arguments))
        with driver_errors():
            if isinstance(answer, Exception):
                raise answer
        return answer

    async def ask(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Answers to several commands at one moment."""
        with driver_errors():
            pipeline = self.client.pipeline(transaction=len(commands) > 1)
            for command in commands:
                pipeline.execute_command(*command)
            answers: list[Any] = await pipeline.execute()
        return answers

    async def _send(self, calls: Sequence[Call]) -> list[Any]:
        given = repr(self._clock.now()) if self._clock is not None else ""
        pipeline = self.client.pipeline(transaction=False)
        for name, keys, arguments in calls:
            every = (*self.keys.shared, *keys)
            pipeline.evalsha(SCRIPTS[name].sha, len(every), *every, given, *self.keys.names, *arguments)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        return answers

    async def close(self) -> None:
        with driver_errors():
            await self.client.aclose()

"""Dead letters of Redis: the stream ``wf:stream:dead``, of which about the newest ten thousand are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.exceptions import ResponseError

from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.errors import driver_errors
from dalsegno.adapters.redis.own_connection import Command
from dalsegno.errors import InvalidInput
from dalsegno.ports.messages import DeadMessage
from dalsegno.ports.stack import Measured

STREAM = "wf:stream:dead"
KEPT = 10_000
FIELDS = ("source", "body", "reason", "code", "at")

Requeue = Callable[[DeadMessage], Sequence[Command]]
"""Returns the commands that send a dead letter where it came from."""


class RedisDeadLetters:
    name = "Redis"

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self._requeue: dict[str, Requeue] = {}
        connection.measures.append(self._measure)

    async def _measure(self) -> Measured:
        return Measured([await self.connection.backlog_of(STREAM, "dead", [STREAM])])

    def requeue_to(self, source: str, commands: Requeue) -> None:
        """Register how messages of a source are sent there again."""
        self._requeue[source] = commands

    def entry(
        self, source: str, body: bytes, reason: str, code: str, headers: Mapping[str, str] | None = None
    ) -> Command:
        """Return the command that adds a dead letter, for a transaction with others."""
        fields: dict[str, Any] = {
            "source": source,
            "body": body,
            "reason": reason,
            "code": code,
            "at": int(time.time() * 1000),
            **(headers or {}),
        }
        return (
            "XADD",
            STREAM,
            "MAXLEN",
            "~",
            KEPT,
            "*",
            *(each for field in fields.items() for each in field),
        )

    async def list(self, limit: int) -> Sequence[DeadMessage]:
        with driver_errors(self.connection.url):
            found: Any = await self.connection.client.xrevrange(STREAM, count=limit)
        return [_letter(entry, fields) for entry, fields in found]

    async def get(self, id: str) -> DeadMessage | None:
        with driver_errors(self.connection.url):
            try:
                found: Any = await self.connection.client.xrange(STREAM, id, id)
            except ResponseError as error:
                if "Invalid stream ID" in str(error):
                    return None
                raise
        return _letter(*found[0]) if found else None

    async def requeue(self, id: str) -> bool:
        letter = await self.get(id)
        if letter is None:
            return False
        commands = self._requeue.get(letter.source)
        if commands is None:
            raise InvalidInput(
                f"the dead letter {id} came from {letter.source!r}, to which this version sends nothing again"
            )
        await self.connection.transaction(*commands(letter), ("XDEL", STREAM, id))
        return True

    async def drop(self, id: str) -> bool:
        if await self.get(id) is None:
            return False
        await self.connection.transaction(("XDEL", STREAM, id))
        return True


def _letter(id: bytes, fields: Mapping[bytes, bytes]) -> DeadMessage:
    text = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    at = text.get("at", "")
    return DeadMessage(
        id.decode(),
        text.get("source", ""),
        fields.get(b"body", b""),
        text.get("reason", ""),
        text.get("code", ""),
        int(at) / 1000 if at.isdecimal() else 0.0,
        {name: value for name, value in text.items() if name not in FIELDS},
    )

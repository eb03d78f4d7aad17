"""What a process cannot do and keeps trying: kept where every process and every person can read why."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Literal

import msgspec
from msgspec import Struct

from dalsegno.core.diagnosis import Wait
from dalsegno.errors import OperatorError
from dalsegno.model.execution import ENDED
from dalsegno.model.inspection import Inspection
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records

logger = logging.getLogger("dalsegno.troubles")

KIND = "trouble"
"""Of the records."""
CLEANUP = "cleanup"
"""Of the records about executions that ended before their clean-up did."""
TELLING_TRIES = 3
"""What fails less often may be on its way to a process that can do it."""
REMEMBERED = 10_000
LONGEST_REASON = 2000
PASSED = ("consumed", "cancelled", "leased")
"""States of tokens that are not in trouble, as far as one can see: the one that runs may be well again."""
TOKENS_ASKED = 20
"""Of one execution: each is a look of its own, and whoever asks why wants a few reasons, not all."""


class Trouble(Struct, frozen=True):
    """``id`` of an outbox entry, or of a token that is put off again and again."""

    kind: Literal["outbox", "token"]
    id: str
    execution: str
    reason: str
    tries: int
    attempt: int | None = None
    """Of the token: one that is made later has got past this."""


class Written(Struct, frozen=True):
    trouble: Trouble
    since: float


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Written).decode


def record_id(kind: str, id: str) -> str:
    return f"{kind}:{id}"


class Troubles:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._told: OrderedDict[str, tuple[str, int | None]] = OrderedDict()
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, trouble: Trouble) -> None:
        """Written once per reason and attempt, and not at once: whoever notes it is in the middle of its work."""
        name = record_id(trouble.kind, trouble.id)
        told = trouble.reason, trouble.attempt
        if trouble.tries < TELLING_TRIES or self._told.get(name) == told:
            return
        self._told[name] = told
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        bounded = msgspec.structs.replace(trouble, reason=trouble.reason[:LONGEST_REASON])
        task = asyncio.ensure_future(self._write(name, bounded))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, name: str, trouble: Trouble) -> None:
        try:
            await self._records.put(KIND, name, encode(Written(trouble, self._clock.now())))
        except OperatorError as error:
            logger.warning("a trouble with %s is not written down: %s", name, error)
            self._told.pop(name, None)

    def forget(self, kind: str, id: str) -> None:
        """Told again if it happens again."""
        self._told.pop(record_id(kind, id), None)

    async def close(self) -> None:
        await asyncio.gather(*self._writing, return_exceptions=True)


async def troubled(records: Records, inspection: Inspection) -> list[Wait]:
    """What was written down of an execution's tokens that are tried again and again. One that waits for something
    outside has passed whatever it had to do."""
    if inspection.execution.state in ENDED:
        return []
    trying = [token for token in inspection.tokens if token.awaits is None and token.state not in PASSED]
    found = []
    for token in trying[:TOKENS_ASKED]:
        record = await records.get(KIND, record_id("token", token.id))
        trouble = decode(record.data).trouble if record is not None else None
        if trouble is not None and trouble.attempt in (None, token.attempt):
            node = "" if token.kind == "resume" else token.node
            what = f"'{node}'" if node else "the program" if token.kind == "resume" else "the execution"
            found.append(Wait("trouble", node, token.scope, f"{what} cannot go on: {trouble.reason}"))
    return found

"""Operations that a process retries without success, recorded with the reason where all processes and people can read
it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from dalsegno.core.diagnosis import Subject, Wait
from dalsegno.errors import OperatorError
from dalsegno.model.execution import ENDED
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import TokenView
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Record, Records

logger = logging.getLogger("dalsegno.troubles")

KIND = "trouble"
"""Kind of the records."""
CLEANUP = "cleanup"
"""Kind of the records about executions that ended before their clean-up did."""
MIN_TRIES = 3
"""Attempts before a trouble is recorded: until then it may reach a process that can handle it."""
REMEMBERED = 10_000
LONGEST_REASON = 2000
PASSED = ("consumed", "cancelled", "leased")
"""States of tokens that are not shown as troubled; a running one may have recovered."""
MOST_TOKENS = 20
"""Troubles shown per execution: a few reasons suffice."""


class StuckReason(Struct, frozen=True):
    """A trouble. ``id`` is that of an outbox entry, or of a token that is postponed repeatedly."""

    kind: Literal["outbox", "token"]
    id: str
    execution: str
    reason: str
    tries: int
    attempt: int | None = None
    """Attempt of the token. A later attempt shows that it has got past this trouble."""
    needs: str = ""
    """The offer of a worker that could run the token: see `capabilities`. While no worker has it, the trouble is
    recorded at once, and a worker that has it wakes the token.
    """
    queue: str = ""
    """Queue in which such a token waits."""


class Written(Struct, frozen=True):
    trouble: StuckReason
    since: float


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Written).decode


def record_id(kind: str, id: str) -> str:
    return f"{kind}:{id}"


class StuckReasons:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._written: OrderedDict[str, tuple[str, int | None]] = OrderedDict()
        self._writing: set[asyncio.Task[None]] = set()

    def note(self, trouble: StuckReason) -> None:
        """Record a trouble once per reason and attempt. The record is written in the background, so that the caller
        can continue.
        """
        name = record_id(trouble.kind, trouble.id)
        if not trouble.needs and not self._is_new(name, trouble):
            return
        bounded = msgspec.structs.replace(trouble, reason=trouble.reason[:LONGEST_REASON])
        task = asyncio.ensure_future(self._write(name, bounded))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def _is_new(self, name: str, trouble: StuckReason) -> bool:
        latest = trouble.reason, trouble.attempt
        if trouble.tries < MIN_TRIES or self._written.get(name) == latest:
            return False
        self._written[name] = latest
        if len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return True

    async def _write(self, name: str, trouble: StuckReason) -> None:
        try:
            if trouble.needs and await self._is_written(name, trouble):
                return
            await self._records.put(KIND, name, encode(Written(trouble, self._clock.now())))
        except OperatorError as error:
            logger.warning("the problem with %s cannot be recorded: %s", name, error)
            self._written.pop(name, None)

    async def _is_written(self, name: str, trouble: StuckReason) -> bool:
        """Return True if the trouble is on record. Not cached, because a worker that can run the token removes the
        record.
        """
        record = await self._records.get(KIND, name)
        written = decode(record.data).trouble if record is not None else None
        return written is not None and (written.reason, written.attempt) == (trouble.reason, trouble.attempt)

    def forget(self, kind: str, id: str) -> None:
        """Forget a trouble: it is recorded again if it recurs."""
        self._written.pop(record_id(kind, id), None)

    async def close(self) -> None:
        await asyncio.gather(*self._writing, return_exceptions=True)


def troubled(records: Sequence[Record], inspection: Inspection) -> list[Wait]:
    """Return waits for the recorded troubles of an execution's tokens. A token that waits for an external event has
    got past its trouble.
    """
    if inspection.execution.state in ENDED:
        return []
    written = {record.id: record for record in records if record.kind == KIND}
    trying = [token for token in inspection.tokens if token.awaits is None and token.state not in PASSED]
    found = []
    for token in trying:
        record = written.get(record_id("token", token.id))
        noted = decode(record.data) if record is not None else None
        if noted is not None and noted.trouble.attempt in (None, token.attempt):
            found.append(_trouble(token, noted))
    return found[:MOST_TOKENS]


def _trouble(token: TokenView, noted: Written) -> Wait:
    subject: Subject = "program" if token.kind == "resume" else "task" if token.kind == "task" else "node"
    node = "" if subject == "program" else token.node
    what = f"'{node}'" if node else "the program" if subject == "program" else "the execution"
    sentence = f"{what} cannot continue: {noted.trouble.reason}"
    subject = subject if node or subject == "program" else "execution"
    return Wait("trouble", node, token.scope, sentence, subject=subject, since=noted.since)

"""One action for many executions, chunk by chunk.

Every chunk is committed before the next one begins, and doing an action twice changes nothing more: a call that was
interrupted is simply made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from dalsegno.errors import Conflict, InvalidInput, NotFound, QuotaExceeded, StoredQuotaExceeded, UsageError
from dalsegno.model.execution import ENDED, ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.server import deadlines
from dalsegno.server.access import Caller
from dalsegno.server.filters import cursor_after, place_at
from dalsegno.server.office import Office
from dalsegno.server.schemas.bulk import BulkAction, BulkReply, BulkRequest, Refusal

CHUNK = 100
SHOWN = 20

MEANT: dict[BulkAction, tuple[ExecutionState, ...]] = {
    "cancel": ("PENDING", "RUNNING", "PAUSED"),
    "terminate": ("PENDING", "RUNNING", "PAUSED"),
    "pause": ("RUNNING",),
    "resume": ("PAUSED",),
    "retry": ("FAILED",),
    "delete": ("COMPLETED", "FAILED", "CANCELLED"),
}
"""States that an action is for, where the filter names none."""
ALLOWED: dict[BulkAction, tuple[ExecutionState, ...]] = {**MEANT, "retry": ("FAILED", "CANCELLED")}
AGAIN = ("retry", "rerun")
NOT_YET = "it is still being cleared up, or its end is still to be told to its parent; try again soon"


@dataclass
class _Tally:
    matched: int = 0
    changed: int = 0
    skipped: int = 0
    ids: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    def add(self, execution: str, refusal: str | None) -> None:
        self.matched += 1
        if refusal is None:
            self.changed += 1
            self.ids += [execution] if len(self.ids) < SHOWN else []
        else:
            self.skipped += 1
            shown = len(self.refusals) < SHOWN
            self.refusals += [Refusal(id=execution, detail=refusal)] if shown else []


async def run_bulk(office: Office, caller: Caller, request: BulkRequest) -> BulkReply:
    if request.filter.is_empty() and not request.all:
        raise InvalidInput(
            f"/body/filter: it is empty, which means every execution; give one, or 'all': true to {request.action} all"
        )
    tally = _Tally()
    following = await _each_chunk(office, caller, request, tally)
    return BulkReply(
        action=request.action,
        dry_run=request.dry_run,
        matched=tally.matched,
        changed=tally.changed,
        skipped=tally.skipped,
        ids=tally.ids,
        refusals=tally.refusals,
        next=following,
    )


async def _each_chunk(office: Office, caller: Caller, request: BulkRequest, tally: _Tally) -> str | None:
    """Where the next call goes on; None where nothing is left. Retries end where the key's quotas do; they are refused
    where nothing has been retried."""
    where = request.filter.of_states(_states(request))
    if not where.states:
        return None
    place, cursor = place_at(request.cursor), request.cursor
    while tally.matched < request.limit:
        size = min(CHUNK, request.limit - tally.matched)
        starts = request.action == "retry" and not request.dry_run
        if starts:
            size = office.usage.starts_left(caller, size)
        chunk = await office.client.executions(where, place, size)
        if not chunk:
            return None
        try:
            starter = await _counted(office, caller, len(chunk)) if starts else None
        except (QuotaExceeded, StoredQuotaExceeded):
            if not tally.matched:
                raise
            return cursor
        refusals = [None] * len(chunk) if request.dry_run else await _act(office, request, chunk, starter)
        deadlines.allow()  # each chunk is a work of its own
        for view, refusal in zip(chunk, refusals, strict=True):
            tally.add(view.id, refusal)
        cursor, place = cursor_after(chunk[-1]), Place(chunk[-1].created_at, chunk[-1].id)
    return cursor if await office.client.executions(where, place, 1) else None


def _states(request: BulkRequest) -> tuple[ExecutionState, ...]:
    """Those that are asked for and that the action is possible in."""
    if not request.filter.states:
        return MEANT[request.action]
    return tuple(state for state in ALLOWED[request.action] if state in request.filter.states)


async def _counted(office: Office, caller: Caller, starts: int) -> str | None:
    """Counts so many starts; the key that the new executions count for."""
    starter = await office.usage.starter(office.client.stack.archive, caller, starts)
    office.usage.count_starts(caller, starts)
    return starter


async def _act(
    office: Office, request: BulkRequest, chunk: Sequence[ExecutionView], starter: str | None
) -> list[str | None]:
    """Why each was not changed; None of those that were."""
    if request.action == "delete":
        gone = set(await office.client.stack.archive.remove([view.id for view in chunk]))
        return [None if view.id in gone else NOT_YET for view in chunk]
    return list(await asyncio.gather(*(_act_on(office, request, view, starter) for view in chunk)))


async def _act_on(
    office: Office, request: BulkRequest, view: ExecutionView, starter: str | None
) -> str | None:
    client = office.client
    try:
        match request.action:
            case "cancel":
                await client.cancel(view.id, request.reason)
            case "terminate":
                await client.terminate(view.id, request.reason)
            case "pause":
                await client.pause(view.id)
            case "resume":
                await client.resume(view.id)
            case _:
                return await _retry(office, view, starter)
    except (Conflict, NotFound, UsageError) as refusal:
        return str(refusal)
    return None


async def _retry(office: Office, view: ExecutionView, starter: str | None) -> str | None:
    """Once: what was retried before has its own new execution."""
    where = ExecutionFilter(parent=view.id, relations=AGAIN)
    known = await office.client.executions(where, limit=1)
    if known:
        return f"it was retried already: {known[0].id}"
    await office.client.repetition.rerun(view.id, None, None, None, starter)
    return None


TELLING = (0, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Pauses before another try: right after the end of a child its parent is still to be told."""


async def remove_one(office: Office, execution: str) -> None:
    """An ended execution with everything it left."""
    view = await office.client.outline(execution)
    if view.state not in ENDED:
        raise Conflict(f"execution {execution} has not ended ({view.state}); cancel it first")
    for pause in TELLING:
        await asyncio.sleep(pause)
        if await office.client.stack.archive.remove([execution]):
            return
    await office.client.outline(execution)  # NotFound, where somebody else has removed it
    raise Conflict(f"execution {execution} cannot be removed yet: {NOT_YET}")

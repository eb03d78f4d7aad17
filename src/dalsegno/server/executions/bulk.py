"""Bulk actions: one action on many executions, chunk by chunk.

Each chunk is committed before the next one begins. An action is idempotent: an interrupted call can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from dalsegno.errors import Conflict, InvalidInput, NotFound, QuotaExceeded, StoredQuotaExceeded, UsageError
from dalsegno.model.execution import ENDED, NOT_ENDED, ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.executions.filters import cursor_after, place_at
from dalsegno.server.http import deadlines
from dalsegno.server.schemas.executions import BulkAction, BulkReply, BulkRequest, Refusal
from dalsegno.server.services import ServerServices

CHUNK = 100
SHOWN = 20

APPLICABLE_STATES: dict[BulkAction, tuple[ExecutionState, ...]] = {
    "cancel": NOT_ENDED,
    "terminate": NOT_ENDED,
    "pause": ("RUNNING",),
    "resume": ("PAUSED",),
    "retry": ("FAILED",),
    "delete": ("COMPLETED", "FAILED", "CANCELLED"),
}
"""States to which an action applies if the filter names none."""
ALLOWED: dict[BulkAction, tuple[ExecutionState, ...]] = {
    **APPLICABLE_STATES,
    "retry": ("FAILED", "CANCELLED"),
}
AGAIN = ("retry", "rerun")
NOT_YET = "it is still being cleaned up, or its parent has not been notified of its end yet; try again soon"


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


async def run_bulk(services: ServerServices, caller: Caller, request: BulkRequest) -> BulkReply:
    if request.filter.is_empty() and not request.all:
        raise InvalidInput(
            f"/body/filter: it is empty, which means every execution; give one, or 'all': true to {request.action} all"
        )
    tally = _Tally()
    following = await _each_chunk(services, caller, request, tally)
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


async def _each_chunk(
    services: ServerServices, caller: Caller, request: BulkRequest, tally: _Tally
) -> str | None:
    """Process chunk after chunk. Return the cursor of the next call; None if nothing is left. Retries stop at the
    key's quotas, and are refused if none was possible."""
    where = request.filter.of_states(_states(request))
    if not where.states:
        return None
    place, cursor = place_at(request.cursor), request.cursor
    while tally.matched < request.limit:
        size = min(CHUNK, request.limit - tally.matched)
        starts = request.action == "retry" and not request.dry_run
        if starts:
            size = services.usage.starts_left(caller, size)
        chunk = await services.client.executions(where, place, size)
        if not chunk:
            return None
        try:
            starter = await _counted(services, caller, len(chunk)) if starts else None
        except (QuotaExceeded, StoredQuotaExceeded):
            if not tally.matched:
                raise
            return cursor
        refusals = [None] * len(chunk) if request.dry_run else await _act(services, request, chunk, starter)
        deadlines.allow()  # each chunk gets its own deadline
        for view, refusal in zip(chunk, refusals, strict=True):
            tally.add(view.id, refusal)
        cursor, place = cursor_after(chunk[-1]), Place(chunk[-1].created_at, chunk[-1].id)
    return cursor if await services.client.executions(where, place, 1) else None


def _states(request: BulkRequest) -> tuple[ExecutionState, ...]:
    """Return the requested states in which the action is possible."""
    if not request.filter.states:
        return APPLICABLE_STATES[request.action]
    return tuple(state for state in ALLOWED[request.action] if state in request.filter.states)


async def _counted(services: ServerServices, caller: Caller, starts: int) -> str | None:
    """Count starts. Return the key that the new executions are counted for."""
    starter = await services.usage.starter(services.client.stack.archive, caller, starts)
    services.usage.count_starts(caller, starts)
    return starter


async def _act(
    services: ServerServices, request: BulkRequest, chunk: Sequence[ExecutionView], starter: str | None
) -> list[str | None]:
    """Apply the action to a chunk. Return for each execution why it was not changed, or None."""
    if request.action == "delete":
        gone = set(await services.client.stack.archive.remove([view.id for view in chunk]))
        return [None if view.id in gone else NOT_YET for view in chunk]
    return list(await asyncio.gather(*(_act_on(services, request, view, starter) for view in chunk)))


async def _act_on(
    services: ServerServices, request: BulkRequest, view: ExecutionView, starter: str | None
) -> str | None:
    client = services.client
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
                return await _retry(services, request, view, starter)
    except (Conflict, NotFound, UsageError) as refusal:
        return str(refusal)
    return None


async def _retry(
    services: ServerServices, request: BulkRequest, view: ExecutionView, starter: str | None
) -> str | None:
    """Retry an execution once: one that was retried before already has its new execution."""
    where = ExecutionFilter(parent=view.id, relations=AGAIN)
    known = await services.client.executions(where, limit=1)
    if known:
        return f"it was already retried: {known[0].id}"
    await services.client.repetition.rerun(
        view.id, None, None, None, starter, from_start=request.from_start, version=request.version
    )
    return None


REMOVAL_PAUSES = (0, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Pauses between attempts: right after the end of a child, its parent has not been notified yet."""


async def remove_one(services: ServerServices, execution: str) -> None:
    """Remove an ended execution with all its records."""
    view = await services.client.outline(execution)
    if view.state not in ENDED:
        raise Conflict(f"execution {execution} has not ended ({view.state}); cancel it first")
    for pause in REMOVAL_PAUSES:
        await asyncio.sleep(pause)
        if await services.client.stack.archive.remove([execution]):
            return
    await services.client.outline(execution)  # raises NotFound if the execution was removed concurrently
    raise Conflict(f"execution {execution} cannot be removed yet: {NOT_YET}")

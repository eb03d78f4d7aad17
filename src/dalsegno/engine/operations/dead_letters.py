"""Dead letters: what does not continue by itself, with the reason and the remedy.

* ``outbox``: an order of one execution for another that no process could deliver so far
* ``token``: a step that no process can run, because each lacks a task, a module or a node type; it is retried for
  ever
* ``stuck``: an execution that nothing can move any more, as the reconciler reports it
* ``cleanup``: an execution that ended before its clean-up did: it was terminated, cut off by its ``cancel_grace``, its
  clean-up failed, or it reached a limit, or failed for a reason of the system, with something to clean up
* ``execution``: any other execution that failed for a reason of the system: its worker died repeatedly, the store could
  not hold its output, its state was damaged, or the engine broke
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias, get_args

import msgspec
from msgspec import Struct

from dalsegno.core.outbox_orders import CleanupLetter, decode_letter
from dalsegno.engine.engine import Engine
from dalsegno.engine.operations.troubles import CLEANUP, KIND, StuckReason, Written, decode, record_id
from dalsegno.engine.scripts.kept import taken_up
from dalsegno.engine.worker.capabilities import hurry_transition
from dalsegno.errors import Conflict, NotFound
from dalsegno.model.execution import CLEANUP_RELATION, ENDED, SCRIPTED, ExecutionView
from dalsegno.model.token import TokenView
from dalsegno.ports.archive import ExecutionFilter, Place

DeadKind = Literal["outbox", "token", "cleanup", "stuck", "execution"]

SYSTEM_FAILURES = frozenset(
    ("WORKER_LOST", "NOT_STORABLE", "SNAPSHOT_DAMAGED", "INTERNAL_ERROR", "TASK_NOT_FOUND")
)
"""Error codes of failures that the workflow did not cause."""
LOOKED_AT = 1000
"""Failed executions, and outbox entries, that one page reads."""
MOST_PAGES = 10
"""Pages of a complete list: this bounds the number of failed executions that are read."""
DROPPED = "dead-dropped"
"""Records of executions that were removed from this list."""


class DeadLetter(Struct, frozen=True):
    id: str
    kind: DeadKind
    execution: str
    workflow: str
    reason: str
    since: float
    code: str | None = None
    tries: int = 1


class DeadPlace(Struct, frozen=True, array_like=True):
    """Cursor of the list: a record of a trouble or clean-up, or a stuck or failed execution."""

    part: Literal["trouble", "cleanup", "stuck", "failed"] = "trouble"
    id: str = ""
    created_at: float = 0.0
    """Creation time of the failed execution."""


Placed: TypeAlias = list[tuple[DeadLetter, DeadPlace]]


class DeadLetters:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.client = engine.client
        self.stack = engine.stack

    async def all(self, limit: int = 200) -> list[DeadLetter]:
        """Return the first dead letters, over several pages. Only the newest 10,000 failed executions are
        searched.
        """
        found: list[DeadLetter] = []
        after: DeadPlace | None = None
        for _ in range(MOST_PAGES):
            letters, after = await self.page(after, limit - len(found))
            found += letters
            if after is None or len(found) >= limit:
                break
        return found

    async def page(
        self, after: DeadPlace | None = None, limit: int = 100
    ) -> tuple[list[DeadLetter], DeadPlace | None]:
        """Return a page and the cursor of the next one, None after the last page. The order: troubles, clean-ups and
        stuck executions, each by id; then failed executions, newest first. A page reads a bounded number of failed
        executions, so it may be short or empty before the end of the list.
        """
        at = after or DeadPlace()
        wanted = limit + 1
        found: Placed = []
        if at.part == "trouble":
            found += await self._troubles(at.id, wanted)
        if at.part in ("trouble", "cleanup") and len(found) < wanted:
            found += await self._cleanups(at.id if at.part == "cleanup" else "", wanted - len(found))
        if at.part != "failed" and len(found) < wanted:
            found += await self._stuck(at.id if at.part == "stuck" else "")
        further = None
        if len(found) < wanted:
            failed, further = await self._failed(at if at.part == "failed" else None, wanted - len(found))
            found += failed
        if len(found) > limit:
            further = found[limit - 1][1]
        return [letter for letter, _ in found[:limit]], further

    async def retry(self, id: str, starter: str | None = None) -> str:
        """Retry a dead letter at once and return the id of the execution that continues. ``starter``: the API key
        that a new execution counts for.
        """
        kind, name = self._parts(id)
        if kind == "execution":
            failed = await self._failed_one(name)
            return (await self.client.repetition.rerun(failed, None, None, None, starter)).execution
        if kind == "cleanup":
            await self._require_cleanup(name)
            started = await self.client.cancelling.clean_up(name, starter)
            await self._forget_cleanup(name)
            return started.execution
        if kind == "stuck":
            await self.client.outline(name)
            await self.engine.reconciler.check(name)
            return name
        written = await self._written(kind, name)
        await self._forget(kind, name)
        if kind == "token":
            await self.client.committer.commit(hurry_transition(written.trouble), wait_for_store=False)
        self.engine.outbox.again(name)
        return written.trouble.execution

    async def drop(self, id: str) -> str:
        """Give a dead letter up: an order is not delivered, an execution is cancelled, an ended one is only
        hidden.
        """
        kind, name = self._parts(id)
        if kind == "cleanup":
            await self._require_cleanup(name)
            view = await self.stack.archive.outline(name)
            if view is not None and _system_failure(view) is not None:
                await self.stack.records.put(DROPPED, name, b"")
            await self._forget_cleanup(name)
            return name
        if kind == "execution":
            await self.stack.records.put(DROPPED, await self._failed_one(name), b"")
            return name
        if kind == "stuck":
            await self.client.cancel(name, "dropped as a dead letter")
            self.engine.reconciler.stuck.pop(name, None)
            return name
        written = await self._written(kind, name)
        if kind == "outbox":
            await self.stack.ledger.delivered([name])
        else:
            await self.client.cancel(written.trouble.execution, "dropped as a dead letter")
        await self._forget(kind, name)
        return written.trouble.execution

    # -- troubles ---------------------------------------------------------------------------------------------

    async def _troubles(self, after: str, wanted: int) -> Placed:
        found: Placed = []
        undelivered: set[str] | None = None
        while len(found) < wanted and (records := await self.stack.records.page(KIND, after, wanted)):
            if undelivered is None:
                undelivered = {entry.id for entry in await self.stack.ledger.outbox(LOOKED_AT)}
            for record in records:
                written = decode(record.data)
                token = await self._token(written.trouble)
                if _is_over(written.trouble, token, undelivered):
                    await self._forget(written.trouble.kind, written.trouble.id)
                elif not _is_taken_up(written.trouble, token):
                    found.append((await self._letter(written), DeadPlace("trouble", record.id)))
            after = records[-1].id
        return found[:wanted]

    async def _token(self, trouble: StuckReason) -> TokenView | None:
        """Return the token of a trouble. None also if its execution has ended."""
        if trouble.kind != "token":
            return None
        inspection = await self.stack.ledger.inspect(trouble.execution)
        if inspection is None or inspection.execution.state in ENDED:
            return None
        return next((each for each in inspection.tokens if each.id == trouble.id), None)

    async def _letter(self, written: Written) -> DeadLetter:
        trouble = written.trouble
        view = await self.stack.archive.outline(trouble.execution)
        return DeadLetter(
            record_id(trouble.kind, trouble.id),
            trouble.kind,
            trouble.execution,
            view.workflow if view is not None else "",
            trouble.reason,
            written.since,
            tries=trouble.tries,
        )

    async def _written(self, kind: str, name: str) -> Written:
        record = await self.stack.records.get(KIND, record_id(kind, name))
        if record is None:
            raise NotFound(
                f"there is no dead letter {record_id(kind, name)}; it may have been delivered meanwhile"
            )
        return decode(record.data)

    async def _forget(self, kind: str, name: str) -> None:
        await self.stack.records.remove(KIND, record_id(kind, name))
        self.engine.troubles.forget(kind, name)

    # -- clean-ups --------------------------------------------------------------------------------------------

    async def _cleanups(self, after: str, wanted: int) -> Placed:
        """Return the clean-up letters. An execution that retention has removed is still listed."""
        found: Placed = []
        letters = await self._cleanup_letters(after, wanted)
        while over := await taken_up(self.stack.archive, list(letters)):
            for name in over:
                await self._forget_cleanup(name)
            letters = await self._cleanup_letters(after, wanted)
        for name, letter in sorted(letters.items())[:wanted]:
            view = await self.stack.archive.execution(name)
            reason = (
                letter.reason if view is not None else f"{letter.reason}; the execution was removed since"
            )
            workflow = view.workflow if view is not None else ""
            shown = DeadLetter(f"cleanup:{name}", "cleanup", name, workflow, reason, letter.at)
            found.append((shown, DeadPlace("cleanup", name)))
        return found

    async def _cleanup_letters(self, after: str = "", wanted: int = LOOKED_AT) -> dict[str, CleanupLetter]:
        """Return letters by execution: those on record, and those that are still in the outbox."""
        found = {
            entry.execution: decode_letter(entry.data)
            for entry in await self.stack.ledger.outbox(LOOKED_AT)
            if entry.topic == "cleanup" and entry.execution > after
        }
        for record in await self.stack.records.page(CLEANUP, after, wanted):
            found[record.id] = decode_letter(record.data)
        return found

    async def _require_cleanup(self, execution: str) -> None:
        if not await self.client.cancelling.has_letter(execution):
            raise NotFound(
                f"there is no dead letter cleanup:{execution}; it may have been continued meanwhile"
            )

    async def _forget_cleanup(self, execution: str) -> None:
        await self.stack.ledger.delivered([f"{execution}/cleanup"])
        await self.stack.records.remove(CLEANUP, execution)

    # -- executions -------------------------------------------------------------------------------------------

    async def _stuck(self, after: str) -> Placed:
        """Return the stuck executions that this process's reconciler has found."""
        found: Placed = []
        for execution, reason in sorted(self.engine.reconciler.stuck.items()):
            view = await self.stack.archive.outline(execution) if execution > after else None
            if view is not None and view.state not in ENDED:
                letter = DeadLetter(
                    f"stuck:{execution}", "stuck", execution, view.workflow, reason, view.touched_at
                )
                found.append((letter, DeadPlace("stuck", execution)))
        return found

    async def _failed(self, after: DeadPlace | None, wanted: int) -> tuple[Placed, DeadPlace | None]:
        """Return failed executions and the cursor for the next page, if more are left to read. One with a clean-up to
        continue has a letter of that kind only, and so has the execution that continues it.
        """
        before = Place(after.created_at, after.id) if after is not None else None
        views = await self.stack.archive.executions(ExecutionFilter(states=("FAILED",)), before, LOOKED_AT)
        dropped = await self._dropped()
        found: Placed = []
        for view in views:
            error = _system_failure(view)
            if error is None or view.relation == CLEANUP_RELATION or await dropped(view.id):
                continue
            if view.kind in SCRIPTED and await self._has_cleanup(view.id):
                continue
            found.append((_failed_letter(view, error), _failed_place(view)))
            if len(found) == wanted:
                return found, _failed_place(view)
        return found, _failed_place(views[-1]) if len(views) == LOOKED_AT else None

    async def _has_cleanup(self, execution: str) -> bool:
        """Return True if the execution has a letter about its clean-up, or another one continues that."""
        is_open = await self.client.cancelling.has_letter(execution)
        return is_open or bool(await taken_up(self.stack.archive, [execution]))

    async def _dropped(self) -> Callable[[str], Awaitable[bool]]:
        """Return a predicate for hidden executions. It reads one page of records in advance and, if there are more,
        each record on its own.
        """
        first = {record.id for record in await self.stack.records.page(DROPPED, limit=LOOKED_AT)}

        async def is_dropped(execution: str) -> bool:
            if execution in first or len(first) < LOOKED_AT:
                return execution in first
            return await self.stack.records.get(DROPPED, execution) is not None

        return is_dropped

    async def _failed_one(self, execution: str) -> str:
        view = await self.client.outline(execution)
        if view.state != "FAILED":
            raise Conflict(f"execution {execution} is not a dead letter: it is {view.state}")
        return view.id

    def _parts(self, id: str) -> tuple[str, str]:
        kind, colon, name = id.partition(":")
        if not colon or not name or kind not in get_args(DeadKind):
            raise NotFound(
                f"{id[:200]!r} is not the id of a dead letter; the list shows ids such as 'execution:0198f3'"
            )
        return kind, name


def _is_over(trouble: StuckReason, token: TokenView | None, undelivered: set[str]) -> bool:
    if trouble.kind == "outbox":
        return trouble.id not in undelivered and len(undelivered) < LOOKED_AT
    if token is None or token.state in ("consumed", "cancelled"):
        return True
    return trouble.attempt not in (None, token.attempt)


def _is_taken_up(trouble: StuckReason, token: TokenView | None) -> bool:
    """Return True if a worker runs a token whose task was missing: it usually has the task, and the run may take
    long.
    """
    return bool(trouble.needs) and token is not None and token.state == "leased"


def _failed_letter(view: ExecutionView, error: Mapping[str, object]) -> DeadLetter:
    return DeadLetter(
        f"execution:{view.id}",
        "execution",
        view.id,
        view.workflow,
        str(error.get("message", "")),
        view.ended_at or view.created_at,
        str(error.get("code")),
    )


def _failed_place(view: ExecutionView) -> DeadPlace:
    return DeadPlace("failed", view.id, view.created_at)


def _system_failure(view: ExecutionView) -> dict[str, object] | None:
    error = msgspec.json.decode(view.error) if view.error else None
    return error if isinstance(error, dict) and error.get("code") in SYSTEM_FAILURES else None

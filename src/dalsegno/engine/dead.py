"""Dead letters: what does not go on by itself, with the reason, and what to do about it.

* ``outbox``: an order of one execution for another that no process could carry out so far
* ``token``: a step that no process can run, because each lacks a module or a node type; it is tried for ever
* ``stuck``: an execution that nothing can move any more, as the reconciler reports it
* ``execution``: one that failed not by itself, but for a reason of the system: its worker died again and again, the
  store could not hold its output, its state was damaged, or the engine broke
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from dalsegno.engine.engine import Engine
from dalsegno.engine.troubles import KIND, Written, decode, record_id
from dalsegno.errors import Conflict, NotFound
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.ports.archive import ExecutionFilter

DeadKind = Literal["outbox", "token", "stuck", "execution"]

SYSTEM_FAILURES = frozenset(
    ("WORKER_LOST", "NOT_STORABLE", "SNAPSHOT_DAMAGED", "INTERNAL_ERROR", "TASK_NOT_FOUND")
)
"""Codes of failures that are not the workflow's own."""
LOOKED_AT = 1000
"""The newest failed executions among which dead ones are looked for, and entries of the outbox."""
DROPPED = "dead-dropped"
"""Records of executions that somebody does not want to see here any more."""


class DeadLetter(Struct, frozen=True):
    id: str
    kind: DeadKind
    execution: str
    workflow: str
    reason: str
    since: float
    code: str | None = None
    tries: int = 1


class DeadLetters:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.client = engine.client
        self.stack = engine.stack

    async def all(self, limit: int = 200) -> list[DeadLetter]:
        """Troubles first, then failed executions, the newest first."""
        found = [*await self._troubles(), *await self._stuck()]
        if len(found) < limit:
            found += await self._failed()
        return found[:limit]

    async def retry(self, id: str) -> str:
        """Tries it once more at once; the id of the execution that goes on."""
        kind, name = self._parts(id)
        if kind == "execution":
            return await self.client.rerun(await self._failed_one(name))
        if kind == "stuck":
            await self.client.status(name)
            await self.engine.reconciler.check(name)
            return name
        written = await self._written(kind, name)
        await self._forget(kind, name)
        self.engine.outbox.again(name)
        return written.trouble.execution

    async def drop(self, id: str) -> str:
        """Gives it up: an order is not carried out, an execution is cancelled, a failed one is only not shown."""
        kind, name = self._parts(id)
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

    async def _troubles(self) -> list[DeadLetter]:
        found: list[DeadLetter] = []
        records = await self.stack.records.page(KIND, limit=LOOKED_AT)
        if not records:
            return []
        owed = {entry.id for entry in await self.stack.ledger.outbox(LOOKED_AT)}
        for record in records:
            written = decode(record.data)
            if await self._is_over(written, owed):
                await self._forget(written.trouble.kind, written.trouble.id)
                continue
            found.append(await self._letter(written))
        return sorted(found, key=lambda letter: -letter.since)

    async def _is_over(self, written: Written, owed: set[str]) -> bool:
        trouble = written.trouble
        if trouble.kind == "outbox":
            return trouble.id not in owed and len(owed) < LOOKED_AT
        inspection = await self.stack.ledger.inspect(trouble.execution)
        if inspection is None or inspection.execution.state in ENDED:
            return True
        token = next((each for each in inspection.tokens if each.id == trouble.id), None)
        return token is None

    async def _letter(self, written: Written) -> DeadLetter:
        trouble = written.trouble
        view = await self.stack.archive.execution(trouble.execution)
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

    # -- executions -------------------------------------------------------------------------------------------

    async def _stuck(self) -> list[DeadLetter]:
        found = []
        for execution, reason in list(self.engine.reconciler.stuck.items()):
            view = await self.stack.archive.execution(execution)
            if view is not None and view.state not in ENDED:
                letter = DeadLetter(
                    f"stuck:{execution}", "stuck", execution, view.workflow, reason, view.touched_at
                )
                found.append(letter)
        return found

    async def _failed(self) -> list[DeadLetter]:
        views = await self.stack.archive.executions(ExecutionFilter(states=("FAILED",)), limit=LOOKED_AT)
        dead = [(view, error) for view in views if (error := _system_failure(view)) is not None]
        dropped = {record.id for record in await self.stack.records.page(DROPPED, limit=LOOKED_AT)}
        return [
            DeadLetter(
                f"execution:{view.id}",
                "execution",
                view.id,
                view.workflow,
                str(error.get("message", "")),
                view.ended_at or view.created_at,
                str(error.get("code")),
            )
            for view, error in dead
            if view.id not in dropped
        ]

    async def _failed_one(self, execution: str) -> str:
        view = await self.client.status(execution)
        if view.state != "FAILED":
            raise Conflict(f"execution {execution} is no dead letter: it is {view.state}")
        return view.id

    def _parts(self, id: str) -> tuple[str, str]:
        kind, colon, name = id.partition(":")
        if not colon or not name or kind not in ("outbox", "token", "stuck", "execution"):
            raise NotFound(
                f"{id[:200]!r} names no dead letter; the list shows ids such as 'execution:0198f3'"
            )
        return kind, name


def _system_failure(view: ExecutionView) -> dict[str, object] | None:
    error = msgspec.json.decode(view.error) if view.error else None
    return error if isinstance(error, dict) and error.get("code") in SYSTEM_FAILURES else None

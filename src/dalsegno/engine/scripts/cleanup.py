"""Continuation of a clean-up: the first turn of a new execution starts from the machine of an ended one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dalsegno.core.scripts.cleanup import (
    UnfinishedCleanup,
    carried_over,
    decode_unfinished,
    stored_inputs,
    tasks_again,
    unfinished,
)
from dalsegno.core.scripts.token_bodies import StoredInput, blob_of
from dalsegno.core.scripts.turn import Turn
from dalsegno.engine.scripts.advance import Job, ResumeInputs
from dalsegno.engine.scripts.machine_cache import size_of
from dalsegno.engine.scripts.programs import RunningMachine, ScriptProgram
from dalsegno.engine.steps.budget import is_light, refuse_if_light
from dalsegno.engine.steps.values import Storage, blob_names
from dalsegno.errors import NotFound
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.effects import promise_id
from dalsegno.model.effect import Effect
from dalsegno.model.execution import CLEANUP_RELATION, ExecutionView
from dalsegno.model.ids import child_execution_id, repeated_execution_id
from dalsegno.model.machine import MachineView
from dalsegno.model.token import Lease, TokenView
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.records import UNTIL_REMOVED, Blobs

MOST_READS = 10
"""Attempts to read tasks of which one ends each time."""
MOST_CHILDREN = 10_000
"""Promises of the old execution that are searched for children."""


async def read_unfinished(
    ledger: Ledger, blobs: Blobs, execution: str, message: str
) -> tuple[MachineView | None, bytes | None]:
    """Return the machine and its unfinished clean-up. The commit that stores it must be refused if the machine has
    advanced since. Completions that arrive during the read without advancing it are found by the second read of its
    inbox.
    """
    reads = 0
    while True:
        before = await ledger.machine(execution)
        inspection = await ledger.inspect(execution)
        after = await ledger.machine(execution)
        if after is None or inspection is None or inspection.execution.state == "PENDING":
            return before, None
        reads += 1
        if await _keep_inputs(blobs, inspection.tokens) or reads == MOST_READS:
            return before, unfinished(inspection.execution, after, inspection.tokens, message)


async def _keep_inputs(blobs: Blobs, tokens: Sequence[TokenView]) -> bool:
    """Keep the stored inputs of unfinished tasks, also if the tasks end before the execution does: they are requested
    again. Return False if a task has ended since it was read, and its input is gone.
    """
    for stored in stored_inputs(tokens):
        try:
            data = await blobs.get(stored.owner, stored.blob)
        except NotFound:
            return False
        await blobs.put(stored.owner, data)
    return True


async def taken_up(archive: Archive, executions: Sequence[str]) -> frozenset[str]:
    """Return the executions whose clean-up another execution continues."""
    successors = {repeated_execution_id(name, CLEANUP_RELATION): name for name in executions}
    return frozenset(successors[found] for found in await archive.states(list(successors)))


class Cleanup:
    """The kept machine of ``other``, for the first turn of another execution."""

    def __init__(
        self, archive: Archive, blobs: Storage, reading: ResumeInputs, lease: Lease, other: str
    ) -> None:
        self._archive = archive
        self._blobs = blobs
        self._reading = reading
        self._execution = lease.execution
        self._other = other
        self._kept: UnfinishedCleanup | None = None

    async def kept(self) -> UnfinishedCleanup:
        if self._kept is None:
            view = await self._archive.execution(self._other)
            if view is None or view.context is None:
                raise SnapshotError(f"the state of execution {self._other} is no longer kept")
            refuse_if_light(len(view.context))
            self._kept = decode_unfinished(view.context)
        return self._kept

    async def job(self, now: float) -> Job:
        """Return the job, with the outcomes that the old execution knew."""
        kept = await self.kept()
        await self._copy_blobs([name for each in kept.completions if (name := blob_of(each)) is not None])
        return Job(
            self._execution,
            0,
            0,
            now,
            {
                promise_id(each.promise): await self._reading.outcome(self._execution, each)
                for each in kept.completions
            },
            {promise_id(each.promise): each.number for each in kept.completions},
            {promise_id(each.promise): size_of(each) for each in kept.completions},
            cancel=kept.cancel or "cancel",
            interrupted=kept.interrupted,
            reason=None if kept.interrupted else kept.message,
        )

    async def loader(self, program: ScriptProgram, snapshot: bytes, job: Job) -> Callable[[], RunningMachine]:
        """Return a function that loads the machine. ``snapshot`` has no seal any more and is verified as that of the
        old execution.
        """
        blobs = await program.read_blobs(snapshot, partial(self._blobs.get, self._other))
        await self._copy_blobs(sorted(blob_names([snapshot, *blobs.values()])))
        light = is_light.get()

        def load() -> RunningMachine:
            machine = program.load(snapshot, blobs, light=light)
            job.before = machine.awaiting
            return machine

        return load

    async def _copy_input(self, stored: StoredInput) -> None:
        try:
            data = await self._blobs.get(self._other, stored.blob)
        except NotFound:
            raise SnapshotError(f"an input of a task of execution {self._other} is no longer kept") from None
        await self._blobs.put(self._execution, data, turn=UNTIL_REMOVED)

    async def _copy_blobs(self, names: list[str]) -> None:
        for name in names:
            try:
                data = await self._blobs.get(self._other, name)
            except NotFound:
                continue  # a value that looks like a name
            await self._blobs.put(self._execution, data, turn=0)

    async def carried_over(self, turn: Turn) -> list[Effect]:
        kept = await self.kept()
        for task in tasks_again(kept, turn.reachable):
            if task.body.stored is not None:
                await self._copy_input(task.body.stored)
        return carried_over(self._execution, kept, await self._children(kept, turn), turn.reachable)

    async def _children(self, kept: UnfinishedCleanup, turn: Turn) -> list[tuple[int, ExecutionView]]:
        """Return the children it waited for. Those started in this turn have higher numbers than all of the old
        execution.
        """
        settled = {each.promise for each in kept.completions}
        settled.update([each.promise for each in kept.tasks], [each.promise for each in kept.timers])
        begun = {request.id for request, _ in turn.requests if hasattr(request, "id")}
        found: list[tuple[int, ExecutionView]] = []
        looked = 0
        for start, stop in turn.reachable:
            for promise in range(start, stop):
                if promise in settled or promise_id(promise) in begun:
                    continue
                if (looked := looked + 1) > MOST_CHILDREN:
                    return found
                child = await self._archive.execution(child_execution_id(self._other, promise_id(promise)))
                if child is not None and child.relation == "child":
                    found.append((promise, child))
        return found

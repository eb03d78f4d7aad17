"""Machines of ended executions: kept with the ending, and read by the first turn of an execution that continues one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from dalsegno.core.scripts.kept import (
    UNKNOWN_TURN,
    FailedTurn,
    KeptMachine,
    carried_over,
    decode_kept,
    kept_machine,
    stored_inputs,
    tasks_again,
)
from dalsegno.core.scripts.token_bodies import StoredInput, blob_of
from dalsegno.core.scripts.turn import Turn
from dalsegno.engine.scripts.advance import Job, ResumeInputs
from dalsegno.engine.scripts.machine_cache import size_of
from dalsegno.engine.scripts.moving import moved
from dalsegno.engine.scripts.programs import RunningMachine, ScriptProgram
from dalsegno.engine.steps.budget import is_light, refuse_if_light
from dalsegno.engine.steps.values import Storage, blob_names
from dalsegno.errors import NotFound
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.effects import promise_id
from dalsegno.model.effect import Effect
from dalsegno.model.execution import CLEANUP_RELATION, ExecutionView
from dalsegno.model.ids import child_execution_id, repeated_execution_id
from dalsegno.model.machine import MachineView, numbers_in
from dalsegno.model.token import Lease, TokenView
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.records import UNTIL_REMOVED, Blobs

MOST_READS = 10
"""Attempts to read tasks of which one ends each time."""
MOST_CHILDREN = 10_000
"""Promises of the old execution that are searched for children."""


async def read_kept(
    ledger: Ledger, blobs: Blobs, execution: str, message: str, failure: FailedTurn = UNKNOWN_TURN
) -> tuple[MachineView | None, bytes | None]:
    """Return the machine and what is kept of it. The commit that stores it must be refused if the machine has
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
            return before, kept_machine(inspection.execution, after, inspection.tokens, message, failure)


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


async def kept_with(archive: Archive, execution: str) -> tuple[str, bytes]:
    """Return the kept machine of an execution, and the execution that keeps it: one that ended before its first turn
    refers to the one that it was to continue.
    """
    while True:
        view = await archive.execution(execution)
        if view is None or view.context is None:
            raise SnapshotError(f"the state of execution {execution} is no longer kept")
        other = decode_kept(view.context).state_of
        if other is None:
            return execution, view.context
        execution = other


class Predecessor:
    """The kept machine of ``other``, for the first turn of another execution."""

    def __init__(
        self, archive: Archive, blobs: Storage, reading: ResumeInputs, lease: Lease, other: str
    ) -> None:
        self._archive = archive
        self._blobs = blobs
        self._reading = reading
        self._execution = lease.execution
        self.other = other
        self._kept: KeptMachine | None = None

    async def kept(self) -> KeptMachine:
        if self._kept is None:
            self.other, data = await kept_with(self._archive, self.other)
            refuse_if_light(len(data))
            self._kept = decode_kept(data)
        return self._kept

    async def definition(self) -> str:
        """Return the content hash of the program that the kept machine is of."""
        await self.kept()
        view = await self._archive.execution(self.other)
        if view is None:
            raise SnapshotError(f"the state of execution {self.other} is no longer kept")
        return view.definition

    async def loader(
        self,
        program: ScriptProgram,
        snapshot: bytes,
        job: Job,
        context: Mapping[str, Any] | None = None,
        old: ScriptProgram | None = None,
    ) -> Callable[[], RunningMachine]:
        """Return a function that loads the machine. ``snapshot`` has no seal any more and is verified as that of the
        old execution. ``context``: that of the execution that continues it. ``old``: the version of the program that
        the snapshot is of, if it is another one.
        """
        blobs = await program.read_blobs(snapshot, partial(self._blobs.get, self.other))
        await self._copy_blobs(sorted(blob_names([snapshot, *blobs.values()])), turn=0)
        light = is_light.get()

        def load() -> RunningMachine:
            own = snapshot if old is None else moved(old, program, snapshot, blobs)
            machine = program.load(own, blobs, light=light)
            if context is not None:
                machine.move_to(context)
            job.before = machine.awaiting
            return machine

        return load

    async def _copy_blobs(self, names: Iterable[str | None], turn: int | None = None) -> None:
        """Copy values. ``turn``: for those of a snapshot, which are removed with it."""
        for name in names:
            if name is None:
                continue
            try:
                data = await self._blobs.get(self.other, name)
            except NotFound:
                continue  # a value that looks like a name
            await self._blobs.put(self._execution, data, turn=turn)

    async def _children(self, promises: Iterable[int]) -> list[tuple[int, ExecutionView]]:
        """Return the children it waited for."""
        found: list[tuple[int, ExecutionView]] = []
        for promise in islice(promises, MOST_CHILDREN):
            child = await self._archive.execution(child_execution_id(self.other, promise_id(promise)))
            if child is not None and child.relation == "child":
                found.append((promise, child))
        return found


class Cleanup(Predecessor):
    """An unfinished clean-up."""

    async def job(self, now: float) -> Job:
        """Return the job, with the outcomes that the old execution knew."""
        kept = await self.kept()
        await self._copy_blobs([blob_of(each) for each in kept.completions])
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

    async def _copy_input(self, stored: StoredInput) -> None:
        try:
            data = await self._blobs.get(self.other, stored.blob)
        except NotFound:
            raise SnapshotError(f"an input of a task of execution {self.other} is no longer kept") from None
        await self._blobs.put(self._execution, data, turn=UNTIL_REMOVED)

    async def carried_over(self, turn: Turn) -> list[Effect]:
        kept = await self.kept()
        for task in tasks_again(kept, turn.reachable):
            if task.body.stored is not None:
                await self._copy_input(task.body.stored)
        return carried_over(self._execution, kept, await self._awaited_children(kept, turn), turn.reachable)

    async def _awaited_children(self, kept: KeptMachine, turn: Turn) -> list[tuple[int, ExecutionView]]:
        """Return the children it waited for. Those started in this turn have higher numbers than all of the old
        execution.
        """
        settled = {each.promise for each in kept.completions}
        settled.update([each.promise for each in kept.tasks], [each.promise for each in kept.timers])
        begun = {request.id for request, _ in turn.requests if hasattr(request, "id")}
        return await self._children(
            promise
            for promise in numbers_in(turn.reachable)
            if promise not in settled and promise_id(promise) not in begun
        )

"""Going on with a clean-up: an execution whose first turn begins with the machine of another one that has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dalsegno.core.cleanup import UnfinishedCleanup, carried_over, decode_unfinished
from dalsegno.core.script_bodies import blob_of
from dalsegno.core.turn import Turn
from dalsegno.engine.budget import is_light, refuse_if_light
from dalsegno.engine.scripting.following import Job
from dalsegno.engine.scripting.hot import size_of
from dalsegno.engine.scripting.programs import RunningMachine, ScriptProgram
from dalsegno.engine.scripting.reading import Reading
from dalsegno.engine.storage import Storage, blob_names
from dalsegno.errors import NotFound
from dalsegno.lang import SnapshotError
from dalsegno.lang.effects import promise_id
from dalsegno.model.effect import Effect
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import child_execution_id
from dalsegno.model.token import Lease
from dalsegno.ports.archive import Archive

MOST_CHILDREN = 10_000
"""Promises of the old execution among which children are looked for."""


class Cleanup:
    """The machine of ``other``, as it is kept with that, for the first turn of another execution."""

    def __init__(self, archive: Archive, blobs: Storage, reading: Reading, lease: Lease, other: str) -> None:
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
                raise SnapshotError(f"the state of execution {self._other} is not kept any more")
            refuse_if_light(len(view.context))
            self._kept = decode_unfinished(view.context)
        return self._kept

    async def job(self, now: float) -> Job:
        """What the old execution knew is known here."""
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
        """``snapshot``: opened, and found to be that of the old execution."""
        blobs = await program.read_blobs(snapshot, partial(self._blobs.get, self._other))
        await self._copy_blobs(sorted(blob_names([snapshot, *blobs.values()])))
        light = is_light.get()

        def load() -> RunningMachine:
            machine = program.load(snapshot, blobs, light=light)
            job.before = machine.awaiting
            return machine

        return load

    async def _copy_blobs(self, names: list[str]) -> None:
        for name in names:
            try:
                data = await self._blobs.get(self._other, name)
            except NotFound:
                continue  # a value that looks like a name
            await self._blobs.put(self._execution, data, turn=0)

    async def carried_over(self, turn: Turn) -> list[Effect]:
        kept = await self.kept()
        return carried_over(self._execution, kept, await self._children(kept, turn), turn.reachable)

    async def _children(self, kept: UnfinishedCleanup, turn: Turn) -> list[tuple[int, ExecutionView]]:
        """Those it waited for. What it has started in this turn has higher numbers than anything of the old one."""
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

"""Whether kept machines can continue in another version of their program, before an execution is started with one.

Python workflows are moved where their turns run, because their values and migrations are user code; scripts in a thread
or, if that may take long, in a subprocess. What is found is not stored: the first turn moves the machine again.
"""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import Struct

from dalsegno.core.scripts.kept import decode_kept
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.scripts.kept import kept_with
from dalsegno.engine.scripts.moving import (
    FROM_START,
    MoveRefused,
    check_kind,
    is_small_move,
    move_of,
    movement,
    named,
    refusal,
)
from dalsegno.engine.scripts.programs import AbsentProgram, ScriptProgram
from dalsegno.engine.secrets.snapshot_seals import KeyMissing, check_blob
from dalsegno.errors import CodeMissing, Conflict, NotFound, SnapshotRefused
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.movement import ADVICE_MIGRATION, FrameMove, Movement

AT_ONCE = 4
"""Moves in subprocesses that this process asks for at the same time."""


class FramePlan(Struct, frozen=True):
    """The line where a function waits, and where it continues."""

    function: str
    old_line: int
    old_text: str
    new_line: int
    new_text: str


class RetryPlan(Struct, frozen=True):
    """What a retry or rerun would do."""

    workflow: str
    version: int
    starts_over: bool = False
    again: tuple[str, ...] = ()
    """The nodes at which it begins, or the tasks that are asked again."""
    turn: int = 0
    """For a rerun at a turn: its number."""
    line: int = 0
    """The line where the machine waits there."""
    known: tuple[str, ...] = ()
    """Calls that were pending there, whose results are taken over."""
    awaited: tuple[str, ...] = ()
    """Calls that go on elsewhere."""
    later: tuple[str, ...] = ()
    """Tasks that later turns called, of those that are kept: they run again if the program calls them again."""
    frames: tuple[FramePlan, ...] = ()
    """For another version of a script or Python workflow: the functions that wait, outermost first."""


class MoveChecks:
    """Moves kept machines to find out whether they can be moved. Nothing is stored."""

    def __init__(self, stored: StoredExecutions) -> None:
        self.stored = stored
        self._processes = asyncio.Semaphore(AT_ONCE)

    async def check(self, execution: str, new: ScriptProgram) -> tuple[FramePlan, ...]:
        """Return where the functions of the machine that is kept of an execution wait, if it is moved. Raise Conflict
        if it cannot continue in this version of its program.
        """
        what = f"retry execution {execution} from its failure"
        try:
            keeper, data = await kept_with(self.stored.stack.archive, execution)
        except SnapshotError as error:
            raise Conflict(f"cannot {what}: {error}") from None
        view = await self.stored.stack.archive.execution(keeper)
        definition = view.definition if view is not None else new.definition.hash
        return await self.check_machine(keeper, definition, decode_kept(data).snapshot, new, what)

    async def check_machine(
        self, keeper: str, definition: str, snapshot: bytes, new: ScriptProgram, what: str
    ) -> tuple[FramePlan, ...]:
        """Return where the functions of a machine wait, if it is moved. ``keeper``: the execution it is sealed for;
        ``definition``: the content hash of its program. Raise Conflict, that the engine cannot do ``what``.
        """
        try:
            found = await self.find(keeper, definition, snapshot, new)
        except (SnapshotError, SnapshotRefused) as error:
            raise Conflict(f"cannot {what}: {error}") from None
        if found is None:
            return ()
        old, move = found
        if not move.maps:
            told = refusal(old, new, move)
            raise Conflict(f"cannot {what}: {told}")
        return frame_plans(old, new, move)

    async def find(
        self, keeper: str, definition: str, snapshot: bytes, new: ScriptProgram
    ) -> tuple[ScriptProgram, Movement] | None:
        """Return the version that the machine is of, with the move; None if it need not be moved, or if this process
        lacks code, keys or the migration: then the first turn finds out.
        """
        if definition == new.definition.hash:
            return None
        try:
            return await self.moved(keeper, definition, snapshot, new)
        except (CodeMissing, KeyMissing):
            return None
        except NotFound as error:
            raise MoveRefused(f"{error}; {FROM_START}") from None

    async def moved(
        self, owner: str, definition: str, snapshot: bytes, new: ScriptProgram
    ) -> tuple[ScriptProgram, Movement]:
        """Return the version that a stored snapshot of execution ``owner`` is of, with its move to another one. Raise
        CodeMissing or KeyMissing if this process lacks code, keys or the migration.
        """
        known = new.definition
        if isinstance(new, AbsentProgram) or new.lacking():
            raise CodeMissing(f"this process does not have the code of {named(known)}", "")
        old = await self.stored.definitions.for_moving(definition, new)
        check_kind(old.definition, known)
        found = await self._movement(old, new, await self._opened(snapshot, owner, old), owner)
        needs_migration = any(reason.advice == ADVICE_MIGRATION for reason in found.reasons)
        if needs_migration and new.native and not new.is_own:
            raise CodeMissing(f"the program of this process does not have exactly {named(known)}", "")
        return old, found

    async def _opened(self, snapshot: bytes, keeper: str, old: ScriptProgram) -> bytes:
        if not old.native or self.stored.seals is None:
            return snapshot
        await self.stored.seals.prepare()
        if not old.is_own:
            await self.stored.seals.check_program(old.definition)
        return await self.stored.seals.opened(snapshot, keeper, old.definition.hash)

    async def _movement(
        self, old: ScriptProgram, new: ScriptProgram, snapshot: bytes, keeper: str
    ) -> Movement:
        stored = self.stored
        if not old.native and not is_small_move(old, new, snapshot):
            async with self._processes:
                version = old.definition.version
                return move_of(
                    await stored.offload.large("move", old.code.dump(), new.code.dump(), snapshot, version)
                )
        blobs = await old.read_blobs(snapshot, partial(self._blob, keeper))
        found: list[Movement] = []

        def move() -> None:
            found.append(movement(old, new, snapshot, blobs))

        if not old.native:
            await stored.offload.load(move)
        elif stored.in_thread is not None:
            await stored.in_thread(move)
        else:
            move()
        return found[0]

    async def _blob(self, keeper: str, name: str) -> bytes:
        data = await self.stored.stack.blobs.get(keeper, name)
        check_blob(name, data, keeper)
        return data


def frame_plans(old: ScriptProgram, new: ScriptProgram, move: Movement) -> tuple[FramePlan, ...]:
    return tuple(_frame(old, new, each) for each in move.frames)


def _frame(old: ScriptProgram, new: ScriptProgram, move: FrameMove) -> FramePlan:
    line = move.new_line or 0
    return FramePlan(move.function, move.old_line, old.line(move.old_line), line, new.line(line))

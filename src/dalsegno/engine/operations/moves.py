"""Executions that have not ended go on with another version of their program: the same execution, the same id.

Each execution is moved by one commit, which is refused if its machine has advanced since it was read; then it is read
and moved again. A chunk that is interrupted is repeated: what has the new version already is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from dalsegno.core.scripts.token_bodies import decode_start_body
from dalsegno.engine.definitions import Program
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.scripts.moving import FROM_START, check_kind, named, reasons
from dalsegno.engine.scripts.programs import AbsentProgram, ScriptProgram
from dalsegno.engine.secrets.snapshot_seals import NO_KEY, KeyMissing
from dalsegno.engine.starting.moving import FramePlan, MoveChecks, frame_plans
from dalsegno.engine.starting.start import check_input
from dalsegno.errors import BadConfiguration, Conflict, InvalidInput, NotFound
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.movement import Movement
from dalsegno.model.definition import Version, no_such_version, parse_target, read_version
from dalsegno.model.effect import MoveMachine
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ENDED, NOT_ENDED, SCRIPTED, ExecutionView
from dalsegno.model.machine import MachineView
from dalsegno.model.transition import AlreadyApplied, Applied, Refused, Transition
from dalsegno.ports.archive import ExecutionFilter, Place

CHUNK = 500
"""Executions of the old version that one call moves."""
LARGEST_CHUNK = 1000
PAGE = 500
MOST_SEEN = 20_000
"""Executions of any version that one call looks at."""
AT_ONCE = 32
ATTEMPTS = 20
"""Attempts at an execution whose machine advances each time."""

State = Literal["moved", "movable", "there", "ended", "refused"]


class MoveReason(Struct, frozen=True, omit_defaults=True):
    """Why an execution cannot go on with the new version, with the lines of both."""

    message: str
    old_line: int
    old_text: str
    new_line: int | None = None
    new_text: str = ""
    advice: str = ""


class Moved(Struct, frozen=True):
    """What became of one execution."""

    execution: str
    state: State
    from_version: int
    to_version: int
    frames: tuple[FramePlan, ...] = ()
    """The functions that wait, outermost first."""
    detail: str = ""
    """Why it was refused."""
    reasons: tuple[MoveReason, ...] = ()


class MoveRefusal(Struct, frozen=True):
    execution: str
    detail: str
    reasons: tuple[MoveReason, ...] = ()


class MoveReport(Struct, frozen=True):
    """What became of a chunk of the executions of one version."""

    workflow: str
    from_version: int
    to_version: int
    dry_run: bool
    moved: int
    """Executions that were moved or, with ``dry_run``, could be."""
    there: int
    """Executions that had been moved already."""
    ended: int
    """Executions that ended meanwhile."""
    refusals: tuple[MoveRefusal, ...]
    next: str | None = None
    """The cursor of the next chunk; None after the last one."""


NextChunk: TypeAlias = Callable[[str | None], Awaitable[MoveReport]]
"""Move the chunk that begins at a cursor."""


async def move_all(chunk: NextChunk, told: Callable[[MoveReport], None] = lambda total: None) -> MoveReport:
    """Move chunk after chunk, and return the sum. ``told`` receives the sum so far before each further chunk."""
    total = await chunk(None)
    while total.next is not None:
        told(total)
        more = await chunk(total.next)
        total = msgspec.structs.replace(
            more,
            moved=total.moved + more.moved,
            there=total.there + more.there,
            ended=total.ended + more.ended,
            refusals=total.refusals + more.refusals,
        )
    return total


class Moves:
    def __init__(self, stored: StoredExecutions) -> None:
        self._stored = stored
        self._checks = MoveChecks(stored)

    async def one(self, execution: str, version: Version, *, dry_run: bool = False) -> Moved:
        """Move one execution. Raises Conflict, with the reasons, if it cannot be moved."""
        view = await self._stored.outline(execution)
        if view.kind not in SCRIPTED:
            raise Conflict(
                f"cannot move execution {execution}: it is a {view.kind}, and only scripts and Python workflows can"
                " go on with another version"
            )
        if view.state in ENDED:
            raise Conflict(
                f"cannot move execution {execution}: it has ended ({view.state}). One that failed is retried with"
                " another version: retry --version"
            )
        workflow, _ = parse_target(view.workflow)
        done = await self._move(view, await self._target(workflow, version), dry_run=dry_run)
        if done.state == "refused":
            raise Conflict(f"cannot move execution {execution}: {done.detail}")
        if done.state == "ended":
            raise Conflict(f"cannot move execution {execution}: it has ended meanwhile")
        return done

    async def chunk(
        self,
        workflow: str,
        before: Version,
        version: Version,
        *,
        dry_run: bool = False,
        cursor: str | None = None,
        limit: int = CHUNK,
    ) -> MoveReport:
        """Move executions of the version ``before`` to another one, newest first. ``cursor``: ``next`` of the chunk
        before.
        """
        name, _ = parse_target(workflow)
        target = await self._target(name, version)
        old = await self._stored.stack.archive.definition(name, read_version(before))
        if old is None:
            raise NotFound(no_such_version(name, before))
        if old.hash == target.definition.hash:
            raise InvalidInput(f"version {old.version} of '{name}' is both the old and the new version")
        return await self.to_program(name, old.version, target, dry_run=dry_run, cursor=cursor, limit=limit)

    async def to_program(
        self,
        workflow: str,
        before: int,
        target: ScriptProgram,
        *,
        dry_run: bool,
        cursor: str | None = None,
        limit: int = CHUNK,
    ) -> MoveReport:
        """Move a chunk to a program, which with ``dry_run`` need not be deployed."""
        found, following = await self._page(workflow, before, _place(cursor), min(limit, LARGEST_CHUNK))
        at_once = asyncio.Semaphore(AT_ONCE)

        async def move(view: ExecutionView) -> Moved:
            async with at_once:
                return await self._move(view, target, dry_run=dry_run)

        done = await asyncio.gather(*(move(view) for view in found))
        states = [each.state for each in done]
        return MoveReport(
            workflow,
            before,
            target.definition.version,
            dry_run,
            states.count("moved") + states.count("movable"),
            states.count("there"),
            states.count("ended"),
            tuple(
                MoveRefusal(each.execution, each.detail, each.reasons)
                for each in done
                if each.state == "refused"
            ),
            f"{following.created_at!r} {following.id}" if following is not None else None,
        )

    async def _target(self, workflow: str, version: Version) -> ScriptProgram:
        definitions = self._stored.definitions
        definitions.forget(workflow)  # a version that was deployed a moment ago is the current one
        program = await definitions.by_name(workflow, read_version(version))
        if isinstance(program, Program):
            raise Conflict(
                f"'{workflow}' is a graph. An execution of a graph keeps its version: cancel it, and rerun it with the"
                " new one (rerun --version)"
            )
        return program

    async def _page(
        self, workflow: str, before: int, place: Place | None, limit: int
    ) -> tuple[list[ExecutionView], Place | None]:
        """Return executions of the old version, and where the next page begins."""
        where = ExecutionFilter(workflow=workflow, states=NOT_ENDED, kinds=("script", "python"))
        found: list[ExecutionView] = []
        seen = 0
        while seen < MOST_SEEN:
            page: Sequence[ExecutionView] = await self._stored.executions(where, place, PAGE)
            for view in page:
                if len(found) == limit:
                    return found, place
                place = Place(view.created_at, view.id)
                found += [view] if view.version == before else []
            if len(page) < PAGE:
                return found, None
            seen += len(page)
        return found, place

    # -- one execution ----------------------------------------------------------------------------------------

    async def _move(self, view: ExecutionView, target: ScriptProgram, *, dry_run: bool) -> Moved:
        """Move an execution as it is now; it may have changed since it was listed."""
        for _ in range(ATTEMPTS):
            if view.state in ENDED:
                return _done(view, target, "ended")
            if view.definition == target.definition.hash:
                return _done(view, target, "there")
            machine = await self._stored.stack.ledger.machine(view.id)
            if machine is not None:
                made = await self._prepared(view, machine, target)
                if isinstance(made, Moved):
                    return made
                if dry_run:
                    return made.result(view, target, "movable")
                outcome = await self._stored.committer.commit(made.transition, wait_for_store=False)
                if isinstance(outcome, Applied):
                    return made.result(view, target, "moved")
                if isinstance(outcome, AlreadyApplied):
                    return _done(view, target, "there")
                if isinstance(outcome, Refused):
                    return _done(view, target, "refused", outcome.message)
            again = await self._stored.stack.archive.outline(view.id)
            if again is None:
                return _done(view, target, "ended")
            view = again
        message = f"its state has changed at each of {ATTEMPTS} attempts: move it again, or pause it first"
        return _done(view, target, "refused", message)

    async def _prepared(
        self, view: ExecutionView, machine: MachineView, target: ScriptProgram
    ) -> _Ready | Moved:
        """Return the commit that moves an execution, or the reasons against it."""
        try:
            if not machine.snapshot:
                await self._check_start(view, target)
                return _Ready(_transition(view, machine, target, None, b"", self._now()))
            return await self._moved(view, machine, target)
        except NotFound as error:
            if await self._stored.stack.archive.outline(view.id) is None:
                return _done(view, target, "ended")
            return _done(view, target, "refused", str(error))
        except (SnapshotError, BadConfiguration, Conflict, InvalidInput) as error:
            return _done(view, target, "refused", str(error).removesuffix(f"; {FROM_START}"))

    async def _moved(
        self, view: ExecutionView, machine: MachineView, target: ScriptProgram
    ) -> _Ready | Moved:
        old, movement = await self._checks.moved(view.id, view.definition, machine.snapshot, target)
        if not movement.maps:
            said = _done(view, target, "refused", reasons(old, target, movement))
            return msgspec.structs.replace(said, reasons=_reasons(old, target, movement))
        data = await self._sealed(movement, view, target)
        return _Ready(
            _transition(view, machine, target, movement, data, self._now()),
            frame_plans(old, target, movement),
        )

    async def _sealed(self, movement: Movement, view: ExecutionView, target: ScriptProgram) -> bytes:
        seals = self._stored.seals
        if not target.native or seals is None:
            return movement.data
        await seals.prepare()
        if seals.must_seal():
            raise KeyMissing(NO_KEY, "")
        return seals.sealed(movement.data, view.id, target.definition.hash)

    async def _check_start(self, view: ExecutionView, target: ScriptProgram) -> None:
        """Refuse an execution without a machine that the new version could not begin."""
        known = target.definition
        if view.kind != known.kind:
            check_kind(await self._stored.definitions.definition_of(view.definition), known)
        if isinstance(target, AbsentProgram):
            raise BadConfiguration(f"this process does not have the code of {named(known)}")
        found = await self._stored.stack.ledger.inspect(view.id)
        for token in found.tokens if found is not None else ():
            if token.kind == "resume" and token.data:
                body = decode_start_body(token.data)
                other = body.continues or body.cleanup_of
                if other is not None:
                    raise Conflict(f"it has not yet taken over the state of execution {other}: move it later")
        whole = await self._stored.status(view.id)
        stored = self._stored
        await check_input(target, whole.input, stored.limits, stored.offload, stored.in_thread)

    def _now(self) -> float:
        return self._stored.stack.ledger.now()


class _Ready(Struct, frozen=True):
    """A move that is ready to be committed."""

    transition: Transition
    frames: tuple[FramePlan, ...] = ()

    def result(self, view: ExecutionView, target: ScriptProgram, state: State) -> Moved:
        return Moved(view.id, state, view.version, target.definition.version, self.frames)


def _done(view: ExecutionView, target: ScriptProgram, state: State, detail: str = "") -> Moved:
    return Moved(view.id, state, view.version, target.definition.version, detail=detail)


def _place(cursor: str | None) -> Place | None:
    if cursor is None:
        return None
    moment, _, name = cursor.partition(" ")
    try:
        return Place(float(moment), name)
    except ValueError:
        raise InvalidInput("'cursor' was not given out by a move; omit it to begin anew") from None


def _transition(
    view: ExecutionView,
    machine: MachineView,
    target: ScriptProgram,
    movement: Movement | None,
    data: bytes,
    now: float,
) -> Transition:
    known = target.definition
    facts: dict[str, int] = {"from": view.version, "to": known.version}
    line = machine.line
    if movement is not None and movement.frames:
        innermost = movement.frames[-1]
        line = innermost.new_line or 0
        facts |= {"from_line": innermost.old_line, "line": line}
    effect = MoveMachine(machine.version, view.definition, known.hash, known.version, data, line)
    event = NewEvent("VersionChanged", "", "", now, msgspec.json.encode(facts))
    return Transition(view.id, (effect,), (event,))


def _reasons(old: ScriptProgram, new: ScriptProgram, movement: Movement) -> tuple[MoveReason, ...]:
    return tuple(
        MoveReason(
            each.message,
            each.old_line,
            old.line(each.old_line),
            each.new_line,
            new.line(each.new_line) if each.new_line is not None else "",
            each.advice,
        )
        for each in movement.reasons
    )

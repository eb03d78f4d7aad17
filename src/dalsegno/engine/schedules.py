"""Schedules: requests for them, the executions behind their names, and the step of their tokens.

The schedule of a name is the unfinished execution of kind ``schedule`` whose workflow is that name. Its ``version``
counts the schedules that the name has had. Its id is derived from both, so that two concurrent calls that add the
same schedule create one. The step of a schedule's token reads what the pure rules need and applies them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from itertools import islice
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core import commands
from dalsegno.core.outbox_orders import StartOrder
from dalsegno.core.schedules.cron import read_zone
from dalsegno.core.schedules.spec import (
    CATCH_UP,
    GRACE,
    MissedPolicy,
    OverlapPolicy,
    ScheduleSpec,
    make_spec,
    next_after,
    times_after,
)
from dalsegno.core.schedules.step import (
    ScheduleState,
    change_schedule,
    create_schedule,
    decode_state,
    delay_of,
    fire,
    give_up,
    order_of,
)
from dalsegno.core.values import encode_value
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions, deployed
from dalsegno.engine.executions import all_executions
from dalsegno.engine.options import Duration, Moment, read_duration, read_moment
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.settings import DEFAULT_LIMITS
from dalsegno.engine.starting.start import StartOptions, check_input, new_execution
from dalsegno.errors import Conflict, DalSegnoError, InvalidDefinition, InvalidInput, LimitExceeded, NotFound
from dalsegno.model.definition import parse_target
from dalsegno.model.execution import ENDED, ExecutionState, ExecutionView, NewExecution
from dalsegno.model.failure import Failure
from dalsegno.model.ids import derive, new_execution_id, repeated_execution_id
from dalsegno.model.suggestion import no_such_schedule
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Refused, Stale, Transition
from dalsegno.ports.archive import Archive, ExecutionFilter
from dalsegno.ports.stack import Stack

LARGEST_INPUT = 256 * 1024


@dataclass(frozen=True, slots=True)
class NewSchedule:
    """A request for a schedule. ``timing`` is a cron line or ``every 15m``; ``workflow`` may include a version:
    ``report@stable``.
    """

    name: str
    timing: str
    workflow: str
    input: Any = None
    timezone: str = "UTC"
    missed: MissedPolicy = "skip"
    overlap: OverlapPolicy = "allow"
    grace: Duration = GRACE
    catch_up: int = CATCH_UP
    jitter: Duration = 0.0
    start: Moment | None = None
    end: Moment | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0

    def spec(self, now: float) -> ScheduleSpec:
        """Return the spec, after all checks that need no store. Raises InvalidInput, NotJson or LimitExceeded."""
        self._check_types()
        workflow, version = parse_target(self.workflow)
        zone = read_zone(self.timezone)
        draft = ScheduleSpec(
            name=self.name,
            workflow=workflow,
            version=version,
            input=_input(self.input),
            timezone=self.timezone,
            missed=self.missed,
            overlap=self.overlap,
            grace=read_duration(self.grace, "'grace' of a schedule"),
            catch_up=self.catch_up,
            jitter=read_duration(self.jitter, "'jitter' of a schedule"),
            start=_moment("start", self.start, zone),
            end=_moment("end", self.end, zone),
            tags=tuple(sorted(self.tags.items())),
            priority=self.priority,
        )
        return make_spec(draft, self.timing, now)

    def _check_types(self) -> None:
        for what in ("name", "timing", "workflow", "timezone", "missed", "overlap"):
            _check_text(f"'{what}' of a schedule", getattr(self, what))
        for what in ("catch_up", "priority"):
            number = getattr(self, what)
            if isinstance(number, bool) or not isinstance(number, int):
                raise InvalidInput(f"'{what}' of a schedule must be a whole number, not {number!r}")
        if not isinstance(self.tags, Mapping):
            raise InvalidInput(f"'tags' of a schedule must map names to texts, not {self.tags!r}")
        for name, tag in self.tags.items():
            _check_text("a tag of a schedule", name)
            _check_text(f"the tag {name!r} of a schedule", tag)


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be text, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid Unicode: {value[:100]!r}") from None


def _input(value: Any) -> Raw:
    raw = encode_value(value if value is not None else {}, "the input")
    if len(raw) > LARGEST_INPUT:
        raise LimitExceeded(
            f"the input of a schedule is {len(raw):,} bytes of JSON, more than {LARGEST_INPUT:,}: it is written again"
            " with every start; keep large data elsewhere and pass a reference to it"
        )
    return Raw(raw)


def _moment(what: str, given: Moment | None, zone: tzinfo) -> float | None:
    return None if given is None else read_moment(given, f"'{what}' of a schedule", zone)


NOT_THERE_YET = 60.0
"""Seconds during which an ordered execution that does not exist yet counts as still being started."""


async def schedule_step(archive: Archive, lease: Lease, now: float) -> Transition:
    """Return the transition of a token of kind ``schedule``. Idempotent, however often the token was lost before."""
    try:
        state = decode_state(lease.data)
        next_after(state.spec, now)  # its time zone may no longer exist
    except DalSegnoError as error:
        return give_up(lease, now, Failure(str(error), error.code, type(error).__name__))
    return fire(state, lease, now, busy=await _busy(archive, state, now))


async def _busy(archive: Archive, state: ScheduleState, now: float) -> bool:
    """Return True if the execution started last still runs, or is about to."""
    if state.spec.overlap == "allow" or state.execution is None:
        return False
    found = (await archive.states([state.execution])).get(state.execution)
    if found is None:
        return state.fired_at is not None and now - state.fired_at < NOT_THERE_YET
    return found not in ENDED


NO_INPUT = Raw(b"null")
SHOWN_TIMES = 5
PAGE = 200
TRIES = 5
"""How often a change is retried after a concurrent change."""
_LISTED: tuple[ExecutionState, ...] = ("RUNNING", "PAUSED", "FAILED")


class ScheduleView(Struct, frozen=True):
    """A schedule with its current state."""

    name: str
    execution: str
    state: ExecutionState
    spec: ScheduleSpec
    created_at: float
    next: tuple[float, ...]
    """Its next times; empty while it is paused or after its end."""
    last: float | None = None
    last_execution: str | None = None
    started: int = 0
    passed: int = 0
    """Times that were missed or would have overlapped."""
    overdue: float | None = None
    """A time that has passed without being fired yet."""
    error: dict[str, object] | None = None
    """Why it failed."""


class ScheduleRecords:
    """The user-facing operations on schedules. None of them needs a running worker."""

    def __init__(self, stack: Stack, committer: Committer, definitions: Definitions) -> None:
        self.stack = stack
        self.committer = committer
        self.definitions = definitions

    # -- commands ---------------------------------------------------------------------------------------------

    async def add(
        self, new: NewSchedule, *, replace: bool = False, allow_unknown: bool = False
    ) -> ScheduleView:
        """Add a schedule or, with ``replace``, change the spec of the existing one, which keeps its counters."""
        spec = new.spec(self.stack.ledger.now())
        if not allow_unknown:
            spec = await self._fitting(spec, has_input=new.input is not None)
        for _ in range(TRIES):
            known = await self._newest(spec.name)
            if known is None or known.state in ENDED:
                done = await self._create(spec, known)
            elif replace:
                done = await self._change(spec, known.id)
            else:
                raise Conflict(
                    f"there is a schedule '{spec.name}' already; replace it, or choose another name"
                )
            if done:
                return await self.describe(spec.name)
        raise Conflict(f"the schedule '{spec.name}' was changed by others at the same time; try again")

    async def pause(self, name: str) -> None:
        """Stop firing until ``resume``; then the policy for missed times applies."""
        await self._command(name, "pause")

    async def resume(self, name: str) -> None:
        await self._command(name, "resume")

    async def remove(self, name: str) -> None:
        """Remove a schedule. Executions it has started continue."""
        await self._command(name, "remove")

    async def trigger(self, name: str, key: str | None = None) -> StartOrder:
        """Return the order for a start outside its times; the caller delivers it. The same ``key`` gives the same
        start.
        """
        view = await self._current(name)
        state, _ = await self._state(view.id)
        now = self.stack.ledger.now()
        started = repeated_execution_id(view.id, key) if key is not None else new_execution_id(now)
        return order_of(view.id, started, state.spec, now)

    # -- queries ----------------------------------------------------------------------------------------------

    async def list(self) -> list[ScheduleView]:
        """Return all unfinished and failed schedules, by name."""
        found: dict[str, ExecutionView] = {}
        where = ExecutionFilter(states=_LISTED, kinds=("schedule",))
        async for view in all_executions(self.stack.archive, where, at_once=PAGE):
            found.setdefault(view.workflow, view)
        return [await self._view(view, 1) for _, view in sorted(found.items())]

    async def describe(self, name: str, times: int = SHOWN_TIMES) -> ScheduleView:
        """Return a schedule with its next ``times`` times; if it has ended, the last one of that name."""
        view = await self._newest(name)
        if view is None or view.state == "CANCELLED":
            raise await self._unknown(name)
        return await self._view(view, times)

    async def is_active(self, name: str) -> bool:
        """Return True if there is an unfinished schedule of that name."""
        view = await self._newest(name)
        return view is not None and view.state not in ENDED

    async def _view(self, view: ExecutionView, times: int) -> ScheduleView:
        error = msgspec.json.decode(view.error) if view.error is not None else None
        if view.state in ENDED:
            whole = await self.stack.archive.execution(view.id)
            if whole is None:
                raise NotFound(no_such_schedule(view.workflow, []))
            spec = msgspec.json.decode(whole.input, type=ScheduleSpec)
            return ScheduleView(view.workflow, view.id, view.state, spec, view.created_at, (), error=error)
        state, _ = await self._state(view.id)
        now = self.stack.ledger.now()
        paused = view.state == "PAUSED"
        following = times_after(state.spec, max(state.settled, now))
        late = state.next is not None and state.next + delay_of(view.id, state.spec)(state.next) < now
        return ScheduleView(
            view.workflow,
            view.id,
            view.state,
            state.spec,
            view.created_at,
            () if paused else tuple(islice(following, times)),
            state.last,
            state.execution,
            state.started,
            state.passed,
            state.next if late and not paused else None,
        )

    # -- internals --------------------------------------------------------------------------------------------

    async def _create(self, spec: ScheduleSpec, before: ExecutionView | None) -> bool:
        number = before.version + 1 if before is not None else 1
        now = self.stack.ledger.now()
        new = NewExecution(
            id=derive("schedule", spec.name, str(number)),
            workflow=spec.name,
            version=number,
            definition="",
            input=msgspec.json.encode(spec),
            created_at=now,
            priority=spec.priority,
            tags=spec.tags,
            kind="schedule",
        )
        outcome = await self.committer.commit(create_schedule(new, spec, now), wait_for_store=False)
        if isinstance(outcome, Refused):
            raise InvalidInput(f"the schedule was not stored: {outcome.message}")
        return isinstance(outcome, Applied)

    async def _change(self, spec: ScheduleSpec, execution: str) -> bool:
        state, token = await self._state(execution)
        now = self.stack.ledger.now()
        change = change_schedule(execution, (token,), state, spec, now)
        outcome = await self.committer.commit(change, wait_for_store=False)
        if isinstance(outcome, Refused):
            raise InvalidInput(f"the schedule was not stored: {outcome.message}")
        if not isinstance(outcome, Applied):
            return False
        after, _ = await self._state(execution)
        return after.revision > state.revision and _same(after.spec, spec)

    async def _command(self, name: str, verb: str) -> None:
        view = await self._current(name)
        now = self.stack.ledger.now()
        match verb:
            case "pause":
                transition = commands.pause(view.id, now)
            case "resume":
                transition = commands.resume(view.id, now)
            case _:
                transition = commands.cancel(view.id, now, "the schedule was removed")
        await self._commit(transition, name)

    async def _commit(self, transition: Transition, name: str) -> None:
        outcome = await self.committer.commit(transition, wait_for_store=False)
        if isinstance(outcome, Refused):
            raise InvalidInput(f"the schedule '{name}' cannot do this: {outcome.message}")
        if not isinstance(outcome, Applied | AlreadyApplied):
            over = isinstance(outcome, Stale) and outcome.reason == "finished"
            raise Conflict(f"the schedule '{name}' has {'ended' if over else 'been removed'} meanwhile")

    async def _newest(self, name: str) -> ExecutionView | None:
        where = ExecutionFilter(workflow=name, kinds=("schedule",))
        found = await self.stack.archive.executions(where, limit=1)
        return found[0] if found else None

    async def _current(self, name: str) -> ExecutionView:
        view = await self._newest(name)
        if view is None or view.state in ENDED:
            raise await self._unknown(name)
        return view

    async def _unknown(self, name: str) -> NotFound:
        return NotFound(no_such_schedule(name, [view.name for view in await self.list()]))

    async def _state(self, execution: str) -> tuple[ScheduleState, str]:
        inspection = await self.stack.ledger.inspect(execution)
        for token in inspection.tokens if inspection is not None else ():
            if token.kind == "schedule":
                return decode_state(token.data), token.id
        raise Conflict(f"the schedule with the execution {execution} has ended meanwhile")

    async def _fitting(self, spec: ScheduleSpec, *, has_input: bool) -> ScheduleSpec:
        """Check that the workflow exists and accepts the input, if this process can check that. Return the spec; for
        a Python function a missing input is null, not an object.
        """
        definition = await deployed(self.stack.archive, spec.workflow, spec.version)
        try:
            program = await self.definitions.by_name(spec.workflow, definition.version)
        except (NotFound, InvalidDefinition):
            return spec  # its module or one of its node types is unknown here, but may be known where it runs
        if not has_input and isinstance(program, ScriptProgram) and program.native:
            spec = msgspec.structs.replace(spec, input=NO_INPUT)
        new = new_execution(program, spec.input, StartOptions(), self.stack.ledger.now(), DEFAULT_LIMITS)
        await check_input(program, new.input, DEFAULT_LIMITS, self.definitions.offload, asyncio.to_thread)
        return spec


def _same(one: ScheduleSpec, other: ScheduleSpec) -> bool:
    """Return True if two specs are equal except for the anchor of intervals, which a change may keep."""
    return msgspec.structs.replace(one, anchor=0.0) == msgspec.structs.replace(other, anchor=0.0)

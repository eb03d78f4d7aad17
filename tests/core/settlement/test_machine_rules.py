"""The rules about machines as such: pure, over the memory store's rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.adapters.memory.store import MemoryStore
from dalsegno.core.settlement import TokenRow, lease_of, settle
from dalsegno.model.effect import Effect, WakeMachine
from dalsegno.model.machine import Completion, TakenSignal, reaches
from dalsegno.model.token import UNFINISHED, Lease
from dalsegno.model.transition import Applied, Park, Transition
from dalsegno.testing.contract.builders import RUN, command, finish, pause, resume, step
from dalsegno.testing.contract.script_builders import (
    ask_to_end,
    delivered,
    done,
    failed,
    resume_id,
    save,
    signal,
    start_script,
    task,
)
from tests.effort import examples

NOW = 1000.0
PROMISES = 8
OF_TASKS = 6
"""The first promises are those of tasks and children, the others those of signals: no promise is both."""
NAMES = ("x", "y")
SIGNALLED = b"from a signal"


@given(st.sets(st.integers(0, 40)), st.integers(-2, 45))
def test_promise_is_reachable_if_some_range_holds_it(members: set[int], promise: int) -> None:
    ranges: list[tuple[int, int]] = []
    for member in sorted(members):
        if ranges and ranges[-1][1] == member:
            ranges[-1] = (ranges[-1][0], member + 1)
        else:
            ranges.append((member, member + 1))

    assert reaches(tuple(ranges), promise) == (promise in members)


class Script:
    """One script whose tokens are leased as soon as they are ready, and concluded at random."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.spawned = 0
        self.settle(start_script())

    @property
    def tokens(self) -> list[TokenRow]:
        return [row for row in self.store.executions[RUN].tokens.values() if row.state in UNFINISHED]

    @property
    def machine(self) -> Any:
        return self.store.executions[RUN].machine

    def settle(self, transition: Transition) -> None:
        settle(transition, self.store, NOW)

    def lease(self, kind: str, number: int) -> Lease | None:
        rows = [row for row in self.tokens if row.kind == kind and row.state in ("ready", "leased")]
        if not rows:
            return None
        row = rows[number % len(rows)]
        if row.state == "ready":
            row.state, row.owner, row.fence = "leased", "w1", row.fence + 1
        return lease_of(row, self.store.executions[RUN].row)

    def conclude(self, kind: str, number: int, *effects: Effect, park: Park | None = None) -> None:
        lease = self.lease(kind, number)
        if lease is not None:
            self.spawned += 1
            more = () if park is not None else (task(f"t{self.spawned}"),)
            self.settle(step(lease, *effects, *more, park=park))


def saved(script: Script, a: int, b: int, settled: Completion | None = None) -> Effect:
    """As of now, or as of a little earlier."""
    machine = script.machine
    return save(
        machine.version,
        machine.inbox if settled is not None else max(machine.inbox - a % 3, machine.read),
        need=a % 4,
        on_failure=b % 3 == 0,
        on_success=b % 5 == 0,
        signals=NAMES[: b % 3],
        reachable=(((0, PROMISES),), ((2, 5), (6, PROMISES)), ())[(a + b) % 3],
        settled=settled,
        taken=[TakenSignal(f"s{a % 6}", OF_TASKS + b // 2 % 2)] if b % 2 else [],
        interrupted=a % 4 == 0,
    )


def act(script: Script, operation: str, a: int, b: int) -> None:
    match operation:
        case "resume":
            script.conclude("resume", a, saved(script, a, b))
        case "resume without saving":
            script.conclude("resume", a)
        case "resume later":
            script.conclude("resume", a, park=Park(NOW + 1, b"", 2))
        case "task":
            script.conclude("task", a, done(b % OF_TASKS) if b % 2 else failed(b % OF_TASKS))
        case "fused":
            script.conclude("task", a, saved(script, a, b, Completion(b % OF_TASKS, True, b"")))
        case "child":
            script.settle(command(RUN, delivered(a % OF_TASKS)))
        case "signal":
            script.settle(signal(f"s{a % 6}", NAMES[b % 2], SIGNALLED))
        case "nudge":
            script.settle(command(RUN, WakeMachine()))
        case "ask":
            script.settle(ask_to_end())
        case "pause":
            script.settle(pause() if b % 2 else resume())


OPERATIONS = (
    "resume", "resume", "resume", "resume without saving", "resume later", "task", "task", "task", "fused", "fused",
    "child", "signal", "signal", "nudge", "ask", "pause",
)  # fmt: skip
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=60
)


def wants_to_run(script: Script) -> bool:
    """The wake condition, told from the rows themselves."""
    machine, found = script.machine, script.store.executions[RUN]
    unread = [entry for entry in found.inbox.values() if entry.number in unread_numbers(script)]
    return (
        len(unread) >= max(machine.wake.need, 1)
        or (machine.wake.on_failure and any(not entry.ok for entry in unread))
        or (machine.wake.on_success and any(entry.ok for entry in unread))
        or (machine.cancel != "" and not machine.interrupted)
        or any(not row.taken and row.name in machine.wake.signals for row in found.mailbox.values())
    )


def unread_numbers(script: Script) -> set[int]:
    """Numbers after ``read``, without those of signals, which the run that takes them has seen."""
    taken = {entry.number for entry in script.store.executions[RUN].inbox.values() if entry.data == SIGNALLED}
    return set(range(script.machine.read + 1, script.machine.inbox + 1)) - taken


@examples(300)
@given(PROGRAMS)
def test_machine_that_may_go_on_always_has_exactly_one_resume_token(
    program: list[tuple[str, int, int]],
) -> None:
    script = Script()
    for operation, a, b in program:
        act(script, operation, a, b)
        current = [row for row in script.tokens if row.id == resume_id(script.machine.version)]
        assert len(current) == (1 if script.machine.resuming else 0)
        assert script.machine.resuming or not wants_to_run(script)


@examples(300)
@given(PROGRAMS)
def test_inbox_holds_each_reachable_promise_once_in_order(program: list[tuple[str, int, int]]) -> None:
    script = Script()
    for operation, a, b in program:
        act(script, operation, a, b)
        machine, found = script.machine, script.store.executions[RUN]
        numbers = sorted(entry.number for entry in found.inbox.values())
        assert len(set(numbers)) == len(numbers) == machine.kept == len(found.kept)
        assert all(reaches(machine.reachable, promise) for promise in found.inbox)
        assert all(0 < number <= machine.inbox for number in numbers)
        assert machine.read <= machine.inbox
        assert machine.unread == len(unread_numbers(script) & set(numbers))


def test_machine_of_an_ended_script_is_never_resumed() -> None:
    script = Script()
    script.conclude("resume", 0, save(0), finish())
    before = list(script.tokens)

    for transition in (signal(), command(RUN, WakeMachine()), command(RUN, done(1)), ask_to_end()):
        assert not isinstance(settle(transition, script.store, NOW), Applied)
    assert script.tokens == before

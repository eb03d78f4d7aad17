"""Recorded turns: what a machine's states before and after a turn say about it."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.scripts.turn_view import (
    MOST_BYTES,
    NO_PREDECESSOR,
    MadePromise,
    TurnSummary,
    TurnView,
    bounded,
    frame_views,
    made_numbers,
    turn_view,
)
from dalsegno.lang import Machine, compile
from dalsegno.lang.python import PythonMachine, compile_workflow
from dalsegno.lang.runtime.effects import Err, ErrorValue, Ok, Outcome
from dalsegno.lang.runtime.machine_state import FrameState, MachineState, PromiseState
from tests.python.tasks import add

SCRIPT = """\
async function main() {
  let total = await Task.run("charge", inputs.cents)
  const mail = Task.run("mail", {to: "ann"})
  total = total + await ask(total)
  await mail
  return total
}
async function ask(least) {
  const answer = await Signal.when("answer", {timeout: "1h"})
  return answer + least
}
"""
PROGRAM = compile(SCRIPT, "order")
LINES = SourceText("", 1, tuple(SCRIPT.splitlines()))


def states(*outcomes: dict[str, Outcome]) -> list[MachineState]:
    """The states of the script after each of its turns, read from snapshots as the debugger reads them."""
    machine = Machine.start(PROGRAM, {"cents": 7}, {"executionId": "e"}, now=1000.0)
    machine.take_effects()
    found = [Machine.loads(PROGRAM, machine.dumps()).state()]
    for each in outcomes:
        machine.resume(each, now=1000.0)
        machine.take_effects()
        found.append(Machine.loads(PROGRAM, machine.dumps()).state())
    return found


def viewed(number: int, before: MachineState | None, after: MachineState, **parts: Any) -> TurnView:
    return turn_view(TurnSummary(number, 1000.0, after.line), before, after, LINES.line, **parts)


def changes(view: TurnView) -> list[tuple[str, str]]:
    return [(one.name, one.change) for frame in view.functions for one in frame.variables if one.change]


def test_first_turn_shows_where_it_waits_and_for_what() -> None:
    [first] = states()
    view = viewed(1, None, first)
    assert (view.line, view.awaits, view.missing) == (2, "task charge", "")
    assert view.source == 'let total = await Task.run("charge", inputs.cents)'
    assert made_numbers(None, first) == range(1)
    assert first.promises == (PromiseState(0, "task", "charge"),)


def test_turn_shows_its_functions_with_what_it_added_and_received() -> None:
    first, second = states({"p0": Ok(7)})
    view = viewed(2, first, second, outcomes=[(0, Ok(7))])
    assert [(frame.function, frame.line) for frame in view.functions] == [("ask", 9), ("main", 4)]
    inner, outer = view.functions
    assert [(one.name, one.change) for one in inner.variables] == [("least", "added")]
    assert {one.name: one.now.value for one in outer.variables if one.now} == {
        "ask": "<function ask>", "total": 7, "mail": "<task mail>",
    }  # fmt: skip
    [received] = view.received
    assert (received.kind, received.name, received.result) == ("task", "charge", bounded(7))
    assert view.asked_count == 2


def test_promises_that_nothing_waits_for_yet_are_known() -> None:
    _, second = states({"p0": Ok(7)})
    assert [(one.number, one.kind, one.name) for one in second.promises] == [
        (1, "task", "mail"), (2, "signal", "answer"),
    ]  # fmt: skip


def test_changed_and_dropped_variables_show_what_they_were() -> None:
    before = MachineState((FrameState("main", 3, {"total": 3, "old": [1], "same": {"a": 1}}),), None, 0)
    after = MachineState((FrameState("main", 5, {"total": 10, "same": {"a": 1}, "new": None}),), None, 0)
    view = viewed(2, before, after)
    assert changes(view) == [("total", "changed"), ("new", "added"), ("old", "dropped")]
    total, same, _, old = view.functions[0].variables
    assert (total.before, total.now) == (bounded(3), bounded(10))
    assert (same.change, same.before) == ("", None)
    assert (old.before, old.now) == (bounded([1]), None)
    assert view.changed("total")
    assert not view.changed("same")


def test_variables_of_another_function_at_the_same_depth_are_not_compared() -> None:
    before = MachineState((FrameState("main", 3, {}), FrameState("ask", 9, {"x": 1})), None, 0)
    after = MachineState((FrameState("main", 4, {}), FrameState("pay", 20, {"x": 2})), None, 0)
    assert changes(viewed(2, before, after)) == [("x", "added")]


def test_turn_without_its_predecessor_claims_no_changes() -> None:
    _, second = states({"p0": Ok(7)})
    view = viewed(8, None, second)
    assert (changes(view), view.asked_count, view.missing) == ([], 0, NO_PREDECESSOR)
    assert view.functions[0].variables[0].name == "least"


def test_received_errors_have_no_traceback_and_unknown_outcomes_say_so() -> None:
    first, second = states({"p0": Ok(7)})
    error = ErrorValue("TASK_FAILED", "declined", "CardError", traceback="Traceback …")
    view = viewed(2, first, second, outcomes=[(0, Err(error)), (5, None)])
    assert [one.error for one in view.received] == [
        {"code": "TASK_FAILED", "message": "declined", "type": "CardError"}, None,
    ]  # fmt: skip
    assert view.received[1].result is None


def test_large_values_are_cut_and_say_their_size() -> None:
    cut = bounded("x" * MOST_BYTES)
    assert cut.size == MOST_BYTES + 2
    assert cut.value.startswith('"xxx')
    assert len(cut.value) < MOST_BYTES
    assert bounded([1, {"a": "b"}]).size == 0


def test_deep_recursions_and_many_promises_are_bounded() -> None:
    deep = MachineState(tuple(FrameState("f", line, {}) for line in range(1, 300)), None, 500)
    shown = frame_views(None, deep, lambda line: "")
    assert (len(shown), shown[0].line) == (50, 299)
    view = viewed(1, None, deep, made=[MadePromise(number, "task", "t") for number in range(500)])
    assert (len(view.asked), view.asked_count) == (100, 500)


async def checkout(cents: int) -> int:
    total = cents

    async def pay(times: int) -> int:
        label = "x" * times
        paid = await add(total, times)
        return paid + len(label)

    paid = await pay(2)
    return total + paid


def test_python_workflows_show_their_async_functions_and_variables() -> None:
    program = compile_workflow(checkout)
    machine = PythonMachine.start(program, 7, {"executionId": "e"}, now=1.0)
    state = PythonMachine.loads(program, machine.dumps()).state()
    first = checkout.__code__.co_firstlineno
    assert [(frame.function, frame.line - first) for frame in state.frames] == [("checkout", 8), ("pay", 5)]
    assert state.frames[0].variables["total"] == 7
    assert state.frames[1].variables["label"] == "xx"
    assert [(one.kind, one.name) for one in state.promises] == [("task", "add")]


@pytest.mark.parametrize("number", [1, 2])
def test_the_last_stop_of_a_script_in_a_call_names_the_callers_line(number: int) -> None:
    found = states({"p0": Ok(7)})[number - 1]
    assert found.line == (2, 9)[number - 1]

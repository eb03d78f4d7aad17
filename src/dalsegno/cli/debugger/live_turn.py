"""``debug --live``: one recorded turn again in this process, and a comparison with what was recorded.

The store is read before the turn runs, and nothing is written to it. Tasks, timers and children are only requested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.cli.debugger.display import TurnDisplay, error_text, value_text
from dalsegno.cli.debugger.live_python import TurnDebugger
from dalsegno.cli.debugger.live_script import ScriptStepper
from dalsegno.core.scripts.turn import describe
from dalsegno.core.scripts.turn_view import TurnSummary, bounded, error_view
from dalsegno.engine.journal.turn_again import TurnMaterial
from dalsegno.engine.scripts.advance import follow
from dalsegno.engine.scripts.programs import RunningMachine
from dalsegno.errors import Conflict
from dalsegno.lang import Machine
from dalsegno.lang.python import PythonMachine
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    Effect,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    display_name,
)

MOST_ASKED = 30


def run_again(
    material: TurnMaterial,
    display: TurnDisplay,
    read_command: Callable[[], str | None],
    read_blob: Callable[[str], bytes],
) -> bool:
    """Run the turn under a debugger. Return whether it came to its end."""
    machine = material.begin()
    display.note(f"turn {material.turn.number} again, in this process: nothing is stored, and no task runs")
    if isinstance(machine, PythonMachine):
        was_left = _in_pdb(machine, material)
    elif isinstance(machine, Machine):
        stepper = ScriptStepper(machine, material.job, display, read_command, read_blob)
        stepper.run_turn()
        was_left = stepper.was_left
    else:
        raise Conflict("this kind of program has no turns")
    if was_left:
        display.note("left before the end of the turn")
        return False
    _report(machine, material.turn, display)
    return True


def _in_pdb(machine: PythonMachine, material: TurnMaterial) -> bool:
    debugger = TurnDebugger(machine)

    def run() -> None:
        if machine.status == "paused":
            machine.resume({}, now=material.job.now)
        while follow(machine, material.job, None):
            pass

    debugger.run_turn(run)
    return debugger.was_left


def _report(machine: RunningMachine, turn: TurnSummary, display: TurnDisplay) -> None:
    """Print where the turn stopped and what it asked for, and whether the recorded one stopped there, too."""
    for level, message in machine.take_logs():
        display.note(f"  log       {level}: {message}", "")
    effects = machine.take_effects()
    for effect in effects[:MOST_ASKED]:
        display.note(f"  asked     {_asked(effect)}", "")
    if len(effects) > MOST_ASKED:
        display.note(f"  and {len(effects) - MOST_ASKED:,} more")
    if machine.status == "suspended":
        awaits = describe(machine.awaiting) if machine.awaiting is not None else ""
        display.note(f"  then      waits for {awaits} in line {machine.line}", "")
        is_same = turn.state == "suspended" and (turn.line, turn.awaits) == (machine.line, awaits)
    elif machine.status == "completed":
        display.note(f"  result    {value_text(bounded(machine.result))}", "green")
        is_same = turn.state == "completed"
    else:
        error = error_view(machine.error) if machine.error is not None else {}
        display.note(f"  error     {error_text(error)}", "red")
        is_same = turn.state in ("failed", "cancelled")
    if is_same:
        display.note("it ended as it was recorded")
    else:
        display.note(f"it ended differently: the recorded turn {_recorded(turn)}", "yellow")


def _recorded(turn: TurnSummary) -> str:
    if turn.state == "suspended":
        return f"waited for {turn.awaits} in line {turn.line}"
    return {"completed": "completed the execution", "failed": "failed"}.get(turn.state, "was cancelled")


def _asked(effect: Effect) -> str:
    match effect:
        case StartTask(name=name, inputs=inputs):
            return f"task {display_name(name)}  {_json(inputs)}"
        case StartWorkflow(name=name, inputs=inputs, detached=detached):
            return f"workflow {name}{' (detached)' if detached else ''}  {_json(inputs)}"
        case StartTimer():
            return "timer"
        case AwaitSignal(name=name):
            return f"signal {name}"
        case Cancel(kind=kind):
            return f"cancellation of a {kind}"
        case SetTags(tags=tags):
            return f"tags  {_json(dict(tags))}"
        case _:
            return type(effect).__name__


def _json(value: Any) -> str:
    return value_text(bounded(value))

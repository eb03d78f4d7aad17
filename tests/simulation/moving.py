"""Moves machines of random programs to edited versions of their programs, and compares them with an oracle.

The oracle runs the new version from the start, with the same outcomes. Where it once waits in the same state, after the
same effects, the moved machine must wait at the same line and go on to the same end. Otherwise it may be refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from msgspec.structs import replace

from dalsegno.lang import (
    Awaitable,
    Effect,
    Err,
    ErrorValue,
    FlowProgram,
    Machine,
    Ok,
    Outcome,
    StartTask,
    StartWorkflow,
)
from dalsegno.lang.flow.snapshot.moving import ScriptMover, ScriptVersion
from dalsegno.lang.python import PythonMachine, PythonProgram
from dalsegno.lang.python.snapshot.moving import WorkflowMover, WorkflowVersion
from dalsegno.lang.runtime.movement import Movement
from dalsegno.testing.simulation.programs.generator import draw_program
from dalsegno.testing.simulation.programs.program import (
    MAIN,
    Attempt,
    Await,
    Begin,
    Body,
    Choose,
    Fire,
    Inner,
    Program,
    Repeat,
    Statement,
    Timer,
    Work,
)
from dalsegno.testing.simulation.programs.scenario import ScriptScenario, work_result
from dalsegno.testing.simulation.programs.sources import programs_of

NOW = 1_000_000.0
MOST_STOPS = 8
STRANGE = frozenset(("ReferenceError", "NameError", "UnboundLocalError", "INTERNAL_ERROR", "IndexError"))
"""Errors that no random program has by itself."""

AnyMachine = Machine | PythonMachine
AnyProgram = FlowProgram | PythonProgram


def compiled(program: Program, language: Any) -> AnyProgram:
    """Compile the main workflow; its children are answered like tasks."""
    alone = replace(program, workflows={MAIN: program.workflows[MAIN]})
    return programs_of(ScriptScenario(alone, language=language))[0]


def outcome_of(effect: Effect) -> Outcome:
    """Return an outcome that depends on nothing but what the effect asks for."""
    match effect:
        case StartTask(inputs=inputs, options=options):
            retries = options.get("retry", {}).get("max_attempts", 1) - 1
            if inputs.get("fails", 0) > retries:
                return Err(ErrorValue(f"W{inputs['site']}", "programmed"))
            return Ok(work_result(inputs["site"], inputs["v"], int(inputs.get("pad", 0))))
        case StartWorkflow(name=name, inputs=inputs):
            return Ok([name, inputs])
    return Ok(None)


@dataclass
class Run:
    """A machine and all that it has asked for."""

    machine: AnyMachine
    effects: list[Effect] = field(default_factory=list)
    known: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.take()

    def take(self) -> None:
        for effect in self.machine.take_effects():
            self.effects.append(effect)
            if getattr(effect, "id", None) is not None:
                self.known[effect.id] = outcome_of(effect)

    def go_on(self) -> bool:
        """Answer what it waits for; return False if it has ended."""
        if self.machine.status != "suspended" or self.machine.awaiting is None:
            return False
        wanted = sorted(_leaves(self.machine.awaiting), key=lambda name: int(name[1:]))
        self.machine.resume({name: self.known[name] for name in wanted}, now=NOW)
        self.take()
        return True

    def end(self) -> tuple[Any, ...]:
        for _ in range(500):
            if not self.go_on():
                break
        error = self.machine.error
        return (self.machine.status, self.machine.result, error and error.code, self.effects)

    def state(self) -> tuple[Any, ...]:
        """Return what it has done and what it knows, wherever it waits."""
        return (
            list(self.effects),
            sorted(_leaves(self.machine.awaiting or Awaitable("all"))),
            self.machine.variables(),
        )


def _leaves(awaited: Awaitable) -> Iterator[str]:
    if awaited.id:
        yield awaited.id
    for item in awaited.items:
        yield from _leaves(item)


def started(program: AnyProgram) -> Run:
    if isinstance(program, FlowProgram):
        return Run(Machine.start(program, {}, now=NOW))
    return Run(PythonMachine.start(program, {"inputs": {}}, now=NOW))


def loaded(program: AnyProgram, data: bytes, run: Run) -> Run:
    kind: Any = Machine if isinstance(program, FlowProgram) else PythonMachine
    machine: AnyMachine = kind.loads(program, data)
    return Run(machine, list(run.effects), dict(run.known))


AnyMover = ScriptMover | WorkflowMover


class Version:
    """A version of a program, and what moving needs of it."""

    def __init__(self, program: AnyProgram) -> None:
        self.program = program
        is_script = isinstance(program, FlowProgram)
        self.parts: Any = ScriptVersion(program) if is_script else WorkflowVersion(program)
        self._mover: Any = ScriptMover if is_script else WorkflowMover

    def mover_to(self, new: Version) -> AnyMover:
        found: AnyMover = self._mover(self.parts, new.parts)
        return found


# -- edits ---------------------------------------------------------------------------------------------------


Edit = Callable[[Random, list[Statement], int], None]


def _insert(random: Random, body: list[Statement], at: int) -> None:
    added: Statement = random.choice(
        (Begin("note", Timer(0.2)), Await(Timer(0.2)), Fire(Work(901)), Await(Work(902)))
    )
    body.insert(at + random.choice((0, 1)), added)


def _wrap(random: Random, body: list[Statement], at: int) -> None:
    inner = (body[at],)
    body[at] = random.choice(
        (
            Choose(inner, ()),
            Choose((), inner),
            Attempt(inner, ()),
            Attempt(inner, None, ()),
            Repeat(1, inner),
            Inner(inner),
        )
    )


def _unwrap(random: Random, body: list[Statement], at: int) -> None:
    inner = body[at]
    if isinstance(inner, Repeat | Inner | Attempt):
        body[at : at + 1] = inner.body


def _duplicate(random: Random, body: list[Statement], at: int) -> None:
    body.insert(at, body[at])


def _delete(random: Random, body: list[Statement], at: int) -> None:
    del body[at]


def _swap(random: Random, body: list[Statement], at: int) -> None:
    body[at : at + 2] = body[at : at + 2][::-1]


def _change(random: Random, body: list[Statement], at: int) -> None:
    found = body[at]
    if isinstance(found, Await) and isinstance(found.promise, Work):
        body[at] = Await(replace(found.promise, site=903))


EDITS: tuple[Edit, ...] = (_insert, _insert, _wrap, _unwrap, _duplicate, _delete, _swap, _change)


def edited(random: Random, body: Body) -> Body:
    """Return the statements with an edit, here or deeper inside."""
    statements = list(body)
    at = random.randrange(len(statements)) if statements else 0
    if not statements:
        return (Await(Timer(0.2)),)
    found = statements[at]
    if isinstance(found, Repeat | Inner) and random.random() < 0.6:
        statements[at] = replace(found, body=edited(random, found.body))
    elif isinstance(found, Choose) and random.random() < 0.6:
        side = random.choice(("even", "odd"))
        statements[at] = replace(found, **{side: edited(random, getattr(found, side))})
    elif isinstance(found, Attempt) and random.random() < 0.6:
        parts = [name for name in ("body", "caught", "lastly") if getattr(found, name) is not None]
        side = random.choice(parts)
        statements[at] = replace(found, **{side: edited(random, getattr(found, side))})
    elif any(isinstance(each, Begin) for each in statements[at : at + 2]):
        _insert(random, statements, at)  # what makes a promise that is named later stays where it is
    else:
        random.choice(EDITS)(random, statements, at)
    return tuple(statements)


def edited_program(random: Random, program: Program) -> Program:
    body = program.workflows[MAIN]
    for _ in range(random.choice((1, 1, 2))):
        body = edited(random, body)
    return replace(program, workflows={**program.workflows, MAIN: body})


# -- the comparison ------------------------------------------------------------------------------------------


def check(seed: int, language: str, seen: Counter[str]) -> None:
    """Move the machine of a random program at its stops to an edited version, of each third also to the same code."""
    random = Random(seed)
    program = draw_program(random)
    old = Version(compiled(program, language))
    new = Version(compiled(edited_program(random, program), language))
    again = Version(compiled(_with_timeout(program), language)) if seed % 3 == 0 else None
    forward = old.mover_to(new)
    oracle = list(_stops(new.program))
    run = started(old.program)
    for stop in range(MOST_STOPS):
        if run.machine.status != "suspended":
            return
        place = f"seed {seed}, stop {stop}, {language}"
        data = run.machine.dumps()
        if again is not None:
            _check_same(data, old, again, run, place)
        _check_edited(forward.move(data), new.program, run, oracle, seen, place)
        run.go_on()


def _check_same(data: bytes, old: Version, again: Version, run: Run, place: str) -> None:
    movement = old.mover_to(again).move(data)
    assert movement.maps, (place, [str(reason) for reason in movement.reasons])
    ending = loaded(old.program, data, run).end()
    assert loaded(again.program, movement.data, run).end() == ending, place
    assert again.mover_to(old).move(movement.data).data == data, place


def _with_timeout(program: Program) -> Program:
    """Return the same program as another version: only its front matter differs."""
    return replace(program, timeout=77.0 if program.timeout is None else None)


def _stops(program: AnyProgram) -> Iterator[tuple[tuple[Any, ...], int, bytes, Run]]:
    """Yield the states in which a run from the start waits, with their lines."""
    run = started(program)
    for _ in range(5 * MOST_STOPS):
        if run.machine.status != "suspended":
            return
        data = run.machine.dumps()
        stored = loaded(program, data, run)
        yield stored.state(), stored.machine.line, data, stored
        run.go_on()


def _check_edited(
    movement: Movement, new: AnyProgram, run: Run, oracle: list[Any], seen: Counter[str], place: str
) -> None:
    if not movement.maps:
        seen["refused"] += 1
        assert all(reason.message for reason in movement.reasons)
        return
    seen["moved"] += 1
    moved = loaded(new, movement.data, run)
    line, state = moved.machine.line, moved.state()
    assert movement.frames[-1].new_line == line, place
    same = [(there, kept, at) for found, there, kept, at in oracle if found == state]
    ended = moved.end()
    assert ended[2] not in STRANGE, (place, ended)
    if same:
        seen["compared"] += 1
        assert line in [there for there, _, _ in same], (place, line, [there for there, _, _ in same])
        _, kept, at = next(found for found in same if found[0] == line)
        assert ended == loaded(new, kept, at).end(), place

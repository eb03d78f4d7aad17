"""Smaller programs: without a statement, with an inner statement in place of the outer one, with simpler promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from dalsegno.testing.simulation.programs.program import (
    MAIN,
    Attempt,
    Await,
    Begin,
    Body,
    Choose,
    Fan,
    Group,
    Inner,
    Program,
    Promise,
    Repeat,
    Saved,
    Statement,
    Work,
    bodies_of,
    promises,
    statements,
)
from dalsegno.testing.simulation.programs.scenario import ScriptScenario, most_signals

PLAINER: dict[str, Any] = {"bystander": False, "news": False, "concurrency": 4, "language": "flow"}


def simpler_scripts(scenario: ScriptScenario) -> Iterator[ScriptScenario]:
    for field, value in PLAINER.items():
        if getattr(scenario, field) != value:
            yield replace(scenario, **{field: value})
    for program in _programs(scenario.program):
        if _is_sound(program):
            yield replace(scenario, program=program)
    if any(signal.after for signal in scenario.signals):
        yield replace(scenario, signals=tuple(replace(signal, after=0.0) for signal in scenario.signals))
    needed = most_signals(scenario.program)
    kept = tuple(signal for signal in scenario.signals if signal.name in needed)
    if kept != scenario.signals:
        yield replace(scenario, signals=kept)


def _programs(program: Program) -> Iterator[Program]:
    if program.timeout is not None:
        yield replace(program, timeout=None)
    called = {getattr(each, "workflow", "") for body in program.workflows.values() for each in _all_of(body)}
    for name in program.workflows:
        if name != MAIN and name not in called:
            yield replace(
                program, workflows={key: body for key, body in program.workflows.items() if key != name}
            )
    for name, body in program.workflows.items():
        for smaller in _bodies(body):
            yield replace(program, workflows={**program.workflows, name: smaller})


def _all_of(body: Body) -> Iterator[Any]:
    yield from statements(body)
    yield from promises(body)


def _is_sound(program: Program) -> bool:
    """Return True if every named variable has a promise, and every workflow exists."""
    for body in program.workflows.values():
        given = {each.variable for each in statements(body) if isinstance(each, Begin)}
        named = {each.variable for each in promises(body) if isinstance(each, Saved)}
        called = {getattr(each, "workflow", MAIN) for each in _all_of(body)}
        if not named <= given or not called <= set(program.workflows):
            return False
    return True


def _bodies(body: Body) -> Iterator[Body]:
    for place, statement in enumerate(body):
        before, after = body[:place], body[place + 1 :]
        yield before + after
        for inner in bodies_of(statement):
            yield before + inner + after
        for smaller in _smaller(statement):
            yield (*before, smaller, *after)


def _smaller(statement: Statement) -> Iterator[Statement]:
    match statement:
        case Repeat(times, body):
            if times > 1:
                yield replace(statement, times=times - 1)
            yield from (replace(statement, body=smaller) for smaller in _bodies(body))
        case Inner(body):
            yield from (replace(statement, body=smaller) for smaller in _bodies(body))
        case Choose(even, odd):
            yield from (replace(statement, even=smaller) for smaller in _bodies(even))
            yield from (replace(statement, odd=smaller) for smaller in _bodies(odd))
        case Attempt(body, caught, lastly):
            yield from (replace(statement, body=smaller) for smaller in _bodies(body))
            if caught is not None:
                yield from (replace(statement, caught=smaller) for smaller in _bodies(caught))
            if lastly is not None:
                yield from (replace(statement, lastly=smaller) for smaller in _bodies(lastly))
                if caught is not None:
                    yield replace(statement, lastly=None)
        case Await(promise) | Begin(promise=promise):
            yield from (replace(statement, promise=smaller) for smaller in _plainer(promise))
        case _:
            return


def _plainer(promise: Promise) -> Iterator[Promise]:
    match promise:
        case Group(items=items):
            yield from items
            for place, item in enumerate(items):
                if len(items) > 1:
                    yield replace(promise, items=items[:place] + items[place + 1 :])
                for smaller in _plainer(item):
                    yield replace(promise, items=(*items[:place], smaller, *items[place + 1 :]))
        case Fan(count=count, work=work):
            if count > 1:
                yield replace(promise, count=count // 2)
            yield from (replace(promise, work=smaller) for smaller in _plainer_work(work))
        case Work():
            yield from _plainer_work(promise)
        case _:
            return


def _plainer_work(work: Work) -> Iterator[Work]:
    for field in ("pad", "delay", "seconds", "pause"):
        if getattr(work, field):
            yield replace(work, **{field: type(getattr(work, field))(0)})
    if work.fails or work.retries:
        yield replace(work, fails=0, retries=0)

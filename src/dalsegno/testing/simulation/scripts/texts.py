"""From a scenario to compiled programs, in the language it asks for."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from functools import lru_cache
from types import FunctionType
from typing import Any

from dalsegno.engine.workflows import Workflows
from dalsegno.lang import FlowProgram
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import DurableTask, PythonProgram, compile_workflow
from dalsegno.lang.python.verbs import first, gather, race, run, signal, sleep, start
from dalsegno.testing.simulation.scripts.flow_text import flow_sources
from dalsegno.testing.simulation.scripts.program import MAIN, Program
from dalsegno.testing.simulation.scripts.python_text import python_source
from dalsegno.testing.simulation.scripts.scenario import ScriptScenario
from dalsegno.testing.simulation.scripts.tasks import NAME

FILE = "<simulated workflows>"
GROUPS = frozenset(("ExceptionGroup", "BaseExceptionGroup"))


class Thrown(Exception):
    """What a simulated Python workflow raises."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def told(value: Any) -> Any:
    """An item of a gather that collects exceptions, in the form that scripts have."""
    if isinstance(value, BaseException):
        return {"status": "rejected", "reason": code_of(value)}
    return {"status": "fulfilled", "value": value}


def code_of(error: BaseException) -> str:
    return plain_code(str(getattr(error, "code", type(error).__name__)))


def plain_code(code: str) -> str:
    """What Python calls a group of exceptions, scripts call an aggregate."""
    return "AggregateError" if code in GROUPS else code


async def _work(payload: Any) -> Any:
    raise AssertionError(f"the simulated engine has its own task of this name; called with {payload!r}")


SURROUNDINGS: Mapping[str, Any] = {
    "Thrown": Thrown,
    "code_of": code_of,
    "first": first,
    "gather": gather,
    "race": race,
    "run": run,
    "signal": signal,
    "sleep": sleep,
    "start": start,
    "told": told,
    "work": DurableTask(_work, NAME),
}


def text_of(scenario: ScriptScenario) -> str:
    if scenario.language == "python":
        return python_source(scenario.program)
    return "\n".join(flow_sources(scenario.program).values())


def programs_of(scenario: ScriptScenario) -> list[FlowProgram | PythonProgram]:
    if scenario.language == "flow":
        return [_compiled(name, source) for name, source in flow_sources(scenario.program).items()]
    return [program for program, _ in _python_programs(scenario.program)]


def workflows_of(scenario: ScriptScenario) -> Workflows:
    """What the simulated processes offer of their own: the running code of Python workflows."""
    found = Workflows()
    if scenario.language == "python":
        for program, function in _python_programs(scenario.program):
            found.register(program, function)
    return found


@lru_cache(maxsize=64)
def _compiled(name: str, source: str) -> FlowProgram:
    return compile_script(source, name)


def _python_programs(program: Program) -> tuple[tuple[PythonProgram, FunctionType], ...]:
    return _python_compiled(python_source(program), tuple(program.workflows), program.timeout)


@lru_cache(maxsize=8)
def _python_compiled(
    source: str, names: tuple[str, ...], timeout: float | None
) -> tuple[tuple[PythonProgram, FunctionType], ...]:
    """``timeout``: of the main workflow."""
    found = []
    for function in _functions(source, names):
        limits = {"timeout": timeout} if function.__name__ == MAIN and timeout is not None else {}
        found.append((compile_workflow(function, front_matter=limits), function))
    return tuple(found)


def _functions(source: str, names: tuple[str, ...]) -> tuple[FunctionType, ...]:
    """Made from text, with that text where tracebacks and the compiler look for it."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    module: dict[str, Any] = {"__name__": __name__, **SURROUNDINGS}
    exec(compile(source, FILE, "exec"), module)  # noqa: S102 - its own text
    return tuple(module[name] for name in names)

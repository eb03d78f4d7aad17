"""Source texts of a program as scripts and as Python workflows, and their compilation."""

from __future__ import annotations

import linecache
import textwrap
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from types import FunctionType
from typing import Any

from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.lang import FlowProgram
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import DurableTask, PythonProgram, compile_workflow
from dalsegno.lang.python.api import first, gather, race, run, signal, sleep, start
from dalsegno.testing.simulation.programs.program import (
    MAIN,
    Attempt,
    Await,
    Begin,
    Body,
    Child,
    Choose,
    Detach,
    Fan,
    Fire,
    Given,
    Group,
    GroupKind,
    Inner,
    Program,
    Promise,
    Repeat,
    Saved,
    Signal,
    Statement,
    Throw,
    Timer,
    Work,
)
from dalsegno.testing.simulation.programs.scenario import NAME, ScriptScenario

FLOW_JOINS: dict[GroupKind, str] = {
    "all": "Promise.all",
    "any": "Promise.any",
    "race": "Promise.race",
    "all_settled": "Promise.allSettled",
}
FLOW_GIVEN: dict[Given, str] = {
    "count": "seen.length",
    "last": "(seen.length > 0 ? seen[seen.length - 1] : 0)",
    "index": "index",
}
STATUS_OF = "(r) => r.status == 'rejected' ? {status: r.status, reason: r.reason.code} : r"


def flow_sources(program: Program) -> dict[str, str]:
    """Return one script per workflow, by name."""
    return {name: _workflow(program, name, body) for name, body in program.workflows.items()}


def _workflow(program: Program, name: str, body: Body) -> str:
    front = ""
    if name == MAIN and program.timeout is not None:
        front = f"```\ntimeout: {program.timeout}\n```\n"
    first = "let seen = []" if name == MAIN else "let seen = [inputs.v]"
    return f"{front}workflow {name}(inputs) {{\n  {first}\n{_block(body)}  return seen\n}}\n"


def _block(body: Body) -> str:
    return textwrap.indent("".join(_statement(statement) for statement in body), "  ")


def _statement(statement: Statement) -> str:
    match statement:
        case Await(Group(kind="all_settled") | Fan(kind="all_settled") as settled):
            return f"seen.push((await {_promise(settled)}).map({STATUS_OF}))\n"
        case Await(promise):
            return f"seen.push(await {_promise(promise)})\n"
        case Begin(variable, promise):
            return f"let {variable} = {_promise(promise)}\n"
        case Fire(promise):
            return f"{_promise(promise)}\n"
        case Detach(workflow):
            return f'Workflow.start("{workflow}", {{v: seen.length}})\n'
        case Repeat(times, body):
            return f"for (let i = 0; i < {times}; i++) {{\n{_block(body)}}}\n"
        case Choose(even, odd):
            return f"if (seen.length % 2 == 0) {{\n{_block(even)}}} else {{\n{_block(odd)}}}\n"
        case Attempt():
            return _attempt(statement)
        case Throw(site):
            return f'throw {{code: "T{site}", message: "thrown at {site}"}}\n'
        case Inner(body):
            return f"(() => {{\n{_block(body)}}})()\n"


def _attempt(statement: Attempt) -> str:
    text = f"try {{\n{_block(statement.body)}}}"
    if statement.caught is not None:
        text += f" catch (e) {{\n  seen.push(e.code)\n{_block(statement.caught)}}}"
    if statement.lastly is not None:
        text += f' finally {{\n  seen.push("finally")\n{_block(statement.lastly)}}}'
    return text + "\n"


def _promise(promise: Promise) -> str:
    match promise:
        case Work():
            return _flow_text_work(promise)
        case Timer(seconds):
            return f"Timer.delay({seconds:g})"
        case Signal(name, None):
            return f'Signal.next("{name}")'
        case Signal(name, timeout):
            return f'Signal.when("{name}", {{timeout: {timeout:g}}})'
        case Child(workflow, given):
            return f'Workflow.run("{workflow}", {{v: {FLOW_GIVEN[given]}}})'
        case Saved(variable):
            return variable
        case Fan(kind, count, work):
            numbers = ", ".join(str(number) for number in range(count))
            return f"{FLOW_JOINS[kind]}([{numbers}].map((index) => {_flow_text_work(work)}))"
        case Group(kind, items, cancel):
            options = ", {cancel: true}" if cancel else ""
            return f"{FLOW_JOINS[kind]}([{', '.join(_promise(item) for item in items)}]{options})"


def _flow_text_work(work: Work) -> str:
    fields = [f"site: {work.site}", f"v: {FLOW_GIVEN[work.given]}"]
    fields += [
        f"{name}: {getattr(work, name):g}" for name in ("fails", "seconds", "pad") if getattr(work, name)
    ]
    options = []
    if work.retries:
        options.append(
            f"retry: {{max_attempts: {work.retries + 1}, initial_delay: {work.pause:g}, factor: 1, jitter: 0}}"
        )
    if work.delay:
        options.append(f"delay: {work.delay:g}")
    task = f"Task.with({{{', '.join(options)}}})" if options else "Task"
    return f'{task}.run("work", {{{", ".join(fields)}}})'


PYTHON_JOINS: dict[GroupKind, str] = {
    "all": "gather",
    "any": "first",
    "race": "race",
    "all_settled": "gather",
}
PYTHON_GIVEN: dict[Given, str] = {
    "count": "len(seen)",
    "last": "(seen[-1] if seen else 0)",
    "index": "index",
}


def python_source(program: Program) -> str:
    """Return one module with a function per workflow. `_functions` adds its globals."""
    writer = _Writer()
    return "\n\n".join(writer.workflow(name, body) for name, body in program.workflows.items())


class _Writer:
    def __init__(self) -> None:
        self._names = count(1)

    def workflow(self, name: str, body: Body) -> str:
        first = "seen = []" if name == MAIN else 'seen = [inputs["v"]]'
        return f"async def {name}(inputs):\n    {first}\n{self._block(body)}    return seen\n"

    def _block(self, body: Body) -> str:
        text = "".join(self._statement(statement) for statement in body) or "pass\n"
        return textwrap.indent(text, "    ")

    def _statement(self, statement: Statement) -> str:
        match statement:
            case Await(Group(kind="all_settled") | Fan(kind="all_settled") as settled):
                return f"seen.append([told(each) for each in await {_python_text_promise(settled)}])\n"
            case Await(promise):
                return f"seen.append(await {_python_text_promise(promise)})\n"
            case Begin(variable, promise):
                return f"{variable} = {_python_text_promise(promise)}\n"
            case Fire(promise):
                return f"{_python_text_promise(promise)}\n"
            case Detach(workflow):
                return f'start("{workflow}", {{"v": len(seen)}})\n'
            case Repeat(times, body):
                return f"for i{next(self._names)} in range({times}):\n{self._block(body)}"
            case Choose(even, odd):
                return f"if len(seen) % 2 == 0:\n{self._block(even)}else:\n{self._block(odd)}"
            case Attempt():
                return self._attempt(statement)
            case Throw(site):
                return f'raise Thrown("T{site}")\n'
            case Inner(body):
                name = f"inner{next(self._names)}"
                return f"async def {name}():\n{self._block(body)}await {name}()\n"

    def _attempt(self, statement: Attempt) -> str:
        text = f"try:\n{self._block(statement.body)}"
        if statement.caught is not None:
            text += f"except Exception as e:\n    seen.append(code_of(e))\n{self._block(statement.caught)}"
        if statement.lastly is not None:
            text += f'finally:\n    seen.append("finally")\n{self._block(statement.lastly)}'
        return text


def _python_text_promise(promise: Promise) -> str:
    match promise:
        case Work():
            return _python_text_work(promise)
        case Timer(seconds):
            return f"sleep({seconds:g})"
        case Signal(name, None):
            return f'signal("{name}")'
        case Signal(name, timeout):
            return f'signal("{name}", timeout={timeout:g})'
        case Child(workflow, given):
            return f'run("{workflow}", {{"v": {PYTHON_GIVEN[given]}}})'
        case Saved(variable):
            return variable
        case Fan(kind, times, work):
            return _join(kind, f"*[{_python_text_work(work)} for index in range({times})]")
        case Group(kind, items):
            return _join(kind, ", ".join(_python_text_promise(item) for item in items))


def _join(kind: GroupKind, items: str) -> str:
    option = ", return_exceptions=True" if kind == "all_settled" else ""
    return f"{PYTHON_JOINS[kind]}({items}{option})"


def _python_text_work(work: Work) -> str:
    fields = [f'"site": {work.site}', f'"v": {PYTHON_GIVEN[work.given]}']
    fields += [
        f'"{name}": {getattr(work, name):g}' for name in ("fails", "seconds", "pad") if getattr(work, name)
    ]
    options = []
    if work.retries:
        attempts = work.retries + 1
        options.append(
            f'retry={{"max_attempts": {attempts}, "initial_delay": {work.pause:g}, "factor": 1, "jitter": 0}}'
        )
    if work.delay:
        options.append(f"delay={work.delay:g}")
    task = f"work.with_options({', '.join(options)})" if options else "work"
    return f"{task}({{{', '.join(fields)}}})"


FILE = "<simulated workflows>"
GROUPS = frozenset(("ExceptionGroup", "BaseExceptionGroup"))


class Thrown(Exception):
    """The exception that a simulated Python workflow raises."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def told(value: Any) -> Any:
    """Convert an item of a gather that collects exceptions to the form that scripts have."""
    if isinstance(value, BaseException):
        return {"status": "rejected", "reason": code_of(value)}
    return {"status": "fulfilled", "value": value}


def code_of(error: BaseException) -> str:
    return plain_code(str(getattr(error, "code", type(error).__name__)))


def plain_code(code: str) -> str:
    """Convert Python's name of an exception group to that of scripts, an aggregate."""
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
    """Return the workflows that the simulated processes offer: the running code of Python workflows."""
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
    """Create functions from text, registered for tracebacks and the compiler."""
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    module: dict[str, Any] = {"__name__": __name__, **SURROUNDINGS}
    exec(compile(source, FILE, "exec"), module)  # noqa: S102 - its own text
    return tuple(module[name] for name in names)

"""A program written down as Python workflows."""

from __future__ import annotations

import textwrap
from itertools import count

from dalsegno.testing.simulation.scripts.program import (
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

JOINS: dict[GroupKind, str] = {"all": "gather", "any": "first", "race": "race", "all_settled": "gather"}
GIVEN: dict[Given, str] = {
    "count": "len(seen)",
    "last": "(seen[-1] if seen else 0)",
    "index": "index",
}


def python_source(program: Program) -> str:
    """One module with a function per workflow; what it uses comes from its surroundings (see ``texts``)."""
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
                return f"seen.append([told(each) for each in await {_promise(settled)}])\n"
            case Await(promise):
                return f"seen.append(await {_promise(promise)})\n"
            case Begin(variable, promise):
                return f"{variable} = {_promise(promise)}\n"
            case Fire(promise):
                return f"{_promise(promise)}\n"
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


def _promise(promise: Promise) -> str:
    match promise:
        case Work():
            return _work(promise)
        case Timer(seconds):
            return f"sleep({seconds:g})"
        case Signal(name, None):
            return f'signal("{name}")'
        case Signal(name, timeout):
            return f'signal("{name}", timeout={timeout:g})'
        case Child(workflow, given):
            return f'run("{workflow}", {{"v": {GIVEN[given]}}})'
        case Saved(variable):
            return variable
        case Fan(kind, times, work):
            return _join(kind, f"*[{_work(work)} for index in range({times})]")
        case Group(kind, items):
            return _join(kind, ", ".join(_promise(item) for item in items))


def _join(kind: GroupKind, items: str) -> str:
    option = ", return_exceptions=True" if kind == "all_settled" else ""
    return f"{JOINS[kind]}({items}{option})"


def _work(work: Work) -> str:
    fields = [f'"site": {work.site}', f'"v": {GIVEN[work.given]}']
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

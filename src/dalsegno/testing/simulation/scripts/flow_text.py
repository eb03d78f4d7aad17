"""A program written down as scripts."""

from __future__ import annotations

import textwrap

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

JOINS: dict[GroupKind, str] = {
    "all": "Promise.all",
    "any": "Promise.any",
    "race": "Promise.race",
    "all_settled": "Promise.allSettled",
}
GIVEN: dict[Given, str] = {
    "count": "seen.length",
    "last": "(seen.length > 0 ? seen[seen.length - 1] : 0)",
    "index": "index",
}
TELL = "(r) => r.status == 'rejected' ? {status: r.status, reason: r.reason.code} : r"


def flow_sources(program: Program) -> dict[str, str]:
    """One script per workflow, by name."""
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
            return f"seen.push((await {_promise(settled)}).map({TELL}))\n"
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
            return _work(promise)
        case Timer(seconds):
            return f"Timer.delay({seconds:g})"
        case Signal(name, None):
            return f'Signal.next("{name}")'
        case Signal(name, timeout):
            return f'Signal.when("{name}", {{timeout: {timeout:g}}})'
        case Child(workflow, given):
            return f'Workflow.run("{workflow}", {{v: {GIVEN[given]}}})'
        case Saved(variable):
            return variable
        case Fan(kind, count, work):
            numbers = ", ".join(str(number) for number in range(count))
            return f"{JOINS[kind]}([{numbers}].map((index) => {_work(work)}))"
        case Group(kind, items, cancel):
            options = ", {cancel: true}" if cancel else ""
            return f"{JOINS[kind]}([{', '.join(_promise(item) for item in items)}]{options})"


def _work(work: Work) -> str:
    fields = [f"site: {work.site}", f"v: {GIVEN[work.given]}"]
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

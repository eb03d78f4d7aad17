"""What an execution needs and this process does not have, tasks or code: told before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.app import App
from dalsegno.cli.documents import Document
from dalsegno.cli.findings import located
from dalsegno.cli.problems import InvalidDocument, Refusal
from dalsegno.cli.scripts import check_script
from dalsegno.cli.suggesting import did_you_mean, listed
from dalsegno.engine.definitions import Program
from dalsegno.errors import Finding
from dalsegno.graph.findings import pointer_to, quoted
from dalsegno.graph.plan import Plan
from dalsegno.lang import ExpressionError, FlowProgram, RootNames, compile_string
from dalsegno.lang.python.homes import imported
from dalsegno.lang.python.program import StoredProgram, stored_program
from dalsegno.model.execution import ExecutionView

RULE = "unknown-task"
HINT = "Give the application that has the task: --app module:attr."
"""Where no application was given; `_hint` tells of a given one what it has."""
_LISTED = 10


def unknown_tasks(
    app: App, plan: Plan, source: bytes, severity: str = "error", *, given: bool = False
) -> list[Finding]:
    """One finding per node whose task is named by plain text and is not registered; templates are not judged.
    ``given``: the application is one that the user named."""
    if not any(node.type == "task" for node in plan.nodes.values()):
        return []
    return [
        Finding(pointer, RULE, _sentence(app, node, task, given), severity)
        for pointer, node, task in _named(plan, source)
        if app.tasks.find(task) is None
    ]


async def refuse_unrunnable(app: App, view: ExecutionView, given: str | None) -> None:
    """For an execution that is to go on in this process: its tasks, or its code, must be here. ``given`` is what
    ``--app`` said."""
    if view.kind == "graph":
        _refuse_unknown_tasks(app, await app.client.definitions.by_hash(view.definition), given)
        return
    definition = await app.client.stack.archive.definition_by_hash(view.definition)
    if definition is None:
        return  # a task on its own: the worker tells, should it not be here
    if definition.kind == "python":
        _refuse_unknown_module(app, stored_program(definition.source), given)
    else:
        text = FlowProgram.load(definition.source).source.encode()
        refuse_script(app, Document(f"workflow '{definition.name}' v{definition.version}", text, ""), given)


def refuse_script(app: App, document: Document, given: str | None) -> None:
    """For a script that is to run in this process."""
    checked = check_script(document, app.tasks.names())
    unknown = [{**finding, "severity": "error"} for finding in checked.findings if finding["rule"] == RULE]
    if unknown and checked.valid:
        raise InvalidDocument(document.file, unknown, _hint(app, given) or HINT)


def _refuse_unknown_module(app: App, stored: StoredProgram, given: str | None) -> None:
    if imported(stored.module) is None:
        here = "" if given is None else f"{given} does not import it; {has_words(app)}. "
        raise Refusal(
            f"the Python workflow '{stored.name}' is the function {stored.qualname} of module '{stored.module}', "
            "which is not imported here",
            f"{here}Give the application that has it: --app {stored.file} or --app {stored.module}.",
        )


def _refuse_unknown_tasks(app: App, program: Program, given: str | None) -> None:
    """For a definition that was stored: the place is its name, not a file."""
    definition = program.definition
    findings = unknown_tasks(app, program.plan, definition.source, given=given is not None)
    if findings:
        told: list[dict[str, Any]] = [{**finding.as_dict(), "line": None} for finding in findings]
        raise InvalidDocument(f"workflow '{definition.name}' v{definition.version}", told, _hint(app, given))


def refuse_document(app: App, file: str, text: bytes, plan: Plan, source: bytes, given: str | None) -> None:
    findings = unknown_tasks(app, plan, source, given=given is not None)
    if findings:
        raise InvalidDocument(file, located(findings, text), _hint(app, given))


def _hint(app: App, given: str | None) -> str:
    """Without any task the findings say so themselves."""
    if given is None:
        return HINT if app.tasks.names() else ""
    return f"Looked for in {given}: {has_words(app)}. Register the task there, or give another application."


def has_words(app: App) -> str:
    """What a given application holds."""
    kinds = (("workflows", app.workflows.names()), ("tasks", app.tasks.names()))
    return "it has " + " and ".join(
        f"the {kind} {listed(names, _LISTED)}" if names else f"no {kind}" for kind, names in kinds
    )


def _named(plan: Plan, source: bytes) -> Iterator[tuple[str, str, str]]:
    """Pointer, node and task. The stored form keeps the document's spelling and the order of its nodes."""
    document = msgspec.json.decode(source)
    base, container = ("/dag", document["dag"]) if isinstance(document.get("dag"), dict) else ("", document)
    for index, fields in enumerate(container.get("nodes") or ()):
        node = plan.nodes.get(fields.get("id", ""))
        if node is None or node.type != "task" or node.id in plan.triggers:
            continue
        key = "parameters" if fields.get("parameters") is not None else "config"
        parameters = fields.get(key) or {}
        name = "task" if "task" in parameters else "name"
        task = _constant(parameters.get(name))
        if task is not None:
            yield pointer_to(base, "nodes", index, key, name), node.id, task


def _constant(written: Any) -> str | None:
    if not isinstance(written, str):
        return None
    try:
        compiled = compile_string(written, RootNames.of(()), False)
    except ExpressionError:
        return None  # it names a node: a template
    return compiled if isinstance(compiled, str) else None


def _sentence(app: App, node: str, task: str, given: bool) -> str:
    known = app.tasks.names()
    said = f"Node {quoted(node)} runs the task {quoted(task)}, which is not registered here"
    if not known:
        return f"{said}: no task is." if given else f"{said}: no task is. {HINT}"
    close = did_you_mean(task, known)
    if close:
        return said + close
    return f"{said}; registered: {listed(known, _LISTED)}"

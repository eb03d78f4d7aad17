"""The tasks and code that an execution needs, checked before it starts.

Also what executions in flight at a server need, compared with a program that is here.
"""

from __future__ import annotations

from typing import Any

from dalsegno.app import App
from dalsegno.cli.documents import Document
from dalsegno.cli.errors import InvalidDocument, Refusal
from dalsegno.cli.programs import check_script, located
from dalsegno.cli.target.server import remote_client
from dalsegno.cli.target.target import opened, own_program
from dalsegno.client.archive import ServerArchive
from dalsegno.engine.definitions import Program
from dalsegno.engine.operations.unfinished_versions import LackingVersion, lacking_of
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.errors import Finding, NotFound
from dalsegno.graph.checks.node_types import named_tasks
from dalsegno.graph.documents.findings import quoted
from dalsegno.graph.plan import Plan
from dalsegno.lang import FlowProgram
from dalsegno.lang.python.environment import imported
from dalsegno.lang.python.program import StoredProgram, stored_program
from dalsegno.model.execution import ExecutionView
from dalsegno.model.suggestion import did_you_mean, listed

RULE = "unknown-task"
HINT = "Give the application that has the task: --app module:attr."
"""Used if no application was given; `_hint` says what a given one has."""
_LISTED = 10


def unknown_tasks(
    app: App, plan: Plan, source: bytes, severity: str = "error", *, given: bool = False
) -> list[Finding]:
    """Return a finding for each node whose task is a literal name and is not registered. Templates are not checked.

    ``given``: the application was named by the user.
    """
    return [
        Finding(pointer, RULE, _sentence(app, node, task, given), severity)
        for pointer, node, task in named_tasks(plan, source)
        if app.tasks.find(task) is None
    ]


async def refuse_unrunnable(app: App, view: ExecutionView, given: str | None) -> None:
    """Refuse to run an execution in this process if its tasks or its code are missing. ``given``: the value of
    ``--app``."""
    if view.kind == "graph":
        _refuse_unknown_tasks(app, await app.client.definitions.by_hash(view.definition), given)
        return
    definition = await app.client.stack.archive.definition_by_hash(view.definition)
    if definition is None:
        return  # a task on its own: the worker reports it if it is missing
    if definition.kind == "python":
        _refuse_unknown_module(app, stored_program(definition.source), given, view)
    else:
        text = FlowProgram.load(definition.source).source.encode()
        refuse_script(app, Document(f"workflow '{definition.name}' v{definition.version}", text, ""), given)


def refuse_script(app: App, document: Document, given: str | None) -> None:
    """Refuse to run a script in this process if one of its tasks is missing."""
    checked = check_script(document, app.tasks.names())
    unknown = [{**finding, "severity": "error"} for finding in checked.findings if finding["rule"] == RULE]
    if unknown and checked.valid:
        raise InvalidDocument(document.file, unknown, _hint(app, given) or HINT)


def _refuse_unknown_module(app: App, stored: StoredProgram, given: str | None, view: ExecutionView) -> None:
    if imported(stored.module) is None:
        here = "" if given is None else f"{given} does not import it; {registered_text(app)}. "
        workers = ""
        if view.state == "PAUSED":
            workers = f" If a worker has it: `dalsegno resume {view.id} --detach` only ends the pause."
        raise Refusal(
            f"the Python workflow '{stored.name}' is the function {stored.qualname} of module '{stored.module}', "
            "which is not imported here",
            f"{here}Give the application that has it: --app {stored.file} or --app {stored.module}.{workers}",
        )


def _refuse_unknown_tasks(app: App, program: Program, given: str | None) -> None:
    """Refuse a stored definition whose tasks are missing. Findings name the workflow, not a file."""
    definition = program.definition
    findings = unknown_tasks(app, program.plan, definition.source, given=given is not None)
    if findings:
        problems: list[dict[str, Any]] = [{**finding.as_dict(), "line": None} for finding in findings]
        raise InvalidDocument(
            f"workflow '{definition.name}' v{definition.version}", problems, _hint(app, given)
        )


def refuse_document(app: App, file: str, text: bytes, plan: Plan, source: bytes, given: str | None) -> None:
    findings = unknown_tasks(app, plan, source, given=given is not None)
    if findings:
        raise InvalidDocument(file, located(findings, text), _hint(app, given))


def _hint(app: App, given: str | None) -> str:
    """Return the hint. Without any registered task the findings say it themselves."""
    if given is None:
        return HINT if app.tasks.names() else ""
    return f"Looked for in {given}: {registered_text(app)}. Register the task there, or give another application."


def registered_text(app: App) -> str:
    """List the names that a given application has registered."""
    kinds = (("workflows", app.workflows.names()), ("tasks", app.tasks.names()))
    return "it has " + " and ".join(
        f"the {kind} {listed(names, _LISTED)}" if names else f"no {kind}" for kind, names in kinds
    )


def _sentence(app: App, node: str, task: str, given: bool) -> str:
    known = app.tasks.names()
    problem = f"Node {quoted(node)} runs the task {quoted(task)}, which is not registered here"
    if not known:
        return f"{problem}: no task is." if given else f"{problem}: no task is. {HINT}"
    close = did_you_mean(task, known)
    if close:
        return problem + close
    return f"{problem}; registered: {listed(known, _LISTED)}"


async def lacking_there(server: str, app: App) -> list[LackingVersion]:
    """Compare the needs that the server reports with the program here. Stored code of Python workflows is loaded
    here, together with the program.
    """
    async with opened(app, create=True) as client, remote_client(server) as there:
        archive = ServerArchive(there.client.transport)

        async def script(hash: str) -> ScriptProgram:
            stored = await archive.definition_by_hash(hash)
            if stored is None:
                raise NotFound(f"no definition with the content hash {hash} is stored there")
            return client.definitions.add_script(stored)

        return await lacking_of(await there.aunfinished_versions(), own_program(app), script)

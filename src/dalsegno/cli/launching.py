"""How ``run`` and its siblings make their sessions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import typer
from msgspec import Raw

from dalsegno.cli.deploying import deploy_document
from dalsegno.cli.desk import Desk
from dalsegno.cli.documents import STDIN, read_document, read_payload, read_seconds
from dalsegno.cli.modules import PythonTarget, load_workflow, names_python
from dalsegno.cli.opening import find_execution, make_app, on_store
from dalsegno.cli.output import emit, execution_names
from dalsegno.cli.places import Where, reached, where_to
from dalsegno.cli.problems import Refusal
from dalsegno.cli.result import Command
from dalsegno.cli.session import Session
from dalsegno.cli.stores import require_store
from dalsegno.cli.suggesting import did_you_mean, listed
from dalsegno.cli.tasks import refuse_script, refuse_unrunnable
from dalsegno.cli.watching import Find, watch_execution
from dalsegno.core.values import encode_value
from dalsegno.engine.client import Client
from dalsegno.engine.loop import run
from dalsegno.engine.starting import StartOptions
from dalsegno.graph.plan import Plan
from dalsegno.lang.python import DurableTask, arguments_for
from dalsegno.model.execution import SCRIPTED, ExecutionView

LISTED = 20


def make_session(
    store: str | None, app: str | None, *, json: bool, quiet: bool, seconds: float | None
) -> Session:
    made = make_app(store, app)
    return Session(made, Command(made.url, app), json, quiet, seconds)


def refuse_double_stdin(target: str, payload: str | None) -> None:
    if target == STDIN and payload == STDIN:
        raise Refusal("stdin cannot be both the document and the input", "Give one of them as a file.")


def launch(
    target: str,
    payload: Any,
    options: StartOptions,
    store: str | None,
    app: str | None,
    *,
    json: bool,
    quiet: bool,
    seconds: float | None,
) -> int:
    """Runs a document, a script or a Python workflow to its end."""
    if names_python(target):
        found = load_workflow(target, app)
        made = on_store(found.app, store)
        session = Session(made, Command(made.url, found.app_name), json, quiet, seconds)
        return session.run(lambda client: _start_python(client, found, payload, options))
    document = read_document(target)
    session = make_session(store, app, json=json, quiet=quiet, seconds=seconds)

    async def start(client: Client) -> str:
        if document.is_script:
            refuse_script(session.app, document, app)
        deployed = await deploy_document(session.app, document, run_here=True, given=app)
        return await client.start(deployed.name, payload, options)

    return session.run(start)


async def _start_python(client: Client, found: PythonTarget, payload: Any, options: StartOptions) -> str:
    """The input is what the function's parameters make of it: none is no object."""
    name = found.workflow.name
    if isinstance(found.workflow, DurableTask):
        return await client.start_task(name, payload, options, found.app.task_queue(name))
    arguments_for(found.workflow.program, payload)  # refused here rather than recorded as a failed execution
    definition = await found.app.workflows.ensure(client, name)
    raw = Raw(encode_value(payload, "the input"))
    return await client.start(name, raw, replace(options, version=definition.version))


def run_again(
    execution: str,
    nodes: Sequence[str] | None,
    context: str | None,
    store: str | None,
    server: str | None,
    app: str | None,
    timeout: str | None,
    *,
    detach: bool,
    quiet: bool,
    json: bool,
    sure: bool = False,
) -> int:
    """A new execution from ``nodes`` on, or without them from what failed; run to its end unless detached. ``sure``:
    also where it starts over, and tasks that are done run a second time."""
    edits = read_payload(context, "context")
    if edits is not None and not isinstance(edits, dict):
        raise Refusal(
            "the context is no JSON object", """Write it like --context '{"node": {"price": 3}}'."""
        )
    where, seconds = where_to(store, server, app), read_seconds(timeout)

    async def create(client: Desk) -> str:
        found = await find_execution(client, execution)
        view = await client.status(found)
        if view.kind == "graph" and where.server is None:
            _check_nodes((await client.definitions.by_hash(view.definition)).plan, nodes or ())
        if not detach and where.server is None:
            await refuse_unrunnable(where.app, view, app)
        if view.kind in SCRIPTED and not nodes and not sure:
            await _ask_before_starting_over(client, view)
        return await client.rerun(found, nodes, edits)

    if detach:
        asyncio.run(_detached(where, create, json=json))
        return 0
    return go_on(where, create, json=json, quiet=quiet, seconds=seconds, fresh=True)


def go_on(
    where: Where, find: Find, *, json: bool, quiet: bool, seconds: float | None, fresh: bool = False
) -> int:
    """An execution to its end: in this process, or watched while a server runs it."""
    if where.server is not None:
        return run(watch_execution(where, find, seconds, quiet=quiet, as_json=json, fresh=fresh))
    run(require_store(where.app.url))
    return Session(where.app, where.command, json, quiet, seconds).run(find)


async def _ask_before_starting_over(client: Desk, view: ExecutionView) -> None:
    """A script or Python workflow is not gone on with where it failed: what it has done is done again, under other
    idempotency keys."""
    tasks = await client.nodes(view.id)
    done = [name for name, task in tasks.items() if task.state == "COMPLETED"]
    if not done:
        return
    said = f"A retry starts '{view.workflow}' over, with new idempotency keys. It runs again: {listed(done, LISTED)}."
    if not sys.stdin.isatty():
        raise Refusal(said, "Add --yes if that is what you want.")
    typer.confirm(f"{said}\nGo on?", abort=True, err=True)


def _check_nodes(plan: Plan, nodes: Sequence[str]) -> None:
    for name in nodes:
        if name not in plan.nodes:
            raise Refusal(
                f"workflow '{plan.name}' has no node '{name}'{did_you_mean(name, plan.nodes)}",
                f"Its nodes: {listed(list(plan.nodes), LISTED)}.",
            )


async def _detached(where: Where, create: Find, *, json: bool) -> None:
    async with reached(where) as client:
        made = await client.status(await create(client))
    if json:
        emit(
            {
                **execution_names(made.id, made.state),
                "workflow": made.workflow,
                "version": made.version,
                "parent": made.parent,
                "relation": made.relation,
            }
        )
    else:
        print(made.id)

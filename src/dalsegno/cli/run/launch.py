"""The sessions of ``run``, ``resume``, ``retry``, ``rerun`` and ``watch``, in this process or at a server."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import typer
from msgspec import Raw

from dalsegno.app import App
from dalsegno.cli.deploy import Deployed, deploy_document, deploy_there
from dalsegno.cli.documents import STDIN, Document, read_document, read_payload, read_seconds
from dalsegno.cli.errors import Refusal
from dalsegno.cli.live.screen import choose_screen, following, log_to
from dalsegno.cli.modules import PythonTarget, load_workflow, names_python
from dalsegno.cli.next_command import Command
from dalsegno.cli.output import emit, execution_names, stderr
from dalsegno.cli.run.requirements import refuse_script, refuse_unrunnable
from dalsegno.cli.run.session import TIMED_OUT, Session, follow, stop_signals
from dalsegno.cli.target.stores import require_store
from dalsegno.cli.target.target import (
    Target,
    WorkflowApi,
    find_execution,
    make_app,
    on_store,
    reached,
    where_to,
)
from dalsegno.cli.views.result import print_result, read_result
from dalsegno.client.archive import ServerArchive
from dalsegno.core.values import encode_value
from dalsegno.engine.client import Client
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.process import run
from dalsegno.engine.starting.moving import RetryPlan
from dalsegno.engine.starting.start import Started, StartOptions
from dalsegno.errors import InternalError
from dalsegno.graph.plan import Plan
from dalsegno.lang.python import DurableTask, arguments_for
from dalsegno.lang.runtime.effects import display_name
from dalsegno.model.definition import Version, format_target
from dalsegno.model.execution import CLEANUP_RELATION, ENDED, SCRIPTED, ExecutionView
from dalsegno.model.suggestion import did_you_mean, listed
from dalsegno.wiring import is_postgres

Find = Callable[[WorkflowApi], Awaitable[str]]
"""Finds or creates the execution and returns its id."""


async def watch_execution(
    where: Target,
    find: Find,
    seconds: float | None,
    *,
    quiet: bool,
    as_json: bool,
    fresh: bool = False,
) -> int:
    """Follow an execution that runs elsewhere. ``fresh``: this command started it, so its whole history is new."""
    screen = choose_screen(quiet=quiet, as_json=as_json, verb=None if fresh else "watching")
    log_to(screen)
    command = where.command
    async with reached(where) as client:
        execution = await find(client)
        view = await client.status(execution)
        view = msgspec.structs.replace(view, seq=0, state="RUNNING") if fresh else view
        followed = await following(client, view, command)
        with stop_signals() as stopping:
            screen.begin(view, followed)
            try:
                await follow(followed, screen, stopping, seconds)
            finally:
                screen.end(await client.status(execution))
        result = await read_result(client, execution)
    ended = result.view.state in ENDED
    if ended or as_json:
        print_result(result, command, as_json=as_json)
    else:
        stderr().print(f"no longer watching; execution {execution} is {result.view.state}", soft_wrap=True)
    if ended:
        return result.exit_code
    return 128 + stopping.signal if stopping.signal is not None else TIMED_OUT


LISTED = 20
LOOKED_AT = 1000
"""First events in which a wait is searched."""


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
    """Run a document, a script or a Python workflow to its end."""
    if names_python(target):
        found = load_workflow(target, app)
        made = on_store(found.app, store)
        session = Session(made, Command(made.url, found.app_name), json, quiet, seconds)

        async def start_python(client: Client) -> str:
            return _created(made, await _start_python(client, found, payload, options))

        return session.run(start_python)
    document = read_document(target)
    session = make_session(store, app, json=json, quiet=quiet, seconds=seconds)

    async def start(client: Client) -> str:
        if document.is_script:
            refuse_script(session.app, document, app)
        deployed = await deploy_document(session.app, document, run_here=True, given=app)
        program = await client.definitions.named(deployed.name, options.version)
        return _created(session.app, await client.launcher.start(program, payload, options))

    return session.run(start)


def _created(app: App, started: Started) -> str:
    """Return the id of the execution. One that was found by its idempotency key was started by another program, which
    may have tasks that this one lacks."""
    if started.is_new:
        fail_missing_tasks(app)
    return started.execution


def fail_missing_tasks(app: App) -> None:
    """Fail executions whose task is missing instead of waiting for a worker that has it.

    What this command created is usually run by nothing else, so a missing task is a mistake. PostgreSQL is excluded,
    because processes of other machines share it.
    """
    if not is_postgres(app.url):
        app.engine.fail_missing_tasks()


async def _start_python(client: Client, found: PythonTarget, payload: Any, options: StartOptions) -> Started:
    """Start a Python workflow. The function's parameters take the input; no input is not an empty object."""
    name = found.workflow.name
    if isinstance(found.workflow, DurableTask):
        return await client.launcher.start_task(name, payload, options, found.app.task_queue(name))
    arguments_for(found.workflow.program, payload)  # refused here, not recorded as a failed execution
    definition = await found.app.workflows.ensure(client, name)
    raw = Raw(encode_value(payload, "the input"))
    options = replace(options, version=definition.version)
    program = await client.definitions.named(name, options.version)
    return await client.launcher.start(program, raw, options)


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
    from_start: bool = False,
    version: Version = None,
    sure: bool = False,
    turn: TurnAsked | None = None,
) -> int:
    """Run a new execution from ``nodes`` on, or without them from what failed, to its end unless detached.

    ``sure``: do not ask even if the execution starts over and runs its tasks a second time.
    """
    edits = read_payload(context, "context")
    if edits is not None and not isinstance(edits, dict):
        raise Refusal(
            "the context is not a JSON object", """Write it like --context '{"node": {"price": 3}}'."""
        )
    where, seconds = where_to(store, server, app), read_seconds(timeout)

    async def create(client: WorkflowApi) -> str:
        found = await find_execution(client, execution)
        view = await client.status(found)
        if view.kind == "graph" and where.server is None and version is None and turn is None:
            _check_nodes((await client.definitions.by_hash(view.definition)).plan, nodes or ())
        if not detach and where.server is None:
            await refuse_unrunnable(where.app, view, app)
        if not nodes and not sure and turn is None:
            await ask_before_starting_over(client, view, from_start=from_start)
        return await client.rerun(found, nodes, edits, from_start=from_start, version=version, turn=turn)

    if detach:
        asyncio.run(_detached(where, create, json=json))
        return 0
    return follow_execution(where, create, json=json, quiet=quiet, seconds=seconds, fresh=True)


def preview_again(
    execution: str,
    store: str | None,
    server: str | None,
    app: str | None,
    version: Version,
    *,
    from_start: bool,
    json: bool,
    nodes: Sequence[str] | None = None,
    turn: TurnAsked | None = None,
) -> None:
    """Show what a retry or rerun would do."""
    where = where_to(store, server, app)

    async def preview() -> RetryPlan:
        async with reached(where) as client:
            found = await find_execution(client, execution)
            return await client.preview_retry(found, nodes, version, from_start=from_start, turn=turn)

    plan = asyncio.run(preview())
    if json:
        emit(msgspec.to_builtins(plan))
        return
    how = "start over" if plan.starts_over else "go on"
    print(f"would {how} with version {plan.version} of '{plan.workflow}'")
    for each in plan.frames:
        print(f"  {each.function}, line {each.old_line}: {each.old_text}")
        print(f"    goes on in line {each.new_line}: {each.new_text}")
    if plan.turn:
        print(f"  at turn {plan.turn}, which waits in line {plan.line}")
    for said, calls in (
        ("keeps the results of", plan.known),
        ("awaits", plan.awaited),
        ("runs again", plan.again),
    ):
        if calls:
            print(f"  {said}: {', '.join(calls)}")
    if plan.later:
        counted = Counter(plan.later)
        calls = tuple([f"{count} × {name}" if count > 1 else name for name, count in counted.items()])
        print(f"  called by later turns, and so again: {', '.join(calls)}")


def follow_execution(
    where: Target, find: Find, *, json: bool, quiet: bool, seconds: float | None, fresh: bool = False
) -> int:
    """Follow an execution to its end: run it in this process, or watch it while a server runs it."""
    if where.server is not None:
        return run(watch_execution(where, find, seconds, quiet=quiet, as_json=json, fresh=fresh))
    run(require_store(where.app.url))

    async def find_here(client: Client) -> str:
        execution = await find(client)
        if fresh:
            fail_missing_tasks(where.app)
        return execution

    return Session(where.app, where.command, json, quiet, seconds).run(find_here)


async def ask_before_starting_over(
    client: WorkflowApi, view: ExecutionView, *, from_start: bool = False
) -> None:
    """Ask for confirmation before a script or Python workflow starts over.

    It does not continue where it failed: its tasks run again under other idempotency keys. A failed task may have had
    its effect, if only its reply was lost.
    """
    if view.kind not in SCRIPTED or view.relation == CLEANUP_RELATION:
        return
    if not from_start and await goes_on(client, view):
        return
    tasks = await client.nodes(view.id)
    ran = [_run_again(name, task.runs, task.failed) for name, task in tasks.items() if task.runs]
    if not ran:
        return
    question = (
        f"a retry starts '{view.workflow}' over, with new idempotency keys. It runs again: {_listed(ran)}."
    )
    if any(task.failed for task in tasks.values()):
        question += " A task that failed may have had its effect."
    if not sys.stdin.isatty():
        raise Refusal(question, "Add --yes if that is what you want.")
    typer.confirm(f"{question[0].upper()}{question[1:]}\nGo on?", abort=True, err=True)


async def goes_on(client: WorkflowApi, view: ExecutionView) -> bool:
    """Return True if a retry goes on from the failure. A server does not say it; it keeps the machine of what failed
    after it had waited.
    """
    if view.state != "FAILED" or view.kind not in SCRIPTED:
        return False
    if view.context is not None or isinstance(client, Client):
        return view.context is not None
    waited = await client.events(view.id, 0, LOOKED_AT)
    return any(event.kind == "Suspended" for event in waited)


def _run_again(name: str, times: int, failed: int) -> str:
    notes = [f"{times:,} times"] if times > 1 else []
    if failed:
        notes.append("failed" if failed == times else f"{failed:,} failed")
    shown = f"'{display_name(name)}'"
    return f"{shown} ({', '.join(notes)})" if notes else shown


def _listed(ran: Sequence[str]) -> str:
    more = f" and {len(ran) - LISTED:,} more" if len(ran) > LISTED else ""
    return ", ".join(ran[:LISTED]) + more


def _check_nodes(plan: Plan, nodes: Sequence[str]) -> None:
    for name in nodes:
        if name not in plan.nodes:
            raise Refusal(
                f"workflow '{plan.name}' has no node '{name}'{did_you_mean(name, plan.nodes)}",
                f"Its nodes: {listed(list(plan.nodes), LISTED)}.",
            )


async def _detached(where: Target, create: Find, *, json: bool) -> None:
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


async def deploy_all(where: Target, documents: Sequence[Document], alias: str | None) -> list[Deployed]:
    async with reached(where) as api:
        return await deploy_there(_archive(api), documents, alias=alias)


def run_there(
    where: Target,
    target: str,
    payload: Any,
    options: StartOptions,
    *,
    json: bool,
    quiet: bool,
    seconds: float | None,
) -> int:
    """Deploy a document or script to the server, start it, and follow it to its end. The exit code is that of
    ``run``."""
    if names_python(target):
        raise Refusal(
            f"{target} is a Python workflow, whose code must be where it runs",
            f"Start the server with --app {target.partition(':')[0]}; then `dalsegno start NAME` starts it there.",
        )
    document = read_document(target)

    async def start(api: WorkflowApi) -> str:
        deployed = (await deploy_there(_archive(api), [document]))[0]
        return await api.start(format_target(deployed.name, deployed.version), payload, options)

    return run(watch_execution(where, start, seconds, quiet=quiet, as_json=json, fresh=True))


def _archive(api: WorkflowApi) -> ServerArchive:
    archive = api.stack.archive
    if not isinstance(archive, ServerArchive):
        raise InternalError("a store that is opened here was used as if it were a server's")
    return archive

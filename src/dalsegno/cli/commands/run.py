"""``run``, ``resume``, ``retry`` and ``rerun``: run an execution in this process to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import (
    AgainVersion,
    Answers,
    AppName,
    AtTurn,
    Detach,
    EditedContext,
    ExecutionId,
    FromNodes,
    Input,
    Json,
    Key,
    Quiet,
    Server,
    SetVariables,
    Store,
    Tags,
    Target,
    Timeout,
)

if TYPE_CHECKING:
    from dalsegno.cli.target.target import WorkflowApi


def register(app: typer.Typer) -> None:
    app.command("run")(run)
    app.command("resume")(resume)
    app.command("retry")(retry)
    app.command("rerun")(rerun)


def run(
    workflow: Target,
    input: Input = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    tag: Tags = None,
    key: Key = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a workflow to its end and show live progress.

    With --server it runs on the server. Exit code: 0 completed, 1 failed or cancelled, 2 usage or validation, 124
    timeout, 130 interrupted.
    """
    from dalsegno.cli.documents import read_payload, read_seconds, read_tags
    from dalsegno.cli.run.launch import launch, refuse_double_stdin
    from dalsegno.cli.target.stores import server_of
    from dalsegno.cli.target.target import where_to
    from dalsegno.engine.starting.start import StartOptions

    refuse_double_stdin(workflow, input)
    where = where_to(store, server, app) if server_of(server, store) is not None else None
    options = StartOptions(idempotency_key=key, tags=read_tags(tag))
    payload, seconds = read_payload(input), read_seconds(timeout)
    if where is not None:
        from dalsegno.cli.run.launch import run_there

        raise typer.Exit(
            run_there(where, workflow, payload, options, json=json, quiet=quiet, seconds=seconds)
        )
    raise typer.Exit(launch(workflow, payload, options, store, app, json=json, quiet=quiet, seconds=seconds))


def resume(
    execution: ExecutionId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    timeout: Timeout = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only end the pause; a worker continues the execution.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue an execution in this process; ends a pause.

    With --server it continues on the server. Steps that a killed process held are taken over at once. For an execution
    that has ended, the result is shown.
    """
    if detach:
        from dalsegno.cli.commands.control import end_pause

        end_pause(execution, store, server, json=json)
        return
    from dalsegno.cli.documents import read_seconds
    from dalsegno.cli.run.launch import follow_execution
    from dalsegno.cli.run.requirements import refuse_unrunnable
    from dalsegno.cli.target.target import find_execution, where_to
    from dalsegno.model.execution import ENDED

    where = where_to(store, server, app)

    async def find(client: WorkflowApi) -> str:
        found = await find_execution(client, execution)
        view = await client.status(found)
        if view.state not in ENDED and where.server is None:
            await refuse_unrunnable(where.app, view, app)
        if view.state == "PAUSED":
            await client.resume(found)
        return found

    raise typer.Exit(follow_execution(where, find, json=json, quiet=quiet, seconds=read_seconds(timeout)))


def retry(
    execution: ExecutionId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    timeout: Timeout = None,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Start a script or Python workflow over.")
    ] = False,
    version: AgainVersion = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and show what would run again; start nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before starting over, which runs tasks again.")
    ] = False,
) -> None:
    """Retry what failed, as a new execution.

    Scripts and Python workflows go on from the failure: what has completed does not run again. With --version they go
    on in another version of their code.
    """
    from dalsegno.cli.run.launch import preview_again, run_again

    if dry_run:
        preview_again(execution, store, server, app, version, from_start=from_start, json=json)
        return
    raise typer.Exit(
        run_again(
            execution,
            None,
            None,
            store,
            server,
            app,
            timeout,
            detach=detach,
            quiet=quiet,
            json=json,
            from_start=from_start,
            version=version,
            sure=yes,
        )
    )


def rerun(
    execution: ExecutionId,
    nodes: FromNodes = None,
    context: EditedContext = None,
    at: AtTurn = None,
    variables: SetVariables = None,
    answers: Answers = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    timeout: Timeout = None,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
    version: AgainVersion = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and show what would run again; start nothing.")
    ] = False,
) -> None:
    """Run again from nodes, or from a turn, as a new execution.

    A graph begins at the nodes. A script or Python workflow begins --at a turn, with its state as it was then. What had
    been called by then and has completed is known; what later turns called runs again.
    """
    from dalsegno.cli.run.again import read_turn
    from dalsegno.cli.run.launch import preview_again, run_again

    turn = read_turn(nodes, at, variables, answers)
    if dry_run:
        preview_again(
            execution,
            store,
            server,
            app,
            version,
            from_start=False,
            json=json,
            nodes=nodes or None,
            turn=turn,
        )
        return
    raise typer.Exit(
        run_again(
            execution,
            nodes or None,
            context,
            store,
            server,
            app,
            timeout,
            detach=detach,
            quiet=quiet,
            json=json,
            version=version,
            turn=turn,
        )
    )

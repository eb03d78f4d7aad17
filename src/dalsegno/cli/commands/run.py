"""``run``, ``resume``, ``retry``, ``rerun``: an execution in this process, to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import (
    AppName,
    Detach,
    EditedContext,
    ExecutionId,
    FromNodes,
    Input,
    Json,
    Key,
    Quiet,
    Server,
    Store,
    Tags,
    Target,
    Timeout,
)

if TYPE_CHECKING:
    from dalsegno.cli.desk import Desk


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
    """Run a workflow to its end, with live progress; with --server it runs there.

    Exit code: 0 completed, 1 failed or cancelled, 2 usage or validation, 124 timeout, 130 interrupted.
    """
    from dalsegno.cli.documents import read_payload, read_seconds, read_tags
    from dalsegno.cli.launching import launch, refuse_double_stdin
    from dalsegno.cli.places import where_to
    from dalsegno.cli.stores import server_of
    from dalsegno.engine.starting import StartOptions

    refuse_double_stdin(workflow, input)
    where = where_to(store, server, app) if server_of(server, store) is not None else None
    options = StartOptions(idempotency_key=key, tags=read_tags(tag))
    payload, seconds = read_payload(input), read_seconds(timeout)
    if where is not None:
        from dalsegno.cli.remote.running import run_there

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
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Go on with an execution here and now; ends a pause. With --server it goes on there.

    What a killed process held is taken over at once. An execution that has ended shows its result.
    """
    from dalsegno.cli.documents import read_seconds
    from dalsegno.cli.launching import go_on
    from dalsegno.cli.opening import find_execution
    from dalsegno.cli.places import where_to
    from dalsegno.cli.tasks import refuse_unrunnable
    from dalsegno.model.execution import ENDED

    where = where_to(store, server, app)

    async def find(client: Desk) -> str:
        found = await find_execution(client, execution)
        view = await client.status(found)
        if view.state not in ENDED and where.server is None:
            await refuse_unrunnable(where.app, view, app)
        if view.state == "PAUSED":
            await client.resume(found)
        return found

    raise typer.Exit(go_on(where, find, json=json, quiet=quiet, seconds=read_seconds(timeout)))


def retry(
    execution: ExecutionId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    timeout: Timeout = None,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Start over without asking, though tasks run again.")
    ] = False,
) -> None:
    """Run again, as a new execution, what failed: scripts and Python workflows start over."""
    from dalsegno.cli.launching import run_again

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
            sure=yes,
        )
    )


def rerun(
    execution: ExecutionId,
    nodes: FromNodes,
    context: EditedContext = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    timeout: Timeout = None,
    detach: Detach = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run again, as a new execution, from the given nodes on."""
    from dalsegno.cli.launching import run_again

    raise typer.Exit(
        run_again(
            execution, nodes, context, store, server, app, timeout, detach=detach, quiet=quiet, json=json
        )
    )

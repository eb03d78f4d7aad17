"""``ls``, ``show``, ``why``, ``debug`` and ``watch``: inspect executions, or follow one that runs elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import (
    AppName,
    ExecutionId,
    Json,
    Limit,
    OfWorkflow,
    Quiet,
    Server,
    Store,
    Tags,
    Timeout,
)


def register_executions(app: typer.Typer) -> None:
    app.command("ls")(list_executions)
    app.command("show")(show)
    app.command("why")(why)
    app.command("debug")(debug)


def list_executions(
    workflow: OfWorkflow = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only in this state; repeatable.", show_default=False),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            help="Only this kind: graph, script, python, task or schedule; repeatable.",
            show_default=False,
        ),
    ] = None,
    tag: Tags = None,
    limit: Limit = 20,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """List executions, newest first."""
    import asyncio

    from dalsegno.cli.documents import read_tags
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.stores import listed
    from dalsegno.cli.views.executions import execution_filter, list_as_object, print_list

    where = execution_filter(workflow, state or [], read_tags(tag), kind or [])
    views, now = asyncio.run(listed(store, server, where, limit + 1, app))
    if json:
        emit(list_as_object(views[:limit]))
    else:
        print_list(views, now, limit)


def show(
    execution: ExecutionId,
    events: Annotated[
        int, typer.Option("--events", min=0, max=100_000, help="Number of latest events to show.")
    ] = 10,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Show an execution: progress, events, output or error.

    Progress of a graph: its nodes; of a script or Python workflow: the current line, variables and tasks. Also the
    latest events and the related executions.
    """
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import find_execution, reached, where_to
    from dalsegno.cli.views.show import (
        ScriptDetails,
        print_details,
        print_script_details,
        read_details,
        read_script_details,
    )

    async def look() -> None:
        where = where_to(store, server, app)
        async with reached(where) as client:
            view = await client.status(await find_execution(client, execution))
            details = await (read_details if view.kind == "graph" else read_script_details)(
                client, view, events
            )
        if json:
            emit(details.as_object())
        elif isinstance(details, ScriptDetails):
            print_script_details(details, where.command)
        else:
            print_details(details, where.command)

    asyncio.run(look())


def why(
    execution: ExecutionId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Explain what an execution is waiting for."""
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import find_execution, reached, where_to
    from dalsegno.cli.views.executions import origin_of
    from dalsegno.cli.views.result import has_letter, print_letter
    from dalsegno.cli.views.why import as_object, print_explanation
    from dalsegno.model.execution import ENDED

    async def look() -> None:
        where = where_to(store, server, app)
        async with reached(where) as client:
            found = await find_execution(client, execution)
            explanation = await client.explain(found)
            view = await client.status(found)
            has_ended = explanation.state in ENDED
            is_unfinished = has_ended and await has_letter(client, view)
            origin = None if has_ended else await origin_of(client, view)
        if json:
            emit(as_object(explanation, where.command, origin))
            return
        print_explanation(explanation, where.command, origin)
        if is_unfinished:
            print_letter(view, where.command)

    asyncio.run(look())


def debug(
    execution: ExecutionId,
    turn: Annotated[
        int | None,
        typer.Option(
            "--turn", min=1, help="Show this turn and leave; with --live: run it.", show_default=False
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Run a turn again in this process, under pdb or, for a script, line by line. Nothing is stored.",
        ),
    ] = False,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Step through the recorded turns of an execution.

    A script or Python workflow stops at its awaits; a turn runs from one stop to the next. Each shows what woke it, the
    source line, the variables and what changed in them, and what it asked for. Commands are read from the terminal or
    from a pipe; `help` lists them. With --json: one turn, or the list of all.
    """
    from dalsegno.cli.debugger.terminal import debug_execution
    from dalsegno.cli.errors import Refusal
    from dalsegno.cli.target.target import where_to

    if live and json:
        raise Refusal("--live is interactive and prints no JSON", "Give one of them.")
    raise typer.Exit(debug_execution(where_to(store, server, app), execution, turn, live=live, json=json))


def register_watch(app: typer.Typer) -> None:
    app.command("watch")(watch)


def watch(
    execution: ExecutionId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Watch an execution that runs elsewhere until it ends."""
    import asyncio

    from dalsegno.cli.documents import read_seconds
    from dalsegno.cli.run.launch import watch_execution
    from dalsegno.cli.target.target import find_execution, where_to

    ending = watch_execution(
        where_to(store, server, app),
        lambda api: find_execution(api, execution),
        read_seconds(timeout),
        quiet=quiet,
        as_json=json,
    )
    raise typer.Exit(asyncio.run(ending))

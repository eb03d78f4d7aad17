"""``ls``, ``show``, ``why``: looking at executions."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, ExecutionId, Json, Limit, OfWorkflow, Server, Store, Tags


def register(app: typer.Typer) -> None:
    app.command("ls")(list_executions)
    app.command("show")(show)
    app.command("why")(why)


def list_executions(
    workflow: OfWorkflow = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only in this state; may be given several times.", show_default=False),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="Only graph, script, python, task or schedule.", show_default=False),
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
    from dalsegno.cli.listing import execution_filter, list_as_object, print_list
    from dalsegno.cli.output import emit
    from dalsegno.cli.shelf import listed

    where = execution_filter(workflow, state or [], read_tags(tag), kind or [])
    views, now = asyncio.run(listed(store, server, where, limit + 1, app))
    if json:
        emit(list_as_object(views[:limit]))
    else:
        print_list(views, now, limit)


def show(
    execution: ExecutionId,
    events: Annotated[int, typer.Option("--events", min=0, max=100_000, help="How many of the latest.")] = 10,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Show an execution: its nodes, or its line, variables and tasks; latest events, output or error, relatives."""
    import asyncio

    from dalsegno.cli.opening import find_execution
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to
    from dalsegno.cli.portrait import portray, print_portrait
    from dalsegno.cli.script_portrait import ScriptPortrait, portray_script, print_script_portrait

    async def look() -> None:
        where = where_to(store, server, app)
        async with reached(where) as client:
            view = await client.status(await find_execution(client, execution))
            portrait = await (portray if view.kind == "graph" else portray_script)(client, view, events)
        if json:
            emit(portrait.as_object())
        elif isinstance(portrait, ScriptPortrait):
            print_script_portrait(portrait, where.command)
        else:
            print_portrait(portrait, where.command)

    asyncio.run(look())


def why(
    execution: ExecutionId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Tell what exactly an execution waits for."""
    import asyncio

    from dalsegno.cli.opening import find_execution
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to
    from dalsegno.cli.waits import explain, print_explanation

    async def look() -> None:
        where = where_to(store, server, app)
        async with reached(where) as client:
            found = await find_execution(client, execution)
            explanation = await explain(client, found, where.command)
        if json:
            emit(explanation.as_object())
        else:
            print_explanation(explanation)

    asyncio.run(look())

"""``watch``: the live view of an execution that runs elsewhere."""

from __future__ import annotations

import typer

from dalsegno.cli.options import AppName, ExecutionId, Json, Quiet, Server, Store, Timeout


def register(app: typer.Typer) -> None:
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
    from dalsegno.cli.opening import find_execution
    from dalsegno.cli.places import where_to
    from dalsegno.cli.watching import watch_execution

    ending = watch_execution(
        where_to(store, server, app),
        lambda desk: find_execution(desk, execution),
        read_seconds(timeout),
        quiet=quiet,
        as_json=json,
    )
    raise typer.Exit(asyncio.run(ending))

"""``watch``: the live view of an execution that runs elsewhere."""

from __future__ import annotations

import typer

from dalsegno.cli.options import AppName, ExecutionId, Json, Quiet, Store, Timeout


def register(app: typer.Typer) -> None:
    app.command("watch")(watch)


def watch(
    execution: ExecutionId,
    store: Store = None,
    app: AppName = None,
    timeout: Timeout = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Watch an execution that runs elsewhere until it ends."""
    import asyncio

    from dalsegno.cli.documents import read_seconds
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.result import Command
    from dalsegno.cli.watching import watch_execution

    made = make_app(store, app)
    ending = watch_execution(
        made, execution, Command(made.url, app), read_seconds(timeout), quiet=quiet, as_json=json
    )
    raise typer.Exit(asyncio.run(ending))

"""``dev``: server, worker and scheduler in one process, for the machine one works at."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Json, Quiet, Store


def register(app: typer.Typer) -> None:
    app.command("dev")(dev)


def dev(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any that is free.")] = 8700,
    store: Store = None,
    app: AppName = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Everything in one process on this machine: server, worker, scheduler. HTTP nodes reach every address."""
    from dalsegno.cli.listening import Plan, listen
    from dalsegno.cli.opening import make_app
    from dalsegno.engine.loop import run
    from dalsegno.server import ServerSettings
    from dalsegno.server.application import Roles

    made = make_app(store, app)
    made.makes_secret_key = True
    run(listen(Plan(made, ServerSettings(port=port), Roles(), quiet, json)))

"""``dev``: server, worker and scheduler in one process, for the machine one works at."""

from __future__ import annotations

import typer

from dalsegno.cli.options import AppName, Json, Port, Quiet, Retention, Store, Streams


def register(app: typer.Typer) -> None:
    app.command("dev")(dev)


def dev(
    port: Port = 8700,
    store: Store = None,
    app: AppName = None,
    retention: Retention = None,
    streams: Streams = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Everything in one process on this machine: server, worker, scheduler. HTTP nodes reach every address."""
    from dalsegno.cli.keeping import with_retention
    from dalsegno.cli.listening import Plan, listen, with_streams
    from dalsegno.cli.opening import make_app
    from dalsegno.engine.loop import run
    from dalsegno.server import ServerSettings
    from dalsegno.server.application import Roles

    made = with_retention(make_app(store, app), retention)
    made.makes_secret_key = True
    settings = with_streams(ServerSettings(port=port), streams)
    run(listen(Plan(made, settings, Roles(), quiet, json)))

"""``server``: the HTTP API, with a worker and the timers beside it unless told otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Json, Quiet, Store


def register(app: typer.Typer) -> None:
    app.command("server")(server)


def server(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine only with keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any that is free.")] = 8700,
    store: Store = None,
    app: AppName = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOSTNAME",
            help="A name under which it is reached, such as flows.example.com; may be given several times.",
            show_default=False,
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Another origin whose pages may call it: https://ops.example.com; may be given several times.",
            show_default=False,
        ),
    ] = None,
    no_worker: Annotated[bool, typer.Option("--no-worker", help="Workers run elsewhere.")] = False,
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Timers and schedules run elsewhere.")
    ] = False,
    queues: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Queues of its worker. Default: default.", show_default=False),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Steps at the same time. Default: 100.", show_default=False),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds for requests and steps at the end. Default: 10.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C; requests and steps that run finish first.

    HTTP nodes reach public addresses only, and what DALSEGNO_EGRESS_ALLOW lists.
    """
    from dalsegno.cli.listening import Plan, listen
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.serving import configure
    from dalsegno.engine.loop import run
    from dalsegno.server import ServerSettings
    from dalsegno.server.application import Roles

    settings = ServerSettings(host, port, tuple(name or ()), tuple(origin or ()))
    made = configure(make_app(store, app), queues, concurrency, grace)
    run(listen(Plan(made, settings, Roles(not no_worker, not no_scheduler), quiet, json)))

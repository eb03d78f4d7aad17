"""``server``: the HTTP API, with a worker and the timers beside it unless told otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import (
    AppName,
    Checks,
    Concurrency,
    DefaultQuotas,
    Grace,
    HttpResponseBytes,
    HttpTimeout,
    Json,
    Port,
    Queues,
    Quiet,
    Retention,
    Store,
    Streams,
    WorkflowShare,
)


def register(app: typer.Typer) -> None:
    app.command("server")(server)


def server(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; beyond this machine only with keys.")
    ] = "127.0.0.1",
    port: Port = 8700,
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
    queues: Queues = None,
    concurrency: Concurrency = None,
    workflow_share: WorkflowShare = None,
    http_timeout: HttpTimeout = None,
    http_response_bytes: HttpResponseBytes = None,
    grace: Grace = None,
    retention: Retention = None,
    streams: Streams = None,
    quota: DefaultQuotas = None,
    check: Checks = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C; requests and steps that run finish first.

    HTTP nodes reach public addresses only, and what DALSEGNO_EGRESS_ALLOW lists.
    """
    from dataclasses import replace

    from dalsegno.cli.keeping import with_retention
    from dalsegno.cli.keys import read_default_quotas
    from dalsegno.cli.listening import Plan, listen, with_checks, with_streams
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.serving import OperatorLimits, configure
    from dalsegno.engine.loop import run
    from dalsegno.server import ServerSettings
    from dalsegno.server.application import Roles

    settings = with_streams(ServerSettings(host, port, tuple(name or ()), tuple(origin or ())), streams)
    settings = with_checks(replace(settings, quotas=read_default_quotas(quota or ())), check or ())
    limits = OperatorLimits(workflow_share, http_timeout, http_response_bytes)
    made = with_retention(configure(make_app(store, app), queues, concurrency, grace, limits), retention)
    run(listen(Plan(made, settings, Roles(not no_worker, not no_scheduler), quiet, json)))

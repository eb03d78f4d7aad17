"""``dev``, ``server``, ``worker`` and ``scheduler``: the long-running processes.

``dev`` is a server with worker and scheduler for development. ``server`` runs a worker and a scheduler unless options
switch them off.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import (
    AppName,
    Checks,
    Concurrency,
    DefaultQuotas,
    Grace,
    HealthPort,
    HttpResponseBytes,
    HttpTimeout,
    Json,
    Port,
    Processes,
    Queues,
    Quiet,
    Retention,
    Store,
    Streams,
    WorkflowShare,
)


def register_dev(app: typer.Typer) -> None:
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
    """Run server, worker and scheduler in one process.

    For the machine you develop on: HTTP nodes reach every address.
    """
    from dalsegno.cli.process.listen import Plan, listen, with_streams
    from dalsegno.cli.process.serve import with_retention
    from dalsegno.cli.target.target import make_app
    from dalsegno.engine.process import run
    from dalsegno.server import ServerSettings
    from dalsegno.server.application import Roles

    made = with_retention(make_app(store, app), retention)
    made.makes_secret_key = True
    settings = with_streams(ServerSettings(port=port), streams)
    run(listen(Plan(made, settings, Roles(), quiet, json)))


def register_scheduler(app: typer.Typer) -> None:
    app.command("scheduler")(scheduler)


def scheduler(
    store: Store = None,
    app: AppName = None,
    retention: Retention = None,
    health_port: HealthPort = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run timers, schedules and repairs, without a worker.

    Runs until SIGTERM or Ctrl-C; workers run elsewhere. `dalsegno worker`, `server` and `dev` have a scheduler of their
    own. Several are harmless.
    """
    from dalsegno.cli.process.serve import schedule, with_retention
    from dalsegno.cli.target.target import make_app
    from dalsegno.engine.process import run

    made = with_retention(make_app(store, app), retention)
    run(schedule(made, quiet=quiet, as_json=json, health=health_port))


def register_server(app: typer.Typer) -> None:
    app.command("server")(server)


def server(
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; beyond this machine only with keys.")
    ] = "127.0.0.1",
    port: Port = 8700,
    store: Store = None,
    app: AppName = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOSTNAME",
            help="Hostname under which the server is reached, e.g. flows.example.com; repeatable.",
            show_default=False,
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Another origin whose pages may call the API: https://ops.example.com; repeatable.",
            show_default=False,
        ),
    ] = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Run no worker; workers run elsewhere.")
    ] = False,
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Run no timers and schedules; they run elsewhere.")
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
    """Serve the HTTP API, with a worker and a scheduler.

    Runs until SIGTERM or Ctrl-C; running requests and steps finish first. HTTP nodes reach only public addresses and
    those that DALSEGNO_EGRESS_ALLOW lists.
    """
    from dataclasses import replace

    from dalsegno.cli.process.listen import Plan, listen, with_checks, with_streams
    from dalsegno.cli.process.serve import LimitOptions, configure, with_retention
    from dalsegno.cli.target.target import make_app
    from dalsegno.cli.views.operations import read_default_quotas
    from dalsegno.engine.process import run
    from dalsegno.server import ServerSettings
    from dalsegno.server.application import Roles

    settings = with_streams(ServerSettings(host, port, tuple(name or ()), tuple(origin or ())), streams)
    settings = with_checks(replace(settings, quotas=read_default_quotas(quota or ())), check or ())
    limits = LimitOptions(workflow_share, http_timeout, http_response_bytes)
    made = with_retention(configure(make_app(store, app), queues, concurrency, grace, limits), retention)
    run(listen(Plan(made, settings, Roles(not no_worker, not no_scheduler), quiet, json)))


def register_worker(app: typer.Typer) -> None:
    app.command("worker")(worker)


def worker(
    store: Store = None,
    app: AppName = None,
    queues: Queues = None,
    concurrency: Concurrency = None,
    processes: Processes = 1,
    workflow_share: WorkflowShare = None,
    http_timeout: HttpTimeout = None,
    http_response_bytes: HttpResponseBytes = None,
    grace: Grace = None,
    retention: Retention = None,
    health_port: HealthPort = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a worker, and the timers and schedules.

    Runs until SIGTERM or Ctrl-C; running steps finish first. HTTP nodes reach only public addresses and those that
    DALSEGNO_EGRESS_ALLOW lists. With several --processes each has the whole --concurrency and its own health port: the
    given port, the next, and so on.
    """
    from dalsegno.cli.process.serve import LimitOptions, configure, serve, with_retention
    from dalsegno.cli.target.target import make_app
    from dalsegno.engine.process import run

    limits = LimitOptions(workflow_share, http_timeout, http_response_bytes)
    made = with_retention(configure(make_app(store, app), queues, concurrency, grace, limits), retention)
    if processes == 1:
        run(serve(made, quiet=quiet, as_json=json, health=health_port))
        return
    import asyncio

    from dalsegno.cli.process.supervisor import WorkerGroup, supervise

    workers = WorkerGroup(
        processes, store, app, queues, concurrency, grace, retention, health_port, quiet, limits
    )
    asyncio.run(supervise(workers, made.url, as_json=json))

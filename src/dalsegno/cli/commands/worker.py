"""``worker``: runs what others start, until it is told to stop."""

from __future__ import annotations

import typer

from dalsegno.cli.options import (
    AppName,
    Concurrency,
    Grace,
    HealthPort,
    HttpResponseBytes,
    HttpTimeout,
    Json,
    Processes,
    Queues,
    Quiet,
    Retention,
    Store,
    WorkflowShare,
)


def register(app: typer.Typer) -> None:
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
    """Run a worker and the timers until SIGTERM or Ctrl-C; running steps finish first.

    HTTP nodes reach public addresses only, and what DALSEGNO_EGRESS_ALLOW lists. With several --processes each has the
    whole --concurrency, and its own health port: the one given, the next, and so on.
    """
    from dalsegno.cli.keeping import with_retention
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.serving import OperatorLimits, configure, serve
    from dalsegno.engine.loop import run

    limits = OperatorLimits(workflow_share, http_timeout, http_response_bytes)
    made = with_retention(configure(make_app(store, app), queues, concurrency, grace, limits), retention)
    if processes == 1:
        run(serve(made, quiet=quiet, as_json=json, health=health_port))
        return
    import asyncio

    from dalsegno.cli.supervising import Family, supervise

    family = Family(processes, store, app, queues, concurrency, grace, retention, health_port, quiet, limits)
    asyncio.run(supervise(family, made.url, as_json=json))

"""``worker``: runs what others start, until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Json, Quiet, Store


def register(app: typer.Typer) -> None:
    app.command("worker")(worker)


def worker(
    store: Store = None,
    app: AppName = None,
    queues: Annotated[
        str | None, typer.Option(metavar="A,B", help="Queues to serve. Default: default.", show_default=False)
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Steps at the same time. Default: 100.", show_default=False),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds for running steps at the end. Default: 10.", show_default=False),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a worker and the timers until SIGTERM or Ctrl-C; running steps finish first.

    HTTP nodes reach public addresses only, and what DALSEGNO_EGRESS_ALLOW lists.
    """
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.serving import configure, serve
    from dalsegno.engine.loop import run

    made = configure(make_app(store, app), queues, concurrency, grace)
    run(serve(made, quiet=quiet, as_json=json))

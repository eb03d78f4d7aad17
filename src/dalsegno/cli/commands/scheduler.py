"""``scheduler``: timers, schedules and repairs without a worker."""

from __future__ import annotations

import typer

from dalsegno.cli.options import AppName, HealthPort, Json, Quiet, Retention, Store


def register(app: typer.Typer) -> None:
    app.command("scheduler")(scheduler)


def scheduler(
    store: Store = None,
    app: AppName = None,
    retention: Retention = None,
    health_port: HealthPort = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run timers, schedules and repairs until SIGTERM or Ctrl-C; workers run elsewhere.

    `dalsegno worker`, `server` and `dev` have one of their own. Several are harmless.
    """
    from dalsegno.cli.keeping import with_retention
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.serving import schedule
    from dalsegno.engine.loop import run

    made = with_retention(make_app(store, app), retention)
    run(schedule(made, quiet=quiet, as_json=json, health=health_port))

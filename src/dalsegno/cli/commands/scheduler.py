"""``scheduler``: timers, schedules and repairs without a worker."""

from __future__ import annotations

import typer

from dalsegno.cli.options import AppName, Json, Quiet, Store


def register(app: typer.Typer) -> None:
    app.command("scheduler")(scheduler)


def scheduler(store: Store = None, app: AppName = None, quiet: Quiet = False, json: Json = False) -> None:
    """Run timers, schedules and repairs until SIGTERM or Ctrl-C; workers run elsewhere.

    `dalsegno worker`, `server` and `dev` have one of their own. Several are harmless.
    """
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.serving import schedule
    from dalsegno.engine.loop import run

    run(schedule(make_app(store, app), quiet=quiet, as_json=json))

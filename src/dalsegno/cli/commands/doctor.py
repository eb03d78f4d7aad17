"""``doctor``: what is wrong with this machine or store, and what helps."""

from __future__ import annotations

import typer

from dalsegno.cli.options import Json, Store


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(store: Store = None, json: Json = False) -> None:
    """Check this machine and the store; exit code 1 if something fails."""
    import asyncio

    from dalsegno.cli.doctor import as_object, examine, print_checks
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.output import emit

    checks = asyncio.run(examine(make_app(store)))
    if json:
        emit(as_object(checks))
    else:
        print_checks(checks)
    raise typer.Exit(1 if any(check.status == "fail" for check in checks) else 0)

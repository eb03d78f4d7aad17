"""``migrate``: the schema of a store, brought up to date before the processes that need it start."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import Json, Store


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate)


def migrate(
    store: Store = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only look; exit code 1 if something is to be done.")
    ] = False,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Also take away what only older versions needed; stop those first."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --finish: also while processes of older versions are there.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the store's schema up to date. Whatever runs workflows does the same when it starts, but for --finish.

    On PostgreSQL --finish is refused while workers of older versions are alive or older processes are connected.
    """
    import asyncio

    from dalsegno.cli.finishing import refuse_odd_options
    from dalsegno.cli.migrating import bring_up_to_date
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.output import emit
    from dalsegno.wiring import shown_url

    refuse_odd_options(check=check, finish=finish, force=force)
    url = make_app(store).url
    state = asyncio.run(bring_up_to_date(url, check=check, finish=finish, force=force))
    if json:
        emit({"store": shown_url(url), "before": state.before, "schema": state.after, "newest": state.newest})
    else:
        typer.echo(f"{shown_url(url)}: {state.sentence(finish=finish)}")
    raise typer.Exit(1 if check and state.after < state.newest else 0)

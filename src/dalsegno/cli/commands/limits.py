"""``limits``: how many of a key run at once, and how many may start in a period."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dalsegno.cli.group import family
from dalsegno.cli.options import AppName, Json, Limit, Place, Server, Store

if TYPE_CHECKING:
    from dalsegno.cli.books.limits import Limits

T = TypeVar("T")

Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The limit's key, such as gmail.", show_default=False)
]

commands = family("limits", "How many of a key run at once, and how many may start in a period.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("ls")
def list_limits(
    limit: Limit = 20, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """List keys with a limit, with slots in use, or with something waiting."""
    from dalsegno.cli.limits import as_object, print_limits
    from dalsegno.cli.output import emit

    found = _asked(Place(store, server, app), lambda limits: limits.page("", limit))
    if json:
        emit({"limits": [as_object(view) for view in found]})
    else:
        print_limits(found)


@commands.command("set")
def set_limit(
    key: Key,
    concurrency: Annotated[
        int | None, typer.Option(help="How many run at once; 0: nothing starts.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="How many may start in a period: 10/s, 100/m.", show_default=False)
    ] = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Set a limit, before whatever definitions say. It holds at once for all workers; what runs goes on."""
    from dalsegno.cli.limits import as_object, told
    from dalsegno.cli.output import emit

    view = _asked(Place(store, server, app), lambda limits: limits.set(key, concurrency, rate))
    if json:
        emit(as_object(view))
    else:
        print(f"{key}: {told(view)}; {view.in_use:,} in use, {view.waiting:,} waiting")


@commands.command("rm")
def remove_limit(
    key: Key, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Take a limit away: what definitions say holds again."""
    from dalsegno.cli.output import emit
    from dalsegno.errors import NotFound

    if not _asked(Place(store, server, app), lambda limits: limits.remove(key)):
        raise NotFound(f"no limit is set for the key '{key}'; `dalsegno limits ls` lists them")
    if json:
        emit({"key": key, "removed": True})
    else:
        print(f"{key}: as definitions say")


def _asked(place: Place, ask: Callable[[Limits], Awaitable[T]]) -> T:
    from dalsegno.cli.books.limits import LIMITS

    return LIMITS.use(place, ask)

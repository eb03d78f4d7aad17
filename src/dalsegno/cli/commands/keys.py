"""``keys``: who may use the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import family
from dalsegno.cli.options import Json, Place, Server, Store

if TYPE_CHECKING:
    from dalsegno.cli.books.keys import Keys

commands = family("keys", "API keys of a server: make, list and revoke them.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="read, run (includes read), worker (remote workers) or admin (everything); may be given several "
            "times. Default: run.",
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Valid for this long: 30d, 12h.", show_default=False),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Make a key and print it, this once. The first key closes an open server."""
    from dalsegno.cli.keys import as_object, print_new_key, read_scopes
    from dalsegno.cli.output import emit

    scopes = read_scopes(scope or ["run"])

    async def make(keys: Keys) -> None:
        key, text = await keys.add(name, scopes, expires)
        emit({**as_object(key), "key": text}) if json else print_new_key(key, text)

    _with_keys(Place(store, server), make, make_store=True)


@commands.command("ls")
def list_keys(
    revoked: Annotated[bool, typer.Option("--all", "-a", help="Also those that were revoked.")] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """List keys: what they may do, when they were last used, whether they are valid."""
    import time

    from dalsegno.cli.keys import as_object, print_keys
    from dalsegno.cli.output import emit

    async def look(keys: Keys) -> None:
        found = [key for key in await keys.all() if revoked or key.revoked_at is None]
        if json:
            emit({"keys": [as_object(key) for key in found]})
        else:
            print_keys(found, time.time())

    _with_keys(Place(store, server), look)


@commands.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its name or its id.", show_default=False)],
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Revoke a key: running servers refuse it within seconds."""
    from dalsegno.cli.keys import as_object
    from dalsegno.cli.output import emit

    async def end(keys: Keys) -> None:
        found = await keys.revoke(key)
        emit(as_object(found)) if json else print(f"{found.name}: revoked")

    _with_keys(Place(store, server), end)


def _with_keys(place: Place, work: Callable[[Keys], Awaitable[None]], *, make_store: bool = False) -> None:
    from dalsegno.cli.books.keys import KEYS
    from dalsegno.cli.problems import Unknown
    from dalsegno.errors import NotFound

    try:
        KEYS.use(place, work, make_store=make_store)
    except NotFound as error:
        raise Unknown(str(error), "`dalsegno keys ls` lists the keys of a store.") from None

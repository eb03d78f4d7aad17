"""``keys``: who may use the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import Json, Store

if TYPE_CHECKING:
    from dalsegno.server.keys import KeyBook

commands = typer.Typer(
    name="keys",
    help="API keys of a server: make, list and revoke them, in the store itself.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    json: Json = False,
) -> None:
    """Make a key and print it, this once. The first key closes an open server."""
    from dalsegno.cli.keys import as_object, print_new_key, read_scopes
    from dalsegno.cli.output import emit

    scopes = read_scopes(scope or ["run"])

    async def make(book: KeyBook) -> None:
        key, text = await book.add(name, scopes, expires, by="cli")
        emit({**as_object(key), "key": text}) if json else print_new_key(key, text)

    _with_book(make, store, make_store=True)


@commands.command("ls")
def list_keys(
    revoked: Annotated[bool, typer.Option("--all", "-a", help="Also those that were revoked.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """List keys: what they may do, when they were last used, whether they are valid."""
    from dalsegno.cli.keys import as_object, print_keys
    from dalsegno.cli.output import emit

    async def look(book: KeyBook) -> None:
        found = [key for key in await book.all() if revoked or key.revoked_at is None]
        if json:
            emit({"keys": [as_object(key) for key in found]})
        else:
            print_keys(found, book.clock.now())

    _with_book(look, store)


@commands.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its name or its id.", show_default=False)],
    store: Store = None,
    json: Json = False,
) -> None:
    """Revoke a key: running servers refuse it within seconds."""
    from dalsegno.cli.keys import as_object
    from dalsegno.cli.output import emit

    async def end(book: KeyBook) -> None:
        found = await book.revoke((await book.find(key)).id)
        emit(as_object(found)) if json else print(f"{found.name}: revoked")

    _with_book(end, store)


def _with_book(
    work: Callable[[KeyBook], Awaitable[None]], store: str | None, *, make_store: bool = False
) -> None:
    import asyncio

    from dalsegno.cli.opening import make_app, opened
    from dalsegno.cli.problems import Unknown
    from dalsegno.errors import NotFound
    from dalsegno.server.keys import KeyBook

    async def run() -> None:
        async with opened(make_app(store), create=make_store) as client:
            try:
                await work(KeyBook(client.stack.records, client.stack.clock))
            except NotFound as error:
                raise Unknown(str(error), "`dalsegno keys ls` lists the keys of a store.") from None

    asyncio.run(run())

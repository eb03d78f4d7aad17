"""``keys``: API keys of a server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import Json, Place, Server, Store

if TYPE_CHECKING:
    from dalsegno.cli.target.administration import Keys

commands = command_group("keys", "API keys of a server: add, list, change, revoke.")


QueueNames: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        metavar="QUEUE",
        help="With the scope worker: a queue whose tasks the key may take, or '*' for all; repeatable.",
        show_default=False,
    ),
]
StartsPerMinute: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Quota of starts; 0: no limit, default: the server's quota.", show_default=False
    ),
]
BytesPerMinute: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="Quota of bytes in request and response bodies.", show_default=False),
]
OpenStreams: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="Quota of event streams and waiting calls.", show_default=False),
]
StoredExecutions: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="Quota of stored executions that the key started.", show_default=False),
]


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's owner.", show_default=False)],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help="read, run (includes read), worker (remote workers) or admin (everything); repeatable. "
            "Default: run.",
            show_default=False,
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Valid for this long: 30d, 12h.", show_default=False),
    ] = None,
    queue: QueueNames = None,
    starts_per_minute: StartsPerMinute = None,
    bytes_per_minute: BytesPerMinute = None,
    open_streams: OpenStreams = None,
    stored_executions: StoredExecutions = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Create an API key and print it once. The first key closes an open server.

    A key with the scope worker names the queues whose tasks it may take: --queue images. Quotas are off unless they are
    set here or at the server.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import key_object as as_object
    from dalsegno.cli.views.operations import print_new_key, read_scopes

    quotas = _quotas(starts_per_minute, bytes_per_minute, open_streams, stored_executions)
    scopes = read_scopes(scope or ["run"])

    async def make(keys: Keys) -> None:
        key, text = await keys.aadd(name, scopes, expires=expires, queues=queue or None, quotas=quotas)
        emit({**as_object(key), "key": text}) if json else print_new_key(key, text)

    _with_keys(Place(store, server), make, make_store=True)


@commands.command("ls")
def list_keys(
    revoked: Annotated[bool, typer.Option("--all", "-a", help="Include revoked keys.")] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """List keys: scopes, last use, validity."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import key_object as as_object
    from dalsegno.cli.views.operations import print_keys

    async def look(keys: Keys) -> None:
        found = await keys.alist(revoked=revoked)
        if json:
            emit({"keys": [as_object(key) for key in found]})
        else:
            print_keys(found, time.time())

    _with_keys(Place(store, server), look)


@commands.command("set")
def set_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's name or id.", show_default=False)],
    queue: QueueNames = None,
    starts_per_minute: StartsPerMinute = None,
    bytes_per_minute: BytesPerMinute = None,
    open_streams: OpenStreams = None,
    stored_executions: StoredExecutions = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Change queues and quotas of a key. Running servers apply them within seconds."""
    from dalsegno.cli.errors import Refusal
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import key_object as as_object
    from dalsegno.cli.views.operations import print_keys

    quotas = _quotas(starts_per_minute, bytes_per_minute, open_streams, stored_executions)
    if not queue and not quotas:
        raise Refusal("nothing is to be changed", "Give --queue or a quota, such as --starts-per-minute 600.")

    async def change(keys: Keys) -> None:
        found = await keys.aset(key, queues=queue or None, quotas=quotas)
        emit(as_object(found)) if json else print_keys([found], time.time())

    _with_keys(Place(store, server), change)


@commands.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's name or id.", show_default=False)],
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Revoke a key. Running servers refuse it within seconds."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import key_object as as_object

    async def end(keys: Keys) -> None:
        found = await keys.arevoke(key)
        emit(as_object(found)) if json else print(f"{found.name}: revoked")

    _with_keys(Place(store, server), end)


def _quotas(
    starts: str | None, sent: str | None, streams: str | None, stored: str | None
) -> dict[str, int | None]:
    from dalsegno.cli.views.operations import read_quota_options

    return read_quota_options(
        {
            "starts_per_minute": starts,
            "bytes_per_minute": sent,
            "open_streams": streams,
            "stored_executions": stored,
        }
    )


def _with_keys(place: Place, work: Callable[[Keys], Awaitable[None]], *, make_store: bool = False) -> None:
    from dalsegno.cli.errors import Unknown
    from dalsegno.cli.target.administration import KEYS
    from dalsegno.errors import NotFound

    try:
        KEYS.use(place, work, make_store=make_store)
    except NotFound as error:
        raise Unknown(str(error), "`dalsegno keys ls` lists the keys of a store.") from None

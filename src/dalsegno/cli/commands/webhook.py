"""``webhook``: workflows that other systems start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import family
from dalsegno.cli.options import Json, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.books.webhooks import Webhooks

Id = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id.", show_default=False)]

commands = family("webhook", "Workflows that other systems start, by signed calls of a server.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("add")
def add(
    id: Id,
    workflow: Annotated[
        str,
        typer.Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="What is started: build or build@stable.",
            show_default=False,
        ),
    ],
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="PATH",
            help="Deliveries come to /v1/hooks/PATH; without it PATH is the id.",
            show_default=False,
        ),
    ] = None,
    style: Annotated[
        str,
        typer.Option(
            "--style",
            metavar="STYLE",
            help="How the sender signs: github, stripe, slack, standard, plain, token or none.",
        ),
    ] = "github",
    env: Annotated[
        str | None,
        typer.Option(
            "--env", metavar="VARIABLE", help="Take the secret from the environment.", show_default=False
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Take the secret from stdin.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stored secret, change the rest.")] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME",
            help="A header that the workflow gets; several times.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="The sender waits so long for the output.", show_default=False),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Add a webhook, or change one. Without a secret of the sender's, one is made and printed once."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.webhooks import as_object, print_added, print_warning, read_setting, secret_for

    secret, made = secret_for(style, env, from_stdin=stdin, keep=keep)
    setting = read_setting(
        path=path or id,
        workflow=workflow,
        secret=secret,
        signature={"style": style},
        headers=header or [],
        sync_seconds=wait,
    )

    async def put(webhooks: Webhooks) -> None:
        webhook, is_new, warning = await webhooks.put(id, setting)
        if json:
            emit({**as_object(webhook), **({"secret": secret} if made else {})})
        else:
            print_added(webhook, secret if made else None, is_new=is_new)
        if warning is not None:
            print_warning(warning)

    _with_webhooks(Place(store, server), put)


@commands.command("ls")
def list_webhooks(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List webhooks, without their secrets."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.webhooks import as_object, print_webhooks

    async def look(webhooks: Webhooks) -> None:
        found = await webhooks.all()
        emit({"webhooks": [as_object(each) for each in found]}) if json else print_webhooks(found)

    _with_webhooks(Place(store, server), look)


@commands.command("rm")
def remove(id: Id, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove a webhook and its secret."""
    from dalsegno.cli.output import emit

    async def drop(webhooks: Webhooks) -> None:
        await webhooks.remove(id)
        emit({"removed": id}) if json else print(f"removed webhook '{id}'")

    _with_webhooks(Place(store, server), drop)


@commands.command("test")
def try_out(
    id: Id,
    data: Annotated[
        str, typer.Option("--data", "-d", metavar="JSON", help="The body: JSON, @FILE, or - for stdin.")
    ] = "{}",
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="The server that gets the delivery. Default: the one of --server, else http://127.0.0.1:8700.",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="VARIABLE",
            help="Sign with the secret in this variable; needed with --server, which gives out none.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Send a delivery as the sender would, signed with the stored secret, and show the answer.

    It starts the workflow. Exit code 1 if the server does not take it.
    """
    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.output import emit
    from dalsegno.cli.webhooks import secret_in, send_signed

    body = read_payload(data, "data")

    secret = secret_in(env) if env is not None else None

    async def send(webhooks: Webhooks) -> None:
        status, answer = await send_signed(webhooks, id, body, to, secret)
        emit({"status": status, "answer": answer}) if json else print(f"{status} {answer}")
        if status >= 400:
            raise typer.Exit(1)

    _with_webhooks(Place(store, server), send)


def _with_webhooks(place: Place, work: Callable[[Webhooks], Awaitable[None]]) -> None:
    from dalsegno.cli.books.webhooks import WEBHOOKS

    WEBHOOKS.use(place, work)

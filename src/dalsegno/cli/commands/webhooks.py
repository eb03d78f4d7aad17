"""``webhook``: workflows that other systems start by HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import Json, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.target.administration import Sender, Webhooks

Id = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id.", show_default=False)]

commands = command_group(
    "webhook", "Start workflows from other systems by signed HTTP calls. Servers receive the calls."
)


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
            help="Workflow to start: build or build@stable.",
            show_default=False,
        ),
    ],
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="PATH",
            help="Deliveries arrive at /v1/hooks/PATH. Default: the id.",
            show_default=False,
        ),
    ] = None,
    style: Annotated[
        str,
        typer.Option(
            "--style",
            metavar="STYLE",
            help="Signature scheme of the sender: github, stripe, slack, standard, plain, token or none.",
        ),
    ] = "github",
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="VARIABLE",
            help="Read the secret from this environment variable.",
            show_default=False,
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the secret from stdin.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stored secret, change the rest.")] = False,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME",
            help="Request header that the workflow gets; repeatable.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Time for which the sender waits for the output.", show_default=False
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Add or change a webhook. Without a secret of the sender, one is generated and printed once."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.webhooks import as_object, print_added, print_warning, read_style, secret_for

    signature = read_style(style)
    secret, made = secret_for(style, env, from_stdin=stdin, keep=keep)

    async def put(webhooks: Webhooks) -> None:
        webhook, is_new, warning = await webhooks.aput(
            id,
            workflow,
            path=path or id,
            secret=secret,
            signature=signature,
            headers=header or [],
            sync_seconds=wait,
        )
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
    from dalsegno.cli.views.webhooks import as_object, print_webhooks

    async def look(webhooks: Webhooks) -> None:
        found = await webhooks.alist()
        emit({"webhooks": [as_object(each) for each in found]}) if json else print_webhooks(found)

    _with_webhooks(Place(store, server), look)


@commands.command("rm")
def remove(id: Id, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove a webhook and its secret."""
    from dalsegno.cli.output import emit

    async def drop(webhooks: Webhooks) -> None:
        await webhooks.aremove(id)
        emit({"removed": id}) if json else print(f"removed webhook '{id}'")

    _with_webhooks(Place(store, server), drop)


@commands.command("test")
def try_out(
    id: Id,
    data: Annotated[
        str, typer.Option("--data", "-d", metavar="JSON", help="Request body: JSON, @FILE, or - for stdin.")
    ] = "{}",
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="Server that receives the delivery. Default: that of --server, else http://127.0.0.1:8700.",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="VARIABLE",
            help="Sign with the secret in this environment variable; required with --server, which returns no secrets.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Send a signed test delivery and show the response.

    It is signed with the stored secret, as the sender would sign it, and starts the workflow. Exit code 1 if the server
    does not accept it.
    """
    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.administration import SENDERS
    from dalsegno.cli.views.webhooks import secret_in, send_signed

    body = read_payload(data, "data")

    secret = secret_in(env) if env is not None else None

    async def send(sender: Sender) -> None:
        status, answer = await send_signed(sender, id, body, to, secret)
        emit({"status": status, "answer": answer}) if json else print(f"{status} {answer}")
        if status >= 400:
            raise typer.Exit(1)

    SENDERS.use(Place(store, server), send)


def _with_webhooks(place: Place, work: Callable[[Webhooks], Awaitable[None]]) -> None:
    from dalsegno.cli.target.administration import WEBHOOKS

    WEBHOOKS.use(place, work)

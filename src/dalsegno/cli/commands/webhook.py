"""``webhook``: workflows that other systems start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import Json, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.server.webhooks import WebhookBook

Id = Annotated[str, typer.Argument(metavar="ID", help="The webhook's id.", show_default=False)]

commands = typer.Typer(
    name="webhook",
    help="Workflows that other systems start, by signed calls of a server.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
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
            help="What is started: build or build@stable.",
            show_default=False,
        ),
    ],
    path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Deliveries come to /v1/hooks/PATH; without it PATH is the id.",
            show_default=False,
        ),
    ] = None,
    style: Annotated[
        str,
        typer.Option(
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
    json: Json = False,
) -> None:
    """Add a webhook, or change one. Without a secret of the sender's, one is made and printed once."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.webhooks import as_object, print_added, read_setting, secret_for

    secret, made = secret_for(style, env, from_stdin=stdin, keep=keep)
    setting = read_setting(
        path=path or id,
        workflow=workflow,
        secret=secret,
        signature={"style": style},
        headers=header or [],
        sync_seconds=wait,
    )

    async def put(book: WebhookBook) -> None:
        import time

        book.vault.keys.may_make = True  # one person, one machine
        webhook, is_new = await book.put(setting.named(id, time.time()), setting.secret)
        if json:
            emit({**as_object(webhook), **({"secret": secret} if made else {})})
        else:
            print_added(webhook, secret if made else None, is_new=is_new)

    _with_book(put, store)


@commands.command("ls")
def list_webhooks(store: Store = None, json: Json = False) -> None:
    """List webhooks, without their secrets."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.webhooks import all_of, as_object, print_webhooks

    async def look(book: WebhookBook) -> None:
        found = await all_of(book)
        emit({"webhooks": [as_object(each) for each in found]}) if json else print_webhooks(found)

    _with_book(look, store)


@commands.command("rm")
def remove(id: Id, store: Store = None, json: Json = False) -> None:
    """Remove a webhook and its secret."""
    from dalsegno.cli.output import emit

    async def drop(book: WebhookBook) -> None:
        await book.remove(id)
        emit({"removed": id}) if json else print(f"removed webhook '{id}'")

    _with_book(drop, store)


@commands.command("test")
def try_out(
    id: Id,
    data: Annotated[
        str, typer.Option("--data", "-d", metavar="JSON", help="The body: JSON, @FILE, or - for stdin.")
    ] = "{}",
    to: Annotated[
        str, typer.Option("--to", metavar="URL", help="The server that gets the delivery.")
    ] = "http://127.0.0.1:8700",
    store: Store = None,
    json: Json = False,
) -> None:
    """Send a delivery as the sender would, signed with the stored secret, and show the answer.

    It starts the workflow. Exit code 1 if the server does not take it.
    """
    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.output import emit
    from dalsegno.cli.webhooks import send_signed

    body = read_payload(data, "data")

    async def send(book: WebhookBook) -> None:
        status, answer = await send_signed(book, id, body, to)
        emit({"status": status, "answer": answer}) if json else print(f"{status} {answer}")
        if status >= 400:
            raise typer.Exit(1)

    _with_book(send, store)


def _with_book(work: Callable[[WebhookBook], Awaitable[None]], store: str | None) -> None:
    import asyncio

    from dalsegno.cli.opening import make_app, opened
    from dalsegno.server.webhooks import WebhookBook

    async def run() -> None:
        made = make_app(store)
        async with opened(made, create=True):
            await work(WebhookBook(made.client.stack.records, made.engine.vault))

    asyncio.run(run())

"""``alerts``: who is told when executions fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import Json, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.app import App
    from dalsegno.server.alerts import AlertBook

Id = Annotated[str, typer.Argument(metavar="ID", help="The alert's id.", show_default=False)]

commands = typer.Typer(
    name="alerts",
    help="Who is told when executions fail. Servers send the messages.",
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
        str | None,
        typer.Option("--workflow", "-w", metavar="NAME", help="Only of this workflow.", show_default=False),
    ] = None,
    mail: Annotated[
        list[str] | None,
        typer.Option("--mail", metavar="ADDRESS", help="Where it goes; several times.", show_default=False),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="VARIABLE",
            help="Take the URL of the receiver from the environment.",
            show_default=False,
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Take the URL from stdin.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Between two messages; what fails meanwhile is grouped.")
    ] = 60.0,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add an alert, or change one. URLs of chats are secrets: they come from the environment or stdin."""
    from dalsegno.cli.alerts import as_object, url_for
    from dalsegno.cli.output import emit
    from dalsegno.server.alerts import Alert

    url = url_for(mail or (), env, from_stdin=stdin)

    async def put(app: App, book: AlertBook) -> None:
        book.vault.keys.may_make = True  # one person, one machine
        new = Alert(id, workflow, tuple(mail or ()), every, created_at=app.client.stack.clock.now())
        alert, is_new = await book.put(new, url)
        if json:
            emit(as_object(alert))
        else:
            print(f"{'added' if is_new else 'changed'} alert '{id}': {alert.target}")

    _with_book(put, store)


@commands.command("ls")
def list_alerts(store: Store = None, json: Json = False) -> None:
    """List alerts, without what may be secret in their addresses."""
    from dalsegno.cli.alerts import all_of, as_object, print_alerts
    from dalsegno.cli.output import emit

    async def look(app: App, book: AlertBook) -> None:
        del app
        found = await all_of(book)
        emit({"alerts": [as_object(each) for each in found]}) if json else print_alerts(found)

    _with_book(look, store)


@commands.command("rm")
def remove(id: Id, store: Store = None, json: Json = False) -> None:
    """Remove an alert. What it has not told yet is not told."""
    from dalsegno.cli.output import emit

    async def drop(app: App, book: AlertBook) -> None:
        del app
        await book.remove(id)
        emit({"removed": id}) if json else print(f"removed alert '{id}'")

    _with_book(drop, store)


@commands.command("test")
def try_out(id: Id, store: Store = None, json: Json = False) -> None:
    """Send a message from here, now. Exit code 1 if it is not taken."""
    from dalsegno.cli.output import emit
    from dalsegno.server.alerting import Alerting
    from dalsegno.server.office import Office
    from dalsegno.server.settings import ServerSettings

    async def send(app: App, book: AlertBook) -> None:
        await Alerting(Office(app, ServerSettings())).test(await book.get(id))
        emit({"delivered": True}) if json else print("delivered")

    _with_book(send, store)


def _with_book(work: Callable[[App, AlertBook], Awaitable[None]], store: str | None) -> None:
    import asyncio

    from dalsegno.cli.opening import make_app, opened
    from dalsegno.server.alerts import AlertBook

    async def run() -> None:
        made = make_app(store)
        async with opened(made, create=True):
            await work(made, AlertBook(made.client.stack.records, made.engine.vault))

    asyncio.run(run())

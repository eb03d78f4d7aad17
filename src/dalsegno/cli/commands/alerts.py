"""``alerts``: who is told when executions fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import family
from dalsegno.cli.options import Json, OfWorkflow, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.books.alerts import Alerts

Id = Annotated[str, typer.Argument(metavar="ID", help="The alert's id.", show_default=False)]

commands = family("alerts", "Who is told when executions fail. Servers send the messages.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("add")
def add(
    id: Id,
    workflow: OfWorkflow = None,
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
    server: Server = None,
    json: Json = False,
) -> None:
    """Add an alert, or change one. URLs of chats are secrets: they come from the environment or stdin."""
    from dalsegno.cli.alerts import as_object, print_secret, url_for
    from dalsegno.cli.output import emit
    from dalsegno.server.alerts import Alert

    url = url_for(mail or (), env, from_stdin=stdin)

    async def put(alerts: Alerts) -> None:
        saved = await alerts.put(Alert(id, workflow, tuple(mail or ()), every), url)
        if json:
            emit({**as_object(saved.alert), "secret": saved.secret})
            return
        print(f"{'added' if saved.is_new else 'changed'} alert '{id}': {saved.alert.target}")
        if saved.secret is not None:
            print_secret(saved.secret)

    _with_alerts(Place(store, server), put)


@commands.command("rotate")
def rotate(
    id: Id,
    overlap: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the secret before signs as well.")
    ] = "24h",
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Make a new secret for the signatures of an alert's messages, and show it once."""
    from dalsegno.cli.alerts import print_secret
    from dalsegno.cli.documents import read_seconds
    from dalsegno.cli.output import emit

    seconds = read_seconds(overlap, "overlap")

    async def change(alerts: Alerts) -> None:
        secret = await alerts.rotate(id, seconds or 0.0)
        emit({"id": id, "secret": secret}) if json else print_secret(secret)

    _with_alerts(Place(store, server), change)


@commands.command("ls")
def list_alerts(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List alerts, without what may be secret in their addresses."""
    from dalsegno.cli.alerts import as_object, print_alerts
    from dalsegno.cli.output import emit

    async def look(alerts: Alerts) -> None:
        found = await alerts.all()
        emit({"alerts": [as_object(each) for each in found]}) if json else print_alerts(found)

    _with_alerts(Place(store, server), look)


@commands.command("rm")
def remove(id: Id, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove an alert. What it has not told yet is not told."""
    from dalsegno.cli.output import emit

    async def drop(alerts: Alerts) -> None:
        await alerts.remove(id)
        emit({"removed": id}) if json else print(f"removed alert '{id}'")

    _with_alerts(Place(store, server), drop)


@commands.command("test")
def try_out(id: Id, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Send a message now, from here or from the server. Exit code 2 if it is not taken."""
    from dalsegno.cli.output import emit

    async def send(alerts: Alerts) -> None:
        await alerts.test(id)
        emit({"delivered": True}) if json else print("delivered")

    _with_alerts(Place(store, server), send)


def _with_alerts(place: Place, work: Callable[[Alerts], Awaitable[None]]) -> None:
    from dalsegno.cli.books.alerts import ALERTS

    ALERTS.use(place, work)

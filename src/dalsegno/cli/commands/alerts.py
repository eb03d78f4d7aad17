"""``alerts``: messages when executions fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import Json, OfWorkflow, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.target.administration import Alerts

Id = Annotated[str, typer.Argument(metavar="ID", help="The alert's id.", show_default=False)]

commands = command_group("alerts", "Messages by mail or HTTP when executions fail. Servers send them.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("add")
def add(
    id: Id,
    workflow: OfWorkflow = None,
    mail: Annotated[
        list[str] | None,
        typer.Option("--mail", metavar="ADDRESS", help="Recipient; repeatable.", show_default=False),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="VARIABLE",
            help="Read the receiver's URL from this environment variable.",
            show_default=False,
        ),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the receiver's URL from stdin.")] = False,
    every: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time between two messages; failures in between are grouped."),
    ] = 60.0,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Add or change an alert. Chat URLs are secrets: pass them by environment variable or stdin."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import alert_object as as_object
    from dalsegno.cli.views.operations import print_secret, url_for

    url = url_for(mail or (), env, from_stdin=stdin)

    async def put(alerts: Alerts) -> None:
        saved = await alerts.aput(id, url=url, mail=mail or (), workflow=workflow, every=every)
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
        str, typer.Option(metavar="DURATION", help="How long the previous secret also signs.")
    ] = "24h",
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Make a new signing secret for an alert; show it once."""
    from dalsegno.cli.documents import read_seconds
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import print_secret

    seconds = read_seconds(overlap, "overlap")

    async def change(alerts: Alerts) -> None:
        secret = await alerts.arotate(id, overlap=seconds or 0.0)
        emit({"id": id, "secret": secret}) if json else print_secret(secret)

    _with_alerts(Place(store, server), change)


@commands.command("ls")
def list_alerts(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List alerts, without the secret parts of their addresses."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import alert_object as as_object
    from dalsegno.cli.views.operations import print_alerts

    async def look(alerts: Alerts) -> None:
        found = await alerts.alist()
        emit({"alerts": [as_object(each) for each in found]}) if json else print_alerts(found)

    _with_alerts(Place(store, server), look)


@commands.command("rm")
def remove(id: Id, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove an alert. Its pending messages are not sent."""
    from dalsegno.cli.output import emit

    async def drop(alerts: Alerts) -> None:
        await alerts.aremove(id)
        emit({"removed": id}) if json else print(f"removed alert '{id}'")

    _with_alerts(Place(store, server), drop)


@commands.command("test")
def try_out(id: Id, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Send a test message now. It is sent from here, or from the server. Exit code 2 if it is not accepted."""
    from dalsegno.cli.output import emit

    async def send(alerts: Alerts) -> None:
        await alerts.atest(id)
        emit({"delivered": True}) if json else print("delivered")

    _with_alerts(Place(store, server), send)


def _with_alerts(place: Place, work: Callable[[Alerts], Awaitable[None]]) -> None:
    from dalsegno.cli.target.administration import ALERTS

    ALERTS.use(place, work)

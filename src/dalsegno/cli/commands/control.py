"""``trigger``, ``signal``, ``pause``, ``cancel`` and ``terminate``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import ExecutionId, Json, Server, Store

if TYPE_CHECKING:
    from dalsegno.cli.desk import Desk


def register(app: typer.Typer) -> None:
    app.command("trigger")(trigger)
    app.command("signal")(signal)
    app.command("pause")(pause)
    app.command("cancel")(cancel)
    app.command("terminate")(terminate)


def trigger(
    execution: ExecutionId,
    input: Annotated[
        str | None,
        typer.Option(
            "--input",
            "-i",
            metavar="JSON",
            help="Replaces the submitted input: JSON, @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Begin an execution that was submitted or delayed. One that has begun is left alone."""
    from dalsegno.cli.documents import read_payload
    from dalsegno.engine.pending import UNCHANGED

    given = UNCHANGED if input is None else read_payload(input)
    _command(
        execution, store, server, lambda client, found: client.trigger(found, given), "triggered", json=json
    )


def signal(
    execution: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)],
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload",
            "-p",
            metavar="JSON",
            help="What it carries: JSON, @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="TEXT", help="A second signal with it is the first.", show_default=False
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Send a signal to an execution. It is kept until the workflow takes it, in order per name."""
    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.signals import came_before, kept_for_later, waited_signals

    carried = read_payload(payload, "payload")

    async def send(client: Desk, found: str) -> str:
        waited = await waited_signals(client, found)  # before: afterwards it may have been taken
        before = await came_before(client, found, id) if id is not None else None
        await client.signal(found, name, carried, id)
        if before is not None:
            return f"signal '{name}' with the id '{id}' was sent to {found} before (event {before}): nothing changed"
        return f"sent signal '{name}' to {found}{kept_for_later(name, waited)}"

    _command(execution, store, server, send, json=json)


def pause(execution: ExecutionId, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Pause an execution: what runs finishes, nothing new begins. `resume` ends the pause."""
    _command(execution, store, server, lambda client, found: client.pause(found), "paused", json=json)


def cancel(
    execution: ExecutionId,
    reason: Annotated[str | None, typer.Option(help="Recorded in its history.", show_default=False)] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Cancel an execution: graphs end at once, scripts and Python workflows clean up first."""

    async def ask(client: Desk, found: str) -> str | None:
        await client.cancel(found, reason)
        state = (await client.status(found)).state
        return None if state == "CANCELLED" else f"asked {found} to end; it cleans up first"

    _command(execution, store, server, ask, "cancelled", json=json)


def terminate(
    execution: ExecutionId,
    reason: Annotated[str | None, typer.Option(help="Recorded in its history.", show_default=False)] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """End an execution at once, without a clean-up. `dalsegno dead` lists what was left."""
    _command(
        execution,
        store,
        server,
        lambda client, found: client.terminate(found, reason),
        "terminated",
        json=json,
    )


def _command(
    named: str,
    store: str | None,
    server: str | None,
    act: Callable[[Desk, str], Awaitable[str | None]],
    done: str = "",
    *,
    json: bool,
) -> None:
    """``act`` may return what is said instead of ``done`` and the execution's id."""
    import asyncio

    from dalsegno.cli.opening import find_execution
    from dalsegno.cli.output import emit, execution_names
    from dalsegno.cli.places import reached, where_to

    async def run() -> None:
        async with reached(where_to(store, server)) as client:
            found = await find_execution(client, named)
            said = await act(client, found)
            view = await client.status(found)
        if json:
            emit(execution_names(found, view.state))
        else:
            print(said or f"{done} {found}")

    asyncio.run(run())

"""``signal``, ``pause`` and ``cancel``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import ExecutionId, Json, Store

if TYPE_CHECKING:
    from dalsegno.engine.client import Client


def register(app: typer.Typer) -> None:
    app.command("signal")(signal)
    app.command("pause")(pause)
    app.command("cancel")(cancel)


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
    json: Json = False,
) -> None:
    """Send a signal to an execution. It is kept until the workflow takes it, in order per name."""
    from dalsegno.cli.documents import read_payload

    carried = read_payload(payload, "payload")
    done = f"sent signal '{name}' to"
    _command(execution, store, lambda client, found: client.signal(found, name, carried, id), done, json=json)


def pause(execution: ExecutionId, store: Store = None, json: Json = False) -> None:
    """Pause an execution: what runs finishes, nothing new begins. `resume` ends the pause."""
    _command(execution, store, lambda client, found: client.pause(found), "paused", json=json)


def cancel(
    execution: ExecutionId,
    reason: Annotated[str | None, typer.Option(help="Recorded in its history.", show_default=False)] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Cancel an execution for good. A script may clean up first; a second cancel ends it at once."""
    _command(execution, store, lambda client, found: client.cancel(found, reason), "cancelled", json=json)


def _command(
    named: str, store: str | None, act: Callable[[Client, str], Awaitable[None]], done: str, *, json: bool
) -> None:
    import asyncio

    from dalsegno.cli.opening import find_execution, make_app, opened
    from dalsegno.cli.output import emit

    async def run() -> None:
        async with opened(make_app(store)) as client:
            found = await find_execution(client, named)
            await act(client, found)
            view = await client.status(found)
        if json:
            emit({"execution_id": found, "status": view.state})
        else:
            print(f"{done} {found}")

    asyncio.run(run())

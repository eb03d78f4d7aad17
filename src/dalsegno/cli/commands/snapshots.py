"""``snapshots``: seals of the stored states of Python workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import Json, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.engine.client import Client
    from dalsegno.engine.secrets.snapshot_seals import SnapshotSeals

T = TypeVar("T")

commands = command_group(
    "snapshots",
    "Seals of the stored states of Python workflows. The commands work on the store itself, not through a server.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("status")
def status(store: Store = None, json: Json = False) -> None:
    """Show the state of sealing.

    Since when snapshots are sealed, until when unsealed ones are accepted, and how many are left.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import Survey, sentence, survey

    async def look(client: Client, seals: SnapshotSeals) -> tuple[Survey, float]:
        return await survey(client, seals), client.stack.clock.now()

    found, now = _at_the_store(store, look)
    if not json:
        print(sentence(found, now))
        return
    sealing = found.sealing
    emit(
        {
            "sealed_since": sealing.since if sealing is not None else None,
            "accept_until": sealing.accept_until if sealing is not None else None,
            "sealed": dict(found.sealed),
            "sealed_by_hand": found.by_hand,
            "unsealed": found.unsealed,
        }
    )


@commands.command("seal")
def seal(store: Store = None, json: Json = False) -> None:
    """Seal the snapshots in the store with the first key.

    Snapshots of unfinished executions and the code they run are sealed as they are: do so only if you trust the content
    of the store. The command may be run again. Run it before an old key is removed: what the old key sealed is then
    sealed with the first key.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import seal_all

    snapshots, programs = _at_the_store(store, seal_all)
    if json:
        emit({"snapshots": snapshots, "programs": programs})
    else:
        print(f"sealed {snapshots} snapshots, and the code of {programs} versions")


@commands.command("accept-until")
def accept_until(
    date: Annotated[
        str, typer.Argument(metavar="DATE", help="2027-03-31, 30d (from now) or now.", show_default=False)
    ],
    store: Store = None,
    json: Json = False,
) -> None:
    """Set until when unsealed snapshots are accepted. Workers apply it within half a minute."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import date_of, moment_of

    async def change(client: Client, seals: SnapshotSeals) -> float:
        moment = moment_of(date, client.stack.clock.now())
        return (await seals.accept_until(moment)).accept_until

    until = _at_the_store(store, change)
    emit({"accept_until": until}) if json else print(
        f"unsealed snapshots are accepted until {date_of(until)}"
    )


def _at_the_store(store: str | None, work: Callable[[Client, SnapshotSeals], Awaitable[T]]) -> Any:
    import asyncio

    from dalsegno.cli.target.target import make_app, opened

    async def run() -> T:
        app = make_app(store)
        async with opened(app) as client:
            return await work(client, app.engine.seals)

    return asyncio.run(run())

"""Which workflows a command is about: those of a store that is opened here, or those of a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dalsegno.app import App
from dalsegno.cli.desk import Desk
from dalsegno.cli.opening import make_app, opened
from dalsegno.cli.result import Command
from dalsegno.cli.stores import server_of


@dataclass(frozen=True, slots=True)
class Where:
    app: App
    """Of a server only its node types are used."""
    command: Command
    server: str | None = None


def where_to(store: str | None, server: str | None, app: str | None = None) -> Where:
    there = server_of(server, store)
    if there is not None:
        return Where(make_app("memory:", app), Command("", app, there), there)
    made = make_app(store, app)
    return Where(made, Command(made.url, app))


@asynccontextmanager
async def reached(where: Where, *, create: bool = False, own: bool = False) -> AsyncIterator[Desk]:
    """``create``: a store that is not there is made. ``own``: the application's Python workflows are deployed first."""
    if where.server is not None:
        from dalsegno.cli.remote.desk import remote_desk  # noqa: PLC0415 - only who speaks HTTP pays for it

        async with remote_desk(where.server, where.app.registry) as desk:
            yield desk
        return
    async with opened(where.app, create=create) as client:
        if own:
            await where.app.workflows.ensure_all(client)
        yield client

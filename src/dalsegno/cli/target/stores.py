"""Which store or server a command works on, and lists of executions without an engine.

Light: commands that only list must not load what compiles and runs workflows.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from dalsegno.adapters.urls import shown_url
from dalsegno.cli.errors import Refusal
from dalsegno.errors import BadConfiguration
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.wiring import (
    default_store,
    is_postgres,
    open_stack,
    require_postgres_driver,
    sqlite_path,
    store_of_environment,
)

SERVER_VARIABLE = "DALSEGNO_SERVER"


NO_SCHEMA = "the schema `dalsegno` is not installed in this database"


def server_of(server: str | None, store: str | None) -> str | None:
    """Return the URL in ``--server``, else in the environment, unless ``--store`` names a store."""
    if server is not None and store is not None:
        raise Refusal("give either --server or --store, not both", "--store opens a store on this machine.")
    if server is not None:
        return server
    return (os.environ.get(SERVER_VARIABLE) or None) if store is None else None


def require_url(url: str) -> None:
    """Refuse a path given instead of a URL."""
    if url and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", url):
        raise BadConfiguration(
            f"the store {shown_url(url)!r} is not a URL; did you mean 'sqlite:///{shown_url(url)}'?"
        )


async def store_exists(url: str) -> bool:
    """Return whether there is a file, or a database with our schema. Nothing is created."""
    if not is_postgres(url):
        return not url.startswith("sqlite:") or sqlite_path(url).exists()
    require_postgres_driver()
    from dalsegno.adapters.postgres.migration import is_installed  # noqa: PLC0415 - only who has such a store has the driver

    return await is_installed(url)


async def require_store(url: str, *, or_none: bool = False) -> None:
    """Refuse a store that does not exist, and a database whose schema is not up to date.

    A command that only reads must not create a store because of a typo, and no interactive command migrates the schema
    under running processes. ``or_none``: a missing store is allowed, and will be created.
    """
    exists = await _is_up_to_date(url) if is_postgres(url) else await store_exists(url)
    if exists or or_none:
        return
    if is_postgres(url):
        raise Refusal(f"there is no store at {shown_url(url)}: {NO_SCHEMA}", way_to_install(url))
    raise Refusal(
        f"there is no store at {sqlite_path(url)}",
        "Give the store with --store or DALSEGNO_STORE; `dalsegno run` and `dalsegno deploy` create one.",
    )


async def _is_up_to_date(url: str) -> bool:
    require_postgres_driver()
    from dalsegno.adapters.postgres.migration import is_up_to_date  # noqa: PLC0415 - only who has such a store has the driver

    return await is_up_to_date(url)


def way_to_install(url: str) -> str:
    """The hint for a database without our schema."""
    named = "" if url == store_of_environment() else f" --store {shlex.quote(shown_url(url))}"
    return (
        f"If it is the right database, `dalsegno migrate{named}` installs it; so does a worker that starts."
    )


async def listed(
    store: str | None, server: str | None, where: ExecutionFilter, limit: int, app: str | None = None
) -> tuple[Sequence[ExecutionView], float]:
    """Return the newest executions and the current time of their store or server.

    ``app``: the application whose store is used if neither an option nor the environment names one.
    """
    if server_of(server, store) is not None:
        return await _listed_there(store, server, where, limit)
    url = _store_of(app, store) if app is not None else store if store is not None else default_store()
    require_url(url)
    await require_store(url)
    stack = await open_stack(url)
    try:
        return await stack.archive.executions(where, limit=limit), stack.clock.now()
    finally:
        await stack.close()


def _store_of(app: str, store: str | None) -> str:
    from dalsegno.cli.target.target import make_app  # noqa: PLC0415 - an application loads the compiler

    return make_app(store, app).url


async def _listed_there(
    store: str | None, server: str | None, where: ExecutionFilter, limit: int
) -> tuple[Sequence[ExecutionView], float]:
    from dalsegno.cli.target.target import reached, where_to  # noqa: PLC0415 - HTTP loads its client

    async with reached(where_to(store, server)) as api:
        return await api.executions(where, limit=limit), api.stack.clock.now()

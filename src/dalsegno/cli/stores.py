"""Stores and servers by their names. Light: commands that only look must not pay for what runs workflows."""

from __future__ import annotations

import os
import re
import shlex

from dalsegno.cli.problems import Refusal
from dalsegno.errors import BadConfiguration
from dalsegno.wiring import is_postgres, require_postgres_driver, shown_url, sqlite_path, store_of_environment

SERVER_VARIABLE = "DALSEGNO_SERVER"
NO_SCHEMA = "the schema `dalsegno` is not installed in this database"


def server_of(server: str | None, store: str | None) -> str | None:
    """``--server``, else the environment's, unless ``--store`` asks for a store here."""
    if server is not None and store is not None:
        raise Refusal("give either --server or --store, not both", "--store opens a store on this machine.")
    if server is not None:
        return server
    return (os.environ.get(SERVER_VARIABLE) or None) if store is None else None


def require_url(url: str) -> None:
    """A path is easily given where a URL is meant."""
    if url and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", url):
        raise BadConfiguration(
            f"the store {shown_url(url)!r} is no URL; did you mean 'sqlite:///{shown_url(url)}'?"
        )


async def store_exists(url: str) -> bool:
    """A file, or a database with our schema in it. Nothing is created."""
    if not is_postgres(url):
        return not url.startswith("sqlite:") or sqlite_path(url).exists()
    require_postgres_driver()
    from dalsegno.adapters.postgres.upgrading import is_installed  # noqa: PLC0415 - only who has such a store has the driver

    return await is_installed(url)


async def require_store(url: str, *, or_none: bool = False) -> None:
    """Whoever only looks must not create a store by a slip in its name, and no command for people changes the schema
    under the processes that use it. ``or_none``: a store that is not there is made."""
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
    from dalsegno.adapters.postgres.upgrading import is_up_to_date  # noqa: PLC0415 - only who has such a store has the driver

    return await is_up_to_date(url)


def way_to_install(url: str) -> str:
    """What helps a database in which we are not installed."""
    named = "" if url == store_of_environment() else f" --store {shlex.quote(shown_url(url))}"
    return (
        f"If it is the right database, `dalsegno migrate{named}` installs it; so does a worker that starts."
    )

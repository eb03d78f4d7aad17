"""Stores and servers by their names. Light: commands that only look must not pay for what runs workflows."""

from __future__ import annotations

import os
import re

from dalsegno.cli.problems import Refusal
from dalsegno.errors import BadConfiguration
from dalsegno.wiring import sqlite_path

SERVER_VARIABLE = "DALSEGNO_SERVER"


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
        raise BadConfiguration(f"the store {url!r} is no URL; did you mean 'sqlite:///{url}'?")


def store_exists(url: str) -> bool:
    """Of a server only opening it tells."""
    return not url.startswith("sqlite:") or sqlite_path(url).exists()


def require_store(url: str) -> None:
    """Whoever only looks must not create a store by a slip in its name."""
    if not store_exists(url):
        raise Refusal(
            f"there is no store at {sqlite_path(url)}",
            "Give the store with --store or DALSEGNO_STORE; `dalsegno run` and `dalsegno deploy` create one.",
        )

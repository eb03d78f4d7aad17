"""From options to an open application: which store, whose tasks, and how an execution is named."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from dalsegno.app import App
from dalsegno.cli.problems import Refusal
from dalsegno.engine.client import Client
from dalsegno.errors import BadConfiguration, DalSegnoError, NotFound
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.wiring import sqlite_path

ID_LENGTH = 32
LAST = "last"
SEARCHED = 1000
"""A shortened id is looked for among this many of the newest executions."""


def make_app(store: str | None = None, name: str | None = None) -> App:
    """The application the options describe, not yet open. ``--store`` wins over what the application chose."""
    app = load_app(name) if name is not None else App(store)
    if store is not None:
        app.url = store
    _require_url(app.url)
    return app


def _require_url(url: str) -> None:
    """A path is easily given where a URL is meant."""
    if url and not re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", url):
        raise BadConfiguration(f"the store {url!r} is no URL; did you mean 'sqlite:///{url}'?")


def load_app(name: str) -> App:
    """``module:attribute``; the attribute is ``app`` unless it is named."""
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - sys.path holds text
    found: object = _import(module_name)
    for part in (attribute or "app").split("."):
        if not hasattr(found, part):
            raise Refusal(f"module '{module_name}' has no attribute '{part}'", "Write --app MODULE:NAME.")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise Refusal(f"'{name}' is a {type(found).__name__}, not a dalsegno.App", "Write --app MODULE:NAME.")
    found.close()  # a module may have used it; here it lives on this program's own loop
    return found


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except DalSegnoError:
        raise
    except ModuleNotFoundError as error:
        raise Refusal(
            f"cannot import '{module}': there is no module '{error.name}'",
            f"It is looked for in {os.getcwd()} and in what is installed.",  # noqa: PTH109 - shown as it is
        ) from error
    except Exception as error:
        raise Refusal(
            f"importing '{module}' raised {type(error).__name__}: {error}",
            "Set DALSEGNO_DEBUG=1 to see where.",
        ) from error


def require_store(url: str) -> None:
    """Whoever only looks must not create a store by a slip in its name."""
    if url.startswith("sqlite:") and not sqlite_path(url).exists():
        raise Refusal(
            f"there is no store at {sqlite_path(url)}",
            "Give the store with --store or DALSEGNO_STORE; `dalsegno run` and `dalsegno deploy` create one.",
        )


@asynccontextmanager
async def opened(app: App, *, create: bool = False) -> AsyncIterator[Client]:
    """The client of an open store; nothing runs in this process."""
    if not create:
        require_store(app.url)
    await app.host_here()
    try:
        yield app.client
    finally:
        await app.aclose()


def serve_queues(app: App, queues: set[str]) -> None:
    """This process's worker takes work from these queues too."""
    engine = app.engine
    served = tuple(dict.fromkeys((*engine.settings.queues, *sorted(queues))))
    engine.settings = replace(engine.settings, queues=served)


async def find_execution(client: Client, named: str) -> str:
    """The id that is meant by an id, by its first characters, or by ``last``."""
    if len(named) == ID_LENGTH:
        return (await client.status(named)).id
    recent = await client.executions(ExecutionFilter(), limit=1 if named == LAST else SEARCHED)
    fitting = [view.id for view in recent if named == LAST or view.id.startswith(named.lower())]
    if len(fitting) > 1:
        raise Refusal(f"{len(fitting)} executions begin with '{named}'", "Give more characters of the id.")
    if not fitting:
        raise NotFound(f"there is no execution {named} in this store")
    return fitting[0]

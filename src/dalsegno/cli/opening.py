"""From options to an open application: which store, whose tasks, and how an execution is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from weakref import WeakKeyDictionary

from dalsegno.app import App
from dalsegno.cli.desk import Desk
from dalsegno.cli.modules import load_app
from dalsegno.cli.problems import Refusal
from dalsegno.cli.stores import require_store, require_url
from dalsegno.engine.client import Client
from dalsegno.errors import NotFound
from dalsegno.model.ids import ID_LENGTH
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.wiring import default_store, store_of_environment

LAST = "last"
BY_ORDER = frozenset(("child", "started", "task"))
"""Relations of executions that another one started."""
SEARCHED = 1000
"""A shortened id is looked for among this many of the newest executions."""
_unused: WeakKeyDictionary[App, str] = WeakKeyDictionary()
"""What is told once the log of the process is there."""


def make_app(store: str | None = None, name: str | None = None) -> App:
    """The application the options describe, not yet open."""
    return on_store(load_app(name) if name is not None else App(store), store)


def on_store(app: App, store: str | None) -> App:
    """``--store`` wins over the environment, and that over what the program wrote in ``App(…)``: a program that was
    tried on a file is deployed as it is."""
    named = store if store is not None else store_of_environment()
    if named is not None:
        if app.url not in (named, default_store()):  # the latter: it wrote none
            _unused[app] = app.url
        app.url = named
    require_url(app.url)
    return app


def unused_store_of(app: App) -> str | None:
    """The URL that the program wrote in ``App(…)``, where a command was told another one."""
    return _unused.get(app)


@asynccontextmanager
async def opened(app: App, *, create: bool = False) -> AsyncIterator[Client]:
    """The client of an open store; nothing runs in this process."""
    await require_store(app.url, or_none=create)
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


async def find_execution(client: Desk, named: str) -> str:
    """The id that is meant by an id, by its first characters, or by ``last``."""
    if len(named) == ID_LENGTH:
        return (await client.status(named)).id
    recent = await client.executions(ExecutionFilter(), limit=100 if named == LAST else SEARCHED)
    if named == LAST:
        # What a workflow started itself is not what its user started last.
        own = [view.id for view in recent if view.relation not in BY_ORDER]
        fitting = (own or [view.id for view in recent])[:1]
    else:
        fitting = [view.id for view in recent if view.id.startswith(named.lower())]
    if len(fitting) > 1:
        raise Refusal(f"{len(fitting)} executions begin with '{named}'", "Give more characters of the id.")
    if not fitting:
        raise NotFound(f"there is no execution {named} in this store")
    return fitting[0]

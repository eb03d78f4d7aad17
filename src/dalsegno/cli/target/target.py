"""Resolution of options to a target: a store opened here or a server, the application, and the execution.

``WorkflowApi`` is what commands ask: the engine's client, or calls of a server. Commands that only read must start
fast: what runs workflows is imported only where it is used. ``ls`` opens a store without an engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from dalsegno.app import App
from dalsegno.cli.errors import Refusal
from dalsegno.cli.modules import load_app
from dalsegno.cli.next_command import Command
from dalsegno.cli.target.stores import require_store, require_url, server_of
from dalsegno.engine.client import Client
from dalsegno.engine.operations.unfinished_versions import OwnProgram
from dalsegno.errors import NotFound
from dalsegno.model.ids import ID_LENGTH
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.wiring import (
    broker_of_environment,
    default_store,
    redis_of_environment,
    store_of_environment,
)

if TYPE_CHECKING:
    from dalsegno.cli.target.server import RemoteWorkflowApi
    from dalsegno.client.archive import ServerArchive
    from dalsegno.ports.archive import Archive

WorkflowApi: TypeAlias = "Client | RemoteWorkflowApi"
WorkflowApiArchive: TypeAlias = "Archive | ServerArchive"

LAST = "last"
ORDERED_RELATIONS = frozenset(("child", "started", "task"))
"""Relations of executions that were started by another execution."""
SEARCHED = 1000
"""Number of newest executions among which a shortened id is looked up."""
_unused: WeakKeyDictionary[App, str] = WeakKeyDictionary()
"""URLs from ``App(…)`` that an option or the environment overrides; logged once logging is set up."""


def make_app(store: str | None = None, name: str | None = None) -> App:
    """Return the application that the options describe, not yet open."""
    return on_store(load_app(name) if name is not None else App(store), store)


def on_store(app: App, store: str | None) -> App:
    """Set the store of an application.

    ``--store`` wins over the environment, and the environment wins over ``App(…)``: a program that was tried on a
    file is deployed unchanged.
    """
    named = store if store is not None else store_of_environment()
    if named is not None:
        if app.url not in (named, default_store()):  # default_store() means that the program gave no URL
            _unused[app] = app.url
        app.url = named
    # The options --broker and --redis are in the environment, too.
    broker, redis = broker_of_environment(), redis_of_environment()
    app.broker = broker if broker is not None else app.broker
    app.redis = redis if redis is not None else app.redis
    require_url(app.url)
    return app


def own_program(app: App) -> OwnProgram:
    """Return the names that the application can run, to be compared with versions in flight."""
    return OwnProgram(app.workflows, app.tasks.names(), app.settings.queues)


def unused_store_of(app: App) -> str | None:
    """Return the URL from ``App(…)`` that the command overrides, if there is one."""
    return _unused.get(app)


@asynccontextmanager
async def opened(app: App, *, create: bool = False) -> AsyncIterator[Client]:
    """Open the store and yield the client. Nothing runs in this process."""
    await require_store(app.url, or_none=create)
    await app.host_here()
    try:
        yield app.client
    finally:
        await app.aclose()


def serve_queues(app: App, queues: set[str]) -> None:
    """Add queues to those that the worker of this process serves."""
    engine = app.engine
    served = tuple(dict.fromkeys((*engine.settings.queues, *sorted(queues))))
    engine.settings = replace(engine.settings, queues=served)


async def find_execution(client: WorkflowApi, named: str) -> str:
    """Resolve an id, its first characters, or ``last`` to an id."""
    if named != LAST:
        try:
            return (await client.status(named)).id
        except NotFound:
            if len(named) == ID_LENGTH:
                raise
    recent = await client.executions(ExecutionFilter(), limit=100 if named == LAST else SEARCHED)
    if named == LAST:
        # `last` is the newest execution that a user started, not one that a workflow started.
        own = [view.id for view in recent if view.relation not in ORDERED_RELATIONS]
        fitting = (own or [view.id for view in recent])[:1]
    else:
        fitting = [view.id for view in recent if view.id.startswith((named, named.lower()))]
    if len(fitting) > 1:
        raise Refusal(f"{len(fitting)} executions begin with '{named}'", "Give more characters of the id.")
    if not fitting:
        raise NotFound(f"there is no execution {named} in this store")
    return fitting[0]


@dataclass(frozen=True, slots=True)
class Target:
    app: App
    """Only its node types are used if the target is a server."""
    command: Command
    server: str | None = None


def where_to(store: str | None, server: str | None, app: str | None = None) -> Target:
    there = server_of(server, store)
    if there is not None:
        return Target(make_app("memory:", app), Command("", app, there), there)
    made = make_app(store, app)
    return Target(made, Command(made.url, app))


@asynccontextmanager
async def reached(where: Target, *, create: bool = False, own: bool = False) -> AsyncIterator[WorkflowApi]:
    """Open the target. ``create``: create a missing store. ``own``: first deploy the application's Python
    workflows.
    """
    if where.server is not None:
        from dalsegno.cli.target.server import remote_workflow_api  # noqa: PLC0415 - only who speaks HTTP pays for it

        async with remote_workflow_api(where.server, where.app.registry) as api:
            yield api
        return
    async with opened(where.app, create=create) as client:
        if own:
            await where.app.workflows.ensure_all(client)
        yield client

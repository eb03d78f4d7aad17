"""Executions as a list: a store is opened for that alone, without an engine and all that it can run."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.cli.stores import require_store, require_url, server_of
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.wiring import default_store, open_stack


async def listed(
    store: str | None, server: str | None, where: ExecutionFilter, limit: int, app: str | None = None
) -> tuple[Sequence[ExecutionView], float]:
    """The newest executions, and what time it is where they are. ``app``: an application, in whose store they are where
    nothing else names one."""
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
    from dalsegno.cli.opening import make_app  # noqa: PLC0415 - only who names an application pays for it

    return make_app(store, app).url


async def _listed_there(
    store: str | None, server: str | None, where: ExecutionFilter, limit: int
) -> tuple[Sequence[ExecutionView], float]:
    from dalsegno.cli.places import reached, where_to  # noqa: PLC0415 - only who speaks HTTP pays for it

    async with reached(where_to(store, server)) as desk:
        return await desk.executions(where, limit=limit), desk.stack.clock.now()

"""Reads and checks the histories of the executions in a store, for tests with real stores and processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from dalsegno.engine.client import Client
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionKind, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.testing.histories import Asked, History, problems

PAGE = 500
EVERYTHING = ExecutionFilter(kinds=get_args(ExecutionKind))


async def stored_problems(client: Client, asked: Mapping[str, Asked] | None = None) -> list[str]:
    """Return every inconsistency as a message. ``asked``: the requests confirmed to callers, by execution.

    A running execution is checked as of the read of its row. Executions are compared with each other only if none
    changed during the read; otherwise one would be older than the other.
    """
    before = await newest(client)
    found = {name: History(view, await _events(client, view)) for name, view in before.items()}
    owed = await client.stack.ledger.outbox(1)
    after = await newest(client)
    is_still = _places(before) == _places(after)
    sentences: list[str] = []
    for name, history in found.items():
        sentences += problems(
            History(
                history.execution,
                history.events,
                asked=(asked or {}).get(name, Asked()),
                others=after if is_still else None,
                settled=is_still and not owed,
            )
        )
    return sentences


async def problems_of(client: Client, executions: Iterable[ExecutionView]) -> list[str]:
    """Check some executions, each by itself: for stores with too many executions to read them all."""
    return [
        sentence for view in executions for sentence in problems(History(view, await _events(client, view)))
    ]


async def newest(client: Client, most: int | None = None) -> dict[str, ExecutionView]:
    """Return executions of all kinds, by id."""
    found: dict[str, ExecutionView] = {}
    before: Place | None = None
    while (most is None or len(found) < most) and (page := await client.executions(EVERYTHING, before, PAGE)):
        found |= {view.id: view for view in page}
        before = Place(page[-1].created_at, page[-1].id)
    return found


async def _events(client: Client, view: ExecutionView) -> list[Event]:
    return (await client.all_events(view.id))[: view.seq]


def _places(executions: Mapping[str, ExecutionView]) -> dict[str, tuple[str, int]]:
    return {name: (view.state, view.seq) for name, view in executions.items()}

"""The record behind an execution that was itself a retry or rerun: what it did not run again counts as before."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.body import Body
from dalsegno.core.context import Entry
from dalsegno.core.history import RunFacts, run_facts
from dalsegno.engine.loader import Loader
from dalsegno.errors import Conflict
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import Archive

EVENTS_AT_ONCE = 1000


class Past:
    """The record of executions, for those who go on from it."""

    def __init__(self, archive: Archive, loader: Loader) -> None:
        self.archive = archive
        self.loader = loader

    async def execution(self, execution: str, goes_back: str) -> ExecutionView:
        """``goes_back`` names the execution that goes on from it."""
        view = await self.archive.execution(execution)
        if view is None:
            raise Conflict(
                f"execution {execution}, which {goes_back} goes back to, was removed; start the workflow anew"
            )
        return view

    async def events(self, execution: str) -> list[Event]:
        found: list[Event] = []
        while page := await self.archive.events(execution, len(found), EVENTS_AT_ONCE):
            found += page
        return found


class Lineage(Struct):
    """What is known of every node, from the first execution of the line to the last."""

    facts: dict[str, RunFacts] = {}
    outputs: dict[str, bytes] = {}
    working: dict[str, bytes] = {}
    edits: dict[str, bytes] = {}

    def forget(self, nodes: frozenset[str]) -> None:
        """These ran again later: what they did before no longer counts."""
        for name in nodes:
            self.facts.pop(name, None)
            self.outputs.pop(name, None)
            self.working.pop(name, None)
            self.edits.pop(f"${name}", None)


class _Start(Struct):
    nodes: tuple[str, ...] = ()
    edits: dict[str, Raw] = {}


async def read_lineage(past: Past, plan: Plan, view: ExecutionView) -> Lineage:
    lineage = Lineage()
    for execution in reversed(await _line(past, view)):
        events = await past.events(execution.id)
        start = _start_of(events)
        again = frozenset(start.nodes).union(*(plan.descendants(name) for name in start.nodes))
        lineage.forget(again)
        lineage.edits.update({key: bytes(raw) for key, raw in start.edits.items()})
        facts = run_facts(events)
        lineage.facts.update(facts)
        for name, fact in facts.items():
            await _load(past, execution.id, name, fact.output, lineage.outputs)
            await _load(past, execution.id, name, fact.working, lineage.working)
    return lineage


async def _line(past: Past, view: ExecutionView) -> list[ExecutionView]:
    """The execution and those it goes back to, newest first."""
    line = [view]
    while line[-1].relation in ("retry", "rerun") and line[-1].parent is not None:
        line.append(await past.execution(line[-1].parent, line[-1].id))
    return line


def _start_of(events: list[Event]) -> _Start:
    """Not always the first event: one that stood in line was submitted before."""
    started = next((event for event in events if event.kind == "ExecutionStarted"), None)
    if started is None or started.data is None:
        return _Start()
    return msgspec.json.decode(started.data, type=_Start)


async def _load(past: Past, execution: str, name: str, entry: Entry | None, into: dict[str, bytes]) -> None:
    """As bytes: references resolve only within their own execution, so what they stand for is carried over."""
    if entry is None:
        into.pop(name, None)
    else:
        into[name] = bytes(await past.loader.raw(execution, Body(), entry))

"""The record behind an execution that was itself a retry or rerun: what it did not run again counts as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.body import Body
from dalsegno.core.context import Entry
from dalsegno.core.history import RunFacts, run_facts
from dalsegno.errors import Conflict
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView

if TYPE_CHECKING:
    from dalsegno.engine.client import Client


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


async def read_lineage(client: Client, plan: Plan, view: ExecutionView) -> Lineage:
    lineage = Lineage()
    for execution in reversed(await _line(client, view)):
        events = await client.all_events(execution.id)
        start = _start_of(events)
        again = frozenset(start.nodes).union(*(plan.descendants(name) for name in start.nodes))
        lineage.forget(again)
        lineage.edits.update({key: bytes(raw) for key, raw in start.edits.items()})
        facts = run_facts(events)
        lineage.facts.update(facts)
        for name, fact in facts.items():
            await _load(client, execution.id, name, fact.output, lineage.outputs)
            await _load(client, execution.id, name, fact.working, lineage.working)
    return lineage


async def _line(client: Client, view: ExecutionView) -> list[ExecutionView]:
    """The execution and those it goes back to, newest first."""
    line = [view]
    while line[-1].relation in ("retry", "rerun") and line[-1].parent is not None:
        parent = await client.stack.archive.execution(line[-1].parent)
        if parent is None:
            raise Conflict(
                f"execution {line[-1].parent}, which {line[-1].id} goes back to, was removed; start the workflow anew"
            )
        line.append(parent)
    return line


def _start_of(events: list[Event]) -> _Start:
    if not events or events[0].data is None:
        return _Start()
    return msgspec.json.decode(events[0].data, type=_Start)


async def _load(
    client: Client, execution: str, name: str, entry: Entry | None, into: dict[str, bytes]
) -> None:
    """As bytes: references resolve only within their own execution, so what they stand for is carried over."""
    if entry is None:
        into.pop(name, None)
    else:
        into[name] = bytes(await client.loader.raw(execution, Body(), entry))

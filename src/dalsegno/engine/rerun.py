"""Retry and rerun: a new execution, linked to the old one, that starts in the middle.

What is downstream of the chosen nodes runs again. Everything else counts as it was: contexts come from the record
(edited as asked), and the slots of joins downstream whose sources do not run again are resolved as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from dalsegno.core.context import key_of
from dalsegno.core.pending import Again
from dalsegno.core.restart import Restart, restart
from dalsegno.core.values import encode_value
from dalsegno.engine.definitions import Program
from dalsegno.engine.lineage import Past, read_lineage
from dalsegno.engine.starting import owned_tags
from dalsegno.errors import Conflict, InvalidInput
from dalsegno.graph.plan import Plan
from dalsegno.model.execution import ENDED, ExecutionView, NewExecution
from dalsegno.model.ids import new_execution_id, repeated_execution_id
from dalsegno.model.transition import Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client


async def plan_rerun(
    client: Client,
    program: Program,
    view: ExecutionView,
    nodes: Sequence[str] | None,
    edits: Mapping[str, Any],
    key: str | None = None,
    starter: str | None = None,
) -> tuple[NewExecution, Again]:
    """Refuses what cannot be rerun."""
    plan = program.plan
    if view.state not in ENDED:
        raise Conflict(f"execution {view.id} has not ended ({view.state}); cancel it first, or wait")
    starts = _checked(plan, nodes) if nodes is not None else await _failed_nodes(client, plan, view)
    now = client.stack.ledger.now()
    new = NewExecution(
        id=repeated_execution_id(view.id, key) if key is not None else new_execution_id(now),
        workflow=view.workflow,
        version=view.version,
        definition=view.definition,
        input=view.input,
        created_at=now,
        priority=view.priority,
        tags=owned_tags(view.tags, starter),
        idempotency_key=key,
        parent=view.id,
        relation="retry" if nodes is None else "rerun",
    )
    return new, Again(starts, {key: Raw(raw) for key, raw in _edits(plan, edits).items()})


async def rerun_transition(
    past: Past, program: Program, new: NewExecution, again: Again, now: float
) -> Transition:
    """Where the new execution starts; what it goes back to is read now."""
    known = await read_lineage(past, program.plan, await past.execution(new.parent or "", new.id))
    changed = {**known.edits, **{key: bytes(raw) for key, raw in again.edits.items()}}
    record = Restart(again.nodes, known.facts, known.outputs, changed, known.working)
    return restart(program.plan, new, record, now)


def _checked(plan: Plan, nodes: Sequence[str]) -> tuple[str, ...]:
    for name in nodes:
        node = plan.nodes.get(name)
        if node is None:
            raise InvalidInput(f"workflow '{plan.name}' has no node '{name}'")
        if node.split is not None or node.control == "aggregator":
            inside = node.split if node.split is not None else node.collects
            raise InvalidInput(
                f"node '{name}' belongs to split '{inside}'; only the whole split can be rerun: choose '{inside}'"
            )
        if name in plan.triggers:
            raise InvalidInput(f"'{name}' is a trigger and never runs; start the workflow anew instead")
    return _foremost(plan, nodes)


def _foremost(plan: Plan, nodes: Sequence[str]) -> tuple[str, ...]:
    """Without those that run again anyway, because another of them leads there."""
    starts = tuple(dict.fromkeys(nodes))
    return tuple(name for name in starts if not any(name in plan.descendants(other) for other in starts))


async def _failed_nodes(client: Client, plan: Plan, view: ExecutionView) -> tuple[str, ...]:
    """Every node that failed, and every one that was running or waiting when the execution ended."""
    summaries = await client.nodes(view.id)
    found = []
    for name, summary in summaries.items():
        if summary.state in ("FAILED", "CANCELLED"):
            found.append(_outermost(plan, name))
    starts = _foremost(plan, found)
    if not starts:
        raise Conflict(f"execution {view.id} has no failed or interrupted node to retry ({view.state})")
    return starts


def _outermost(plan: Plan, name: str) -> str:
    """Inside a split only the whole split can run again."""
    node = plan.nodes[name]
    if node.collects is not None:
        node = plan.nodes[node.collects]
    while node.split is not None:
        node = plan.nodes[node.split]
    return node.id


def _edits(plan: Plan, edits: Mapping[str, Any]) -> dict[str, bytes]:
    """Context edits by key; a node may be named with or without its dollar sign."""
    changed = {}
    for name, edited in edits.items():
        bare = name.removeprefix("$")
        known = plan.names.get(bare, bare)
        if known not in plan.nodes and bare not in ("trigger", "json"):
            raise InvalidInput(
                f"the edited context names '{name}', which is no node of workflow '{plan.name}'"
            )
        changed[key_of(known)] = encode_value(edited, f"the edited value of '{name}'")
    return changed

"""The outcome of a run, without legitimate differences between two runs: times and order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.testing.simulation.run_graph import Observation


class Outcome(Struct, frozen=True):
    """The comparable facts of a run. None is not compared.

    * ``runs``: per node, committed runs, failed ones, and retried attempts.
    * ``context``: only of completed executions.
    * ``states``: of the nodes at the end.
    """

    state: str
    output: Any
    error: Any
    runs: dict[str, tuple[int, int, int]]
    context: dict[str, Any] | None
    states: dict[str, str] | None = None


def outcome_of(observation: Observation) -> Outcome | None:
    view = observation.view
    if view is None:
        return None
    retries = Counter(event.node for event in observation.events if event.kind == "NodeRetrying")
    return Outcome(
        view.state,
        timeless(_decoded(view.output)),
        timeless(_decoded(view.error)),
        {
            name: (node.runs, node.failed, retries[name])
            for name, node in observation.nodes.items()
            if node.runs or retries[name]
        },
        timeless(observation.context) if view.state == "COMPLETED" else None,
        {name: node.state for name, node in observation.nodes.items()},
    )


def _decoded(raw: bytes | None) -> Any:
    return msgspec.json.decode(raw) if raw is not None else None


def timeless(value: Any) -> Any:
    """Remove what depends on the clock: when a wait woke, and how many had arrived at a timeout."""
    if isinstance(value, dict):
        return {key: "some time" if key == "resume_at" else timeless(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [timeless(inner) for inner in value]
    return value


def differences(left: Outcome | None, right: Outcome | None) -> list[str]:
    """Return messages, one per field that differs."""
    if left is None or right is None:
        return [] if left is right else ["only one of the two runs ended"]
    found = []
    for field in Outcome.__struct_fields__:
        mine, other = getattr(left, field), getattr(right, field)
        known = field not in ("context", "states") or (mine is not None and other is not None)
        if known and mine != other:
            found.append(f"{field}: {_short(mine, other)}")
    return found


def _short(mine: Any, other: Any) -> str:
    if isinstance(mine, dict) and isinstance(other, dict):
        keys = [key for key in {**mine, **other} if mine.get(key, "absent") != other.get(key, "absent")]
        mine = {key: mine.get(key, "absent") for key in keys}
        other = {key: other.get(key, "absent") for key in keys}
    return f"{str(mine)[:400]} ≠ {str(other)[:400]}"

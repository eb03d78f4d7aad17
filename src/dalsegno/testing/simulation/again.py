"""Judging reruns: with the same nodes and the same recorded contexts, the same must come out."""

from __future__ import annotations

import msgspec

from dalsegno.graph.plan import Plan
from dalsegno.testing.simulation.outcome import timeless
from dalsegno.testing.simulation.world import Observation


def rerun_differences(plan: Plan, run: Observation) -> list[str]:
    """Of a completed, confluent execution that was rerun from one node: everything behind that node, compared.

    Nodes that may run several times are left alone: a rerun brings them only the visits that come from its start.
    """
    again, view = run.again, run.view
    if again is None or view is None or not again.starts or view.state != "COMPLETED":
        return []
    behind = set(again.starts).union(*(plan.descendants(name) for name in again.starts))
    if any(plan.nodes[name].multiple for name in behind):
        return []
    if again.view.state != "COMPLETED":
        return [f"a rerun from {again.starts} ended {again.view.state}: {again.view.error!r}"]
    found = []
    for name in sorted(behind):
        before, after = run.nodes[name], again.nodes[name]
        if (before.runs, before.failed, before.state) != (after.runs, after.failed, after.state):
            found.append(f"a rerun from {again.starts} differs at {name}: {before} ≠ {after}")
    return found + _outputs(plan, run, behind)


def _outputs(plan: Plan, run: Observation, behind: set[str]) -> list[str]:
    assert run.again is not None
    assert run.view is not None
    sources = plan.output_nodes or plan.leaves
    if plan.output is not None or not set(sources) <= behind:
        return []
    before, after = (
        timeless(msgspec.json.decode(view.output or b"null")) for view in (run.view, run.again.view)
    )
    return [f"a rerun from {run.again.starts} puts out {after}, not {before}"] if before != after else []

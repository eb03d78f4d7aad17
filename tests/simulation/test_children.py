"""One fault at every few moments of a graph that runs workflows and scripts: nothing is lost, nothing runs on alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dalsegno.testing.simulation import Scenario
from dalsegno.testing.simulation.environment.faults import Fault, FaultKind
from dalsegno.testing.simulation.run_graph import Observation, World, differences, observe, outcome_of
from tests.effort import every
from tests.simulation.graphs import graph, node

CALLS = 160
STEPS = 500

SCRIPT = """
let first = await Node.run("work", {seconds: 2, note: inputs.k})
await Timer.delay(3)
return {v: first.v, child: await Workflow.run("small", {depth: 0, k: 7, list: []})}
"""


def family(**header: Any) -> Scenario:
    """A graph that runs itself as a child: at the root, in items of a split, and through a script."""
    nodes = [
        node("c", "conditional", expression="$trigger.depth > 0", true_edge_id="c>w", false_edge_id="c>leaf"),
        node("leaf", note="$trigger.k", seconds=1.0),
        runs_itself("w", "$trigger.k"),
        node("x", "script", source=SCRIPT, input={"k": 3}),
        node("s", "split", input_array="$trigger.list"),
        runs_itself("i", "$item"),
        node("g", "aggregator"),
        node("z", note="$g"),
    ]
    document = graph(nodes, "c>w", "c>leaf", "w>x", "x>s", "s>i", "i>g", "g>z", **header)
    return Scenario(document, {"depth": 1, "k": 1, "list": [1, 2]})


def runs_itself(name: str, k: str) -> dict[str, Any]:
    parameters = {"name": "small", "input": {"depth": 0, "k": k, "list": []}}
    return {"id": name, "type": "workflow", "parameters": parameters}


def findings(*schedule: Fault) -> list[str]:
    run = observe(family(), schedule)
    return run.findings + differences(outcome_of(calm()), outcome_of(run))


@cache
def calm() -> Observation:
    return observe(family())


def test_a_run_without_faults_completes() -> None:
    run = calm()
    assert run.findings == []
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    assert run.nodes["i"].runs == 2


@pytest.mark.parametrize("kind", ["fail", "lose-reply", "twice"])
def test_any_call_of_the_store_may_go_wrong(kind: FaultKind) -> None:
    for at in range(1, CALLS, every(5)):
        assert findings(Fault(kind, at)) == [], f"{kind} at call {at}"


@pytest.mark.parametrize("kind", ["crash", "stop"])
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_may_end_between_any_two_awaits(kind: FaultKind, process: int) -> None:
    for at in range(1 + process, STEPS, every(9)):
        assert findings(Fault(kind, at, process)) == [], f"{kind} of process {process} at step {at}"


@pytest.mark.parametrize("first", range(1, 6))
def test_whenever_the_parent_is_cancelled_no_child_lives_on(first: int) -> None:
    for at in range(first, STEPS, every(15)):
        world = World(family(), [Fault("cancel", at)])
        run = world.run()  # only ends once every execution has
        assert run.findings == [], f"cancel at step {at}"


def test_a_parent_whose_time_is_up_takes_its_children_along() -> None:
    world = World(family(timeout="2s"))
    run = world.run()
    assert run.findings == []
    assert run.view is not None
    assert run.view.state == "FAILED"
    states = sorted(found.row.state for found in world.store.executions.values())
    assert states == ["CANCELLED", "COMPLETED", "FAILED"]

"""Whatever is thrown at it: a plan or a refusal with findings, never anything else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.errors import InvalidDefinition
from dalsegno.graph.build import Compiled, load_graph
from tests.effort import IS_SEARCHING
from tests.graph.catalog import CATALOG

quick = settings(
    derandomize=not IS_SEARCHING,
    deadline=None,
    max_examples=2000 if IS_SEARCHING else 150,
    suppress_health_check=list(HealthCheck),
)

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)
ids = st.sampled_from(["a", "b", "c", "d", "e", "trigger", "a->b", "$x", ""])
texts = st.sampled_from(["$a.x", "{{ $b }}", "{{", "$item", "{{ 1 + }}", "x", "", "$$", "{{ $c.y }} $d"])
types = st.sampled_from([*CATALOG.types(), "ManualTrigger", "nope"])
parameters = st.dictionaries(
    st.sampled_from(
        ["message", "expression", "true_edge_id", "false_edge_id", "routes", "rules", "timeout", "wait_mode", "losers",
         "url", "retry", "retry_delay", "output", "input_array", "operator", "input"]
    ),
    texts | ids | plain | st.lists(ids, max_size=3) | st.sampled_from(["wait_for_any", "cancel", "5s"]),
    max_size=4,
)  # fmt: skip
nodes = st.fixed_dictionaries(
    {"id": ids, "type": types},
    optional={
        "parameters": parameters | plain,
        "dependencies": st.lists(ids, max_size=3) | plain,
        "trigger": st.booleans() | plain,
        "error": st.fixed_dictionaries(
            {}, optional={"type": st.sampled_from(["branch", "ignore"]), "error_edge": ids}
        )
        | plain,
        "retry": st.dictionaries(st.sampled_from(["max_attempts", "on", "jitter", "factor"]), plain) | plain,
        "timeout": plain,
        "queue": plain,
        "name": plain,
    },
)
edges = st.fixed_dictionaries(
    {"src": ids, "dst": ids}, optional={"id": st.sampled_from(["e1", "e2", "e3"]) | plain, "is_error": plain}
)
documents = st.fixed_dictionaries(
    {"nodes": st.lists(nodes | plain, max_size=6)},
    optional={
        "edges": st.lists(edges | plain, max_size=8),
        "name": plain,
        "output": texts | plain,
        "timeout": plain,
        "input_schema": plain,
        "tags": plain,
        "concurrency": plain,
        "dag": st.fixed_dictionaries({"nodes": st.lists(nodes, max_size=5)}) | plain,
    },
)


def load(source: Any) -> Compiled | None:
    try:
        return load_graph(source, CATALOG)
    except InvalidDefinition as refused:
        findings = refused.findings
    assert any(finding.severity == "error" for finding in findings)
    assert all(finding.pointer == "" or finding.pointer.startswith("/") for finding in findings)
    return None


@quick
@given(st.binary(max_size=200))
def test_random_bytes(source: bytes) -> None:
    load(source)


@quick
@given(st.text(st.sampled_from("{}[]:,-&*!|>'\"#%@`? \n\ta1<~"), max_size=60))
def test_random_punctuation(source: str) -> None:
    load(source)


@quick
@given(plain)
def test_random_json(value: Any) -> None:
    load(json.dumps(value))
    if isinstance(value, dict):
        load(value)


@quick
@given(documents)
def test_random_documents(source: dict[str, Any]) -> None:
    compiled = load(source)
    if compiled is None:
        return
    again = load(compiled.definition_source)
    assert again is not None
    assert again.hash == compiled.hash
    assert again.definition_source == compiled.definition_source
    for edge in compiled.plan.edges.values():
        compiled.plan.dead_run(edge)


small_graphs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.booleans()), max_size=16)


@quick
@given(
    small_graphs,
    st.lists(st.sampled_from(["log", "merge", "split", "aggregator", "conditional"]), min_size=8, max_size=8),
)
def test_random_graphs(links: list[tuple[int, int, bool]], kinds: list[str]) -> None:
    """Forward edges only, so that many of them are accepted; then their plans must hold together."""
    ends = sorted({(min(a, b), max(a, b)): error for a, b, error in links if a != b}.items())
    source = {
        "nodes": [
            {
                "id": f"n{index}",
                "type": kind,
                "parameters": {"expression": True} if kind == "conditional" else {},
            }
            for index, kind in enumerate(kinds)
        ],
        "edges": [{"src": f"n{a}", "dst": f"n{b}", "is_error": error} for (a, b), error in ends],
    }
    compiled = load(source)
    if compiled is None:
        return
    plan = compiled.plan
    for edge in plan.edges.values():
        run = plan.dead_run(edge)
        assert len(set(run.skipped)) == len(run.skipped)
        assert not set(run.skipped) & {stop.dst for stop in run.stops}
    for node in plan.nodes.values():
        assert node.depth == (plan.nodes[node.split].depth + 1 if node.split else 0)
        assert node.multiple or not node.gate
        if node.aggregator:
            assert plan.nodes[node.aggregator].collects == node.id
            assert plan.nodes[node.aggregator].split == node.split

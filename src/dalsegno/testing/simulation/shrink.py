"""Reduction of a failing case: fewer faults, fewer nodes, simpler parameters, with the same failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, TypeVar

from msgspec.structs import replace

from dalsegno.testing.simulation.judge import Case, Verdict, is_valid, judge
from dalsegno.testing.simulation.scenario import Scenario

PLAINER: dict[str, Any] = {"bystander": False, "rerun": None, "news": False, "concurrency": 4}
EDGE_NAMES = ("true_edge_id", "false_edge_id")

C = TypeVar("C", bound=Any)
"""A case: it has a scenario, a schedule and an order."""


def shrink(case: Case, verdict: Verdict, seconds: float = 20.0) -> tuple[Case, Verdict]:
    """Return the smallest case found in that time that breaks the same guarantee, and its verdict."""
    return shrink_with(case, verdict, seconds, judge, simpler_graphs)


def shrink_with(
    case: C,
    verdict: Verdict,
    seconds: float,
    judge: Callable[[C], Verdict],
    simpler: Callable[[Any], Iterator[Any]],
) -> tuple[C, Verdict]:
    """Shrink a case of any kind; ``simpler`` yields scenarios that are smaller than one in some way."""
    shrinker = _Shrinker(case, verdict, seconds, judge, simpler)
    shrinker.run()
    return shrinker.case, shrinker.verdict


def symptom(verdict: Verdict) -> str:
    """Return the key that identifies a failure: the first finding without its details."""
    return verdict.findings[0].split(":")[0] if verdict.findings else ""


class _Shrinker:
    def __init__(
        self,
        case: Any,
        verdict: Verdict,
        seconds: float,
        judge: Callable[[Any], Verdict],
        simpler: Callable[[Any], Iterator[Any]],
    ) -> None:
        self.case = case
        self.verdict = verdict
        self.wanted = symptom(verdict)
        self._judge = judge
        self._simpler = simpler
        # The time limit is real time. It affects only the size of the printed case.
        self.until = time.monotonic() + seconds

    def run(self) -> None:
        applied = set(self.verdict.applied)
        self._try(
            replace(self.case, schedule=tuple(fault for fault in self.case.schedule if fault in applied))
        )
        self._try(replace(self.case, schedule=()))
        self._try(replace(self.case, order=None))
        smaller = True
        while smaller and time.monotonic() < self.until:
            smaller = self._pass(self._with_less_schedule) | self._pass(self._with_less_scenario)

    def _pass(self, candidates: Callable[[], Iterator[Any]]) -> bool:
        """Try candidates until none helps; start over from every one that does."""
        helped = False
        again = True
        while again:
            again = any(self._try(candidate) for candidate in candidates())
            helped |= again
        return helped

    def _try(self, candidate: Any) -> bool:
        if time.monotonic() > self.until or candidate == self.case:
            return False
        verdict = self._judge(candidate)
        if symptom(verdict) != self.wanted:
            return False
        self.case, self.verdict = candidate, verdict
        return True

    def _with_less_schedule(self) -> Iterator[Any]:
        schedule = self.case.schedule
        size = len(schedule) // 2
        while size:
            for start in range(0, len(schedule), size):
                yield replace(self.case, schedule=schedule[:start] + schedule[start + size :])
            size //= 2

    def _with_less_scenario(self) -> Iterator[Any]:
        for scenario in self._simpler(self.case.scenario):
            yield replace(self.case, scenario=scenario)


def simpler_graphs(scenario: Scenario) -> Iterator[Scenario]:
    for field, value in PLAINER.items():
        if getattr(scenario, field) != value:
            yield replace(scenario, **{field: value})
    for document in smaller_documents(scenario.document):
        smaller = replace(scenario, document=document)
        if is_valid(smaller):
            yield smaller


def smaller_documents(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield documents without a node, an edge, a field or a parameter; many of them are not valid."""
    holder = document.get("dag", document)
    for node in reversed(holder["nodes"]):
        yield _without_node(document, node["id"])
    for edge in document.get("edges", ()):
        yield _without_edge(document, edge["id"])
    for key in [key for key in document if key not in ("name", "nodes", "edges", "dag")]:
        yield {name: value for name, value in document.items() if name != key}
    for position, node in enumerate(holder["nodes"]):
        yield from _plainer_nodes(document, position, node)


def _copy(document: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    copied = deepcopy(document)
    return copied, copied.get("dag", copied)["nodes"]


def _without_node(document: dict[str, Any], name: str) -> dict[str, Any]:
    copied, nodes = _copy(document)
    gone = {edge["id"] for edge in copied.get("edges", ()) if name in (edge["src"], edge["dst"])} or {name}
    nodes[:] = [node for node in nodes if node["id"] != name]
    for node in nodes:
        if "dependencies" in node:
            node["dependencies"] = [source for source in node["dependencies"] if source != name]
    _forget(nodes, gone)
    if "edges" in copied:
        copied["edges"] = [edge for edge in copied["edges"] if edge["id"] not in gone]
    return copied


def _without_edge(document: dict[str, Any], edge: str) -> dict[str, Any]:
    copied, nodes = _copy(document)
    copied["edges"] = [other for other in copied["edges"] if other["id"] != edge]
    _forget(nodes, {edge})
    return copied


def _forget(nodes: list[dict[str, Any]], gone: set[str]) -> None:
    """Remove references to deleted edges."""
    for node in nodes:
        parameters = node.get("config", node.get("parameters", {}))
        for key in EDGE_NAMES:
            if parameters.get(key) in gone:
                del parameters[key]
        if "routes" in parameters:
            parameters["routes"] = [None if route in gone else route for route in parameters["routes"]]
        if isinstance(node.get("error"), dict) and node["error"].get("error_edge") in gone:
            node["error"] = {"type": "ignore"}


def _plainer_nodes(document: dict[str, Any], position: int, node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in ("retry", "timeout", "error"):
        if key in node:
            copied, nodes = _copy(document)
            del nodes[position][key]
            yield copied
    container = "config" if "config" in node else "parameters"
    for key, value in node.get(container, {}).items():
        if key not in (*EDGE_NAMES, "expression", "rules", "routes", "input_array"):
            copied, nodes = _copy(document)
            del nodes[position][container][key]
            yield copied
        if isinstance(value, list) and key == "input_array" and value:
            copied, nodes = _copy(document)
            nodes[position][container][key] = value[:-1]
            yield copied

"""Random graphs: every kind of node, splits nested three deep, every error strategy, both spellings.

A graph grows node by node. Each new node takes its inputs from free *ports* of the nodes before it in the same scope:
the ways out of a node (success, true, false, a route, error) that may still get an edge.
"""

from __future__ import annotations

from random import Random
from typing import Any

from dalsegno.testing.simulation.flavour import Flavour, draw_flavour
from dalsegno.testing.simulation.scenario import Scenario

Port = tuple[str, str]
"""A node, and one of its ways out."""


class _Graph:
    """A document while it grows, in the spelling with edges."""

    def __init__(self, random: Random, flavour: Flavour) -> None:
        self.random = random
        self.flavour = flavour
        self.nodes: dict[str, dict[str, Any]] = {}
        self.edges: list[dict[str, Any]] = []
        self.budget = random.randint(2, 13)

    def add(self, kind: str, parameters: dict[str, Any], **fields: Any) -> str:
        name = f"{kind[0]}{len(self.nodes)}"
        self.nodes[name] = {"id": name, "type": kind, "parameters": parameters, **fields}
        self.budget -= 1
        return name

    def connect(self, port: Port, target: str) -> None:
        source, way = port
        if any(edge["src"] == source and edge["dst"] == target for edge in self.edges):
            return
        edge = {"id": f"e{len(self.edges)}", "src": source, "dst": target}
        self.edges.append(edge)
        self._name_edge(self.nodes[source], way, edge["id"])

    def _name_edge(self, node: dict[str, Any], way: str, edge: str) -> None:
        if way in ("true", "false"):
            node["parameters"][f"{way}_edge_id"] = edge
        elif way.startswith("route"):
            node["parameters"]["routes"][int(way[5:])] = edge
        elif way == "error":
            node["error"] = {"type": "branch", "error_edge": edge}

    # -- growing ------------------------------------------------------------------------------------------------

    def grow(self, ports: list[Port], loops: tuple[str, ...], share: int) -> list[Port]:
        """Adds nodes to one scope until its share of the budget is used; returns the ports left open."""
        limit = self.budget - share
        while self.budget > max(limit, 0) and ports:
            ports += self._node(ports, loops)
        return ports

    def _node(self, ports: list[Port], loops: tuple[str, ...]) -> list[Port]:
        kinds, weights = self.flavour.kinds(len(ports), len(loops), self.budget)
        kind = self.random.choices(kinds, weights)[0]
        inputs = self._take(ports, self._arity(kind))
        maker = getattr(self, f"_{kind}")
        opened: list[Port] = maker(inputs, loops)
        return opened

    def _arity(self, kind: str) -> int:
        if kind == "merge":
            return self.random.choice((1, 2, 2, 2, 3))
        return 2 if self.random.random() < self.flavour.gates else 1

    def _take(self, ports: list[Port], count: int) -> list[Port]:
        """Success ports may be used again, the others lead one way only."""
        chosen = self.random.sample(ports, min(count, len(ports)))
        for port in chosen:
            if port[1] != "success" or self.random.random() < 0.6:
                ports.remove(port)
        return chosen

    def _place(self, inputs: list[Port], name: str) -> str:
        for port in inputs:
            self.connect(port, name)
        return name

    def _work(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        parameters, fields = self.flavour.work(loops, [self.nodes[source] for source, _ in inputs])
        name = self._place(inputs, self.add("work", parameters, **fields))
        return [(name, "success"), *self._error_ports(name)]

    def entry(self) -> list[Port]:
        """A node to start at, where there is no trigger."""
        return self._work([], ())

    def _log(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        return [(self._place(inputs, self.add("log", {"message": "hello"})), "success")]

    def _output(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        self._place(inputs, self.add("output", {}))
        return []

    def _wait(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        return [(self._place(inputs, self.add("wait", self.flavour.wait())), "success")]

    def _conditional(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        parameters, fields = self.flavour.conditional(loops)
        name = self._place(inputs, self.add("conditional", parameters, **fields))
        return [(name, "true"), (name, "false"), *self._error_ports(name)]

    def _switch(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        parameters = self.flavour.switch(loops)
        name = self._place(inputs, self.add("switch", parameters))
        return [(name, f"route{index}") for index in range(len(parameters["routes"]))]

    def _merge(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        parameters, fields = self.flavour.merge()
        name = self._place(inputs, self.add("merge", parameters, **fields))
        return [(name, "success"), *self._error_ports(name)]

    def _split(self, inputs: list[Port], loops: tuple[str, ...]) -> list[Port]:
        parameters, fields = self.flavour.split(len(loops))
        name = self._place(inputs, self.add("split", parameters, **fields))
        outside = self._error_ports(name)
        inner = [(name, "success")] * self.random.choice((1, 1, 2))
        left = self.grow(inner, (*loops, name), self.random.randint(1, 5))
        if self.random.random() < 0.2:
            self._end_without(name, left, loops)
            return outside
        parameters, fields = self.flavour.aggregator()
        aggregator = self.add("aggregator", parameters, **fields)
        for port in self._take(left, self.random.choice((1, 1, 2, 3))):
            self.connect(port, aggregator)
        if not any(edge["dst"] == aggregator for edge in self.edges):
            self.connect((name, "success"), aggregator)
        return [*outside, (aggregator, "success"), *self._error_ports(aggregator)]

    def _end_without(self, split: str, left: list[Port], loops: tuple[str, ...]) -> None:
        """Mostly it leads somewhere all the same."""
        if not any(edge["src"] == split for edge in self.edges) and self.random.random() < 0.8:
            self._work([(split, "success")], (*loops, split))

    def _error_ports(self, name: str) -> list[Port]:
        return [(name, "error")] if self.nodes[name].pop("branches", False) else []


def generate(random: Random) -> Scenario:
    """A scenario whose document is meant to be valid; rarely it is not, and another has to be drawn."""
    flavour = draw_flavour(random)
    graph = _Graph(random, flavour)
    ports: list[Port] = []
    if random.random() < 0.5:
        graph.nodes["start"] = {"id": "start", "type": "manual", "parameters": {}}
        ports = [("start", "success")] * random.choice((1, 1, 2))
    else:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            ports += graph.entry()
    graph.grow(ports, (), graph.budget)
    document: dict[str, Any] = {
        "name": "simulated",
        "nodes": list(graph.nodes.values()),
        "edges": graph.edges,
    }
    document |= flavour.header(random)
    if flavour.dependencies:
        document = _as_dependencies(document)
    return Scenario(
        document,
        {"k": random.randint(0, 3), "list": list(range(random.randint(0, 3)))},
        news=random.random() < 0.3,
        concurrency=random.choice((1, 2, 4, 8)),
        bystander=random.random() < 0.2,
        rerun=random.randrange(1000) if random.random() < 0.2 else None,
    )


def _as_dependencies(document: dict[str, Any]) -> dict[str, Any]:
    """The other spelling. Edges are named by their target there, and every node with several inputs joins them."""
    targets = {edge["id"]: edge["dst"] for edge in document["edges"]}
    nodes = []
    for node in document["nodes"]:
        parameters = dict(node["parameters"])
        for key in ("true_edge_id", "false_edge_id"):
            if key in parameters:
                parameters[key] = targets[parameters[key]]
        if "routes" in parameters:
            parameters["routes"] = [targets.get(route) for route in parameters["routes"]]
        spelled = {key: value for key, value in node.items() if key not in ("type", "parameters", "error")}
        spelled |= {"handler": node["type"], "config": parameters}
        error = node.get("error")
        if error:
            spelled["error"] = dict(error)
            if "error_edge" in error:
                spelled["error"]["error_edge"] = targets[error["error_edge"]]
        spelled["dependencies"] = [edge["src"] for edge in document["edges"] if edge["dst"] == node["id"]]
        nodes.append(spelled)
    header = {key: value for key, value in document.items() if key not in ("nodes", "edges")}
    return {**header, "dag": {"nodes": nodes}}

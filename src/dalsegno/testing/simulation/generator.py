"""Random graphs: every kind of node, splits nested three deep, every error strategy, both spellings.

* A graph grows node by node. Each new node takes its inputs from free *ports* of the nodes before it in the same
  scope: the outputs of a node (success, true, false, a route, error) that may still get an edge.
* A `Flavour` sets the probability of each kind of node, and its parameters.
"""

from __future__ import annotations

from random import Random
from typing import Any

from dalsegno.testing.simulation.environment.process import ALWAYS
from dalsegno.testing.simulation.scenario import Scenario

MAX_DEPTH = 3
"""Nesting limit of splits."""
PATIENT = "30d"
"""A deadline that no run reaches."""


class Flavour:
    """The character of one graph: some have many failures, some deadlines, some races, most a little of each."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.failures = random.choice((0.0, 0.1, 0.3, 0.5))
        self.deadlines = random.random() < 0.25
        self.races = random.random() < 0.3
        self.halts = random.random() < 0.5
        self.gates = random.choice((0.0, 0.15, 0.4))
        self.slow = random.choice((0.0, 0.2, 0.6))
        self.large = random.random() < 0.12
        self.dependencies = random.random() < 0.3

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def kinds(self, ports: int, depth: int, budget: int) -> tuple[list[str], list[float]]:
        weights = {"work": 8.0, "conditional": 2.5, "switch": 1.5, "wait": 1.0, "log": 0.4, "output": 0.15}
        weights["merge"] = 4.0 if ports > 1 else 0.3
        weights["split"] = 3.0 if depth < MAX_DEPTH and budget > 1 else 0.0
        return list(weights), list(weights.values())

    # -- nodes ----------------------------------------------------------------------------------------------------

    def work(
        self, loops: tuple[str, ...], sources: list[dict[str, Any]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        if self.chance(self.failures):
            parameters["fails"] = self.random.choice((1, 1, 2, ALWAYS))
            if loops and self.chance(0.6):
                parameters["when"] = self.random.choice(("{{ $index % 2 == 0 }}", "{{ $index == 1 }}"))
            if self.chance(0.5):
                fields["retry"] = {
                    "max_attempts": self.random.choice((2, 3)),
                    "initial_delay": self.random.choice((0, 0.2, 2)),
                    "jitter": self.random.choice((0, 0.5)),
                }
            self._strategy(fields, halts=bool(loops) or self.halts)
        if self.chance(self.slow):
            parameters["seconds"] = self.random.choice((0.01, 0.3, 2.0, 12.0))
            if self.deadlines and self.chance(0.3):
                fields["timeout"] = self.random.choice((0.2, 1.0, 5.0))
        if self.large and self.chance(0.5):
            parameters["pad"] = self.random.choice((1200, 3000, 5000))
        note = self._note(loops, sources)
        if note is not None:
            parameters["note"] = note
        return parameters, fields

    def _strategy(self, fields: dict[str, Any], *, halts: bool | None = None) -> None:
        """Draw an error strategy. Inside an item a halt ends the item only, so it may always occur there."""
        halts = self.halts if halts is None else halts
        strategy = self.random.choice(("halt", "halt", "ignore", "branch") if halts else ("ignore", "branch"))
        if strategy == "branch":
            fields["branches"] = True
            strategy = "ignore"  # unless an error edge is drawn
        fields["error"] = {"type": strategy}

    def _note(self, loops: tuple[str, ...], sources: list[dict[str, Any]]) -> Any:
        choices: list[Any] = [None, None, 7, "$trigger.k"]
        if loops:
            choices += ["$item", "$index", f"{{{{ ${self.random.choice(loops)}.index }}}}"]
        if len(sources) == 1 and sources[0]["type"] == "work" and "fails" not in sources[0]["parameters"]:
            choices += [f"${sources[0]['id']}.v"]
        return self.random.choice(choices)

    def wait(self) -> dict[str, Any]:
        if self.chance(0.15):
            return {"resume": "until", "until": "2023-11-15T00:00:05Z"}
        return {"amount": self.random.choice((0, 0.5, 3, 40)), "unit": "seconds"}

    def conditional(self, loops: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        choices = ["$trigger.k > 1", "$trigger.k == 0", "true", "false"]
        if loops:
            choices += ["$index % 2 == 0", "$index > 0", "$index == 0"] * 2
        fields: dict[str, Any] = {}
        expression = self.random.choice(choices)
        if self.chance(self.failures * 0.3):
            expression = "$trigger.k - 'a' > 1"
            self._strategy(fields)
        return {"expression": expression}, fields

    def switch(self, loops: tuple[str, ...]) -> dict[str, Any]:
        value = "$index" if loops and self.chance(0.7) else "$trigger.k"
        rules = [
            {"value": value, "operator": "==", "compare": index}
            for index in range(self.random.choice((1, 2)))
        ]
        return {"rules": rules, "routes": [None] * (len(rules) + self.random.choice((0, 1)))}

    def merge(self) -> tuple[dict[str, Any], dict[str, Any]]:
        fields: dict[str, Any] = {}
        parameters: dict[str, Any] = {"timeout": PATIENT}
        mode = self.random.choice(("append", "append", "append", "first", "combine"))
        if mode != "append":
            parameters["mode"] = mode
        if self.races and self.chance(0.5):
            del parameters["timeout"]
            parameters |= {
                "wait_mode": "wait_for_any",
                "losers": self.random.choice(("keep", "cancel", "cancel")),
            }
        elif self.deadlines and self.chance(0.5):
            parameters["timeout"] = self.random.choice((0.1, 1, 8))
        if self.chance(0.4):
            self._strategy(fields)
        return parameters, fields

    def split(self, depth: int) -> tuple[dict[str, Any], dict[str, Any]]:
        fields: dict[str, Any] = {}
        size = self.random.choice(
            (0, 1, 2, 3, 4, 6) if depth == 0 else (0, 1, 2, 3) if depth == 1 else (0, 1, 2)
        )
        array: Any = [10 * depth + index for index in range(size)]
        if self.chance(0.1):
            array = "$trigger.list"
        if self.chance(self.failures * 0.3):
            array = "$trigger.k"
            self._strategy(fields)
        parameters: dict[str, Any] = {"input_array": array}
        if self.chance(0.5):
            parameters["max_concurrency"] = self.random.choice((1, 2, 3))
        if self.chance(0.3):
            parameters["on_item_error"] = self.random.choice(("collect", "collect", "halt"))
        if "error" not in fields and self.chance(0.3):
            self._strategy(fields)
        return parameters, fields

    def aggregator(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parameters: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        if self.chance(0.15):
            parameters["output"] = self.random.choice(("$index", "$item"))
        if self.deadlines and self.chance(0.4):
            parameters["timeout"] = self.random.choice((0.1, 1, 8))
            self._strategy(fields)
        return parameters, fields

    def header(self, random: Random) -> dict[str, Any]:
        header: dict[str, Any] = {}
        if self.deadlines and random.random() < 0.2:
            header["timeout"] = random.choice((1, 10, 60))
        if random.random() < 0.06:
            header["output"] = random.choice(("$trigger.k", "$trigger.nope.deeper"))
        return header


def draw_flavour(random: Random) -> Flavour:
    return Flavour(random)


Port = tuple[str, str]
"""A node, and one of its outputs."""


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
        """Add nodes to one scope until its share of the budget is used; return the ports left open."""
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
        """Choose ports. Success ports may be used again, others get one edge only."""
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
        """Return the port of an entry node, for a graph without a trigger."""
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
        """Mostly add nodes to a split without an aggregator that has no successors yet."""
        if not any(edge["src"] == split for edge in self.edges) and self.random.random() < 0.8:
            self._work([(split, "success")], (*loops, split))

    def _error_ports(self, name: str) -> list[Port]:
        return [(name, "error")] if self.nodes[name].pop("branches", False) else []


def generate(random: Random) -> Scenario:
    """Return a scenario whose document is meant to be valid. Rarely it is not, and another has to be drawn."""
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
    """Convert to the other spelling. It names edges by their target, and joins at every node with several inputs."""
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

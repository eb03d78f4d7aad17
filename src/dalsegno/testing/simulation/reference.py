"""An independent interpretation of graphs: direct and recursive, without tokens, barriers or counters.

* It predicts the outcome of graphs in which order does not matter, and detects when it does.
* It shares nothing with the kernel but the plan's wiring (which edges lead where) and the node library's pure
  functions.
* It reads the few expressions of generated graphs without the expression language.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dalsegno.graph.plan import Edge, Node, Plan
from dalsegno.nodes.control.branches import combine_payloads
from dalsegno.ports.node import NodeError
from dalsegno.testing.simulation.environment.process import work_output
from dalsegno.testing.simulation.run_graph import Outcome, timeless


class OrderMattersError(Exception):
    """Two correct runs of this graph may end differently."""


class UnforeseeableError(Exception):
    """The outcome is certain, but this reading cannot predict it (equal keys are ordered by hash)."""


class HaltError(Exception):
    """A scope ends with this error."""

    def __init__(self, error: dict[str, Any], node: Node) -> None:
        super().__init__(error["message"])
        self.error = error
        self.node = node


class FailedError(Exception):
    """A node failed with this error object."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = error


class Loop(Struct, frozen=True):
    """One item of a split."""

    split: str
    index: int
    total: int
    item: Any

    def value(self) -> dict[str, Any]:
        """Return the value of the split's root."""
        return {"item": self.item, "index": self.index, "total": self.total}


class Visit(Struct, frozen=True):
    """The counterpart of a token: its data and the path it took."""

    context: dict[str, Any]
    payload: Any
    path: str
    loops: tuple[Loop, ...] = ()


class Scope(Struct):
    """One scope during interpretation: the visits on its edges, the contexts left, the results for its aggregator."""

    over: dict[str, list[Visit]]
    left: list[Visit]
    collected: list[tuple[int, Visit]]


def error_object(
    message: str, code: str, node: str, details: Any = None, kind: str | None = None
) -> dict[str, Any]:
    return {"message": message, "code": code, "type": kind or code, "details": details, "node": node}


def moved(visit: Visit, *, path: str | None = None, context: dict[str, Any] | None = None) -> Visit:
    return Visit(
        visit.context if context is None else context,
        visit.payload,
        visit.path if path is None else path,
        visit.loops,
    )


def edges_named(node: Node, names: list[Any]) -> tuple[Edge, ...]:
    return tuple(edge for edge in node.success_edges if edge.id in names)


def forks(node: Node) -> bool:
    chooses = node.control in ("conditional", "switch")
    return len(node.error_edges) > 1 or (len(node.success_edges) > 1 and not chooses)


def is_leaf(node: Node) -> bool:
    return node.depth == 0 and not node.success_edges and node.control != "trigger"


_COMPARISON = re.compile(r"(\S+)(?: % (\d+))? (==|>) (\d+)")


class Missing(Exception):
    """The expression fails."""


def evaluate(text: str, visit: Visit, payload: dict[str, Any]) -> Any:
    text = text.removeprefix("{{").removesuffix("}}").strip()
    if text in ("true", "false"):
        return text == "true"
    if " - " in text:
        raise Missing(text)
    comparison = _COMPARISON.fullmatch(text)
    if comparison is None:
        return _reference(text, visit, payload)
    name, modulo, operator, number = comparison.groups()
    value = _reference(name, visit, payload)
    if modulo is not None:
        value %= int(modulo)
    return value == int(number) if operator == "==" else value > int(number)


def _reference(text: str, visit: Visit, payload: dict[str, Any]) -> Any:
    root, *path = text.split(".")
    value = _root(root, visit, payload)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise Missing(text)
        value = value[key]
    return value


def _root(root: str, visit: Visit, payload: dict[str, Any]) -> Any:
    if root == "$trigger":
        return payload
    if root == "$item":
        return visit.loops[-1].item
    if root == "$index":
        return visit.loops[-1].index
    for loop in reversed(visit.loops):
        if root == f"${loop.split}":
            return loop.value()
    if root not in visit.context:
        raise Missing(root)
    return visit.context[root]


LONG = 86_400.0
RUN_LIMIT = 2_000


def predict(plan: Plan, parameters: Mapping[str, dict[str, Any]], payload: dict[str, Any]) -> Outcome:
    """Predict the outcome. ``parameters``: of every node, as written in the document."""
    return _Reading(plan, parameters, payload).outcome()


class _Reading:
    def __init__(self, plan: Plan, parameters: Mapping[str, dict[str, Any]], payload: dict[str, Any]) -> None:
        self.plan = plan
        self.parameters = parameters
        self.input = payload
        self.runs: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.uncertainties: list[str] = []
        self._check_deadlines()

    def _check_deadlines(self) -> None:
        if self.plan.timeout is not None:
            raise OrderMattersError("the execution has a deadline")
        for node in self.plan.nodes.values():
            if node.timeout is not None or (node.merge_timeout is not None and node.merge_timeout < LONG):
                raise OrderMattersError(f"node {node.id} has a deadline")

    # -- the execution --------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        start = Visit({"$trigger": self.input}, self.input, "")
        scope = Scope({}, [], [])
        try:
            self._enter(scope, start)
            self._read(scope, None, self._entries(start))
            return self._completed(scope.left)
        except HaltError as halt:
            if not halt.node.solitary:
                raise OrderMattersError(f"{halt.node.id} ends the execution while siblings may run") from None
            return self._ended("FAILED", None, halt.error, None)
        except Missing as missing:
            raise UnforeseeableError("the message of a failed output") from missing

    def _completed(self, left: list[Visit]) -> Outcome:
        """Contexts are merged in the order of their paths; equal paths would be ordered by hash."""
        if len({visit.path for visit in left}) < len(left):
            self.uncertainties.append("two branches left their contexts under equal paths")
        context = {"$trigger": self.input}
        for visit in sorted(left, key=lambda visit: f"{visit.path}|"):
            context |= visit.context
        return self._ended("COMPLETED", self._output(context), None, context)

    def _enter(self, scope: Scope, start: Visit) -> None:
        edges = self.plan.entry_edges
        for position, edge in enumerate(edges):
            path = f"{position:04x}" if len(edges) > 1 else ""
            scope.over.setdefault(edge.id, []).append(moved(start, path=path))

    def _entries(self, start: Visit) -> dict[str, Visit]:
        names = (
            [] if self.plan.triggers else [node.id for node in self.plan.nodes.values() if not node.in_edges]
        )
        if len(names) == 1:
            return {names[0]: start}
        return {name: moved(start, path=f"{position:04x}") for position, name in enumerate(names)}

    def _ended(self, state: str, output: Any, error: Any, context: dict[str, Any] | None) -> Outcome:
        if self.uncertainties:
            raise UnforeseeableError(self.uncertainties[0])
        runs = {name: (count, self.failed[name], self.retries[name]) for name, count in self.runs.items()}
        if context is None:
            return Outcome(state, timeless(output), error, runs, None)
        return Outcome(state, timeless(output), error, runs, timeless(context), self._states())

    def _states(self) -> dict[str, str]:
        """Return the states of a completed execution: nodes that never ran were skipped."""
        states = {}
        for node in self.plan.nodes.values():
            ran = self.runs[node.id] or node.control == "trigger"
            states[node.id] = "FAILED" if self.failed[node.id] else "COMPLETED" if ran else "SKIPPED"
        return states

    def _output(self, context: dict[str, Any]) -> Any:
        plan = self.plan
        if plan.output is not None:
            return evaluate(plan.output.source, Visit(context, None, ""), self.input)
        outputs = [node.id for node in plan.nodes.values() if node.type == "output"]
        leaves = [node.id for node in plan.nodes.values() if is_leaf(node)]
        sources = outputs or leaves
        if len(sources) == 1:
            return context.get(f"${sources[0]}")
        return {name: context[f"${name}"] for name in sources if f"${name}" in context}

    # -- one scope ------------------------------------------------------------------------------------------------

    def _read(self, scope: Scope, split: str | None, entries: Mapping[str, Visit]) -> None:
        """Visit nodes in topological order: all inputs of a node are known when it is reached."""
        for name in self.plan.topological:
            node = self.plan.nodes[name]
            if node.split != split or node.control in ("trigger", "aggregator"):
                continue
            if name in entries:
                self._visit(scope, node, entries[name])
                continue
            arrived = [(edge, visit) for edge in node.in_edges for visit in scope.over.get(edge.id, [])]
            if node.join == "each":
                for _, visit in arrived:
                    self._visit(scope, node, visit)
            elif arrived:
                self._visit(scope, node, self._meet(node, arrived))

    def _meet(self, node: Node, arrived: list[tuple[Edge, Visit]]) -> Visit:
        edges = [edge.id for edge, _ in arrived]
        if len(set(edges)) < len(edges):
            raise OrderMattersError(f"several tokens over one edge into {node.id}")
        if node.join == "any" and (len(edges) > 1 or node.losers):
            raise OrderMattersError(f"a race at {node.id}")
        context: dict[str, Any] = {}
        for _, visit in arrived:
            context |= visit.context
        _, first = arrived[0]
        return Visit(context, [visit.payload for _, visit in arrived], first.path, first.loops)

    def _visit(self, scope: Scope, node: Node, visit: Visit) -> None:
        self._count(node.id)
        try:
            if node.control == "split":
                self._split(scope, node, visit)
                return
            output, taken = self._run(node, visit)
        except FailedError as failure:
            self.failed[node.id] += 1
            self._on_error(scope, node, visit, failure.error)
            return
        self._go_on(scope, node, visit, output, taken)

    def _count(self, node: str) -> None:
        self.runs[node] += 1
        if sum(self.runs.values()) > RUN_LIMIT:
            raise OrderMattersError("or at least it may: there is too much to read")

    def _on_error(self, scope: Scope, node: Node, visit: Visit, error: dict[str, Any]) -> None:
        if node.strategy == "halt":
            raise HaltError(error, node)
        if node.strategy == "branch":
            taken = node.error_edges
        elif node.control == "split":
            self._gather(scope, node, visit, [], error)
            return
        elif node.control == "conditional":
            taken = edges_named(node, [node.parameters.raw.get("false_edge_id")])
        else:
            taken = node.success_edges
        self._go_on(scope, node, visit, {"error": error}, taken)

    def _go_on(
        self,
        scope: Scope,
        node: Node,
        visit: Visit,
        output: Any,
        taken: tuple[Edge, ...],
        *,
        keeps: bool = True,
    ) -> None:
        context = {**visit.context, f"${node.id}": output} if keeps else visit.context
        passes = node.control in ("conditional", "switch", "wait") or node.type == "log"
        payload = visit.payload if passes else output
        onward = Visit(context, payload, visit.path, visit.loops)
        for edge in taken:
            if self.plan.nodes[edge.dst].control == "aggregator":
                scope.collected.append((edge.slot, onward))
                continue
            path = f"{visit.path}{edge.position:04x}" if forks(node) else visit.path
            scope.over.setdefault(edge.id, []).append(moved(onward, path=path))
        if not taken:
            scope.left.append(onward)

    # -- running --------------------------------------------------------------------------------------------------

    def _run(self, node: Node, visit: Visit) -> tuple[Any, tuple[Edge, ...]]:
        parameters = self._parameters(node, visit)
        if node.type == "work":
            return self._work(node, visit, parameters), node.success_edges
        if node.control == "conditional":
            text = node.parameters.expressions["expression"].source
            try:
                result = bool(evaluate(text, visit, self.input))
            except Missing:
                self.uncertainties.append("the message of a failed expression")
                raise FailedError(error_object("?", "?", node.id)) from None
            edge = node.parameters.raw.get("true_edge_id" if result else "false_edge_id")
            return {"result": result}, edges_named(node, [edge])
        if node.control == "switch":
            return self._switch(node, parameters)
        if node.control == "merge":
            return self._merge(node, parameters, visit), node.success_edges
        if node.control == "wait":
            return {"resume_at": "some time"}, node.success_edges
        if node.type == "output":
            return self._collect(node, visit), node.success_edges
        return {"message": "hello", "level": "info"}, node.success_edges

    def _parameters(self, node: Node, visit: Visit) -> dict[str, Any]:
        def render(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: render(inner) for key, inner in value.items()}
            if isinstance(value, list):
                return [render(inner) for inner in value]
            return evaluate(value, visit, self.input) if isinstance(value, str) and "$" in value else value

        templates = {
            key: value
            for key, value in self.parameters[node.id].items()
            if key not in ("expression", "output")
        }
        rendered: dict[str, Any] = render(templates)
        return rendered

    def _work(self, node: Node, visit: Visit, parameters: dict[str, Any]) -> Any:
        fails = parameters.get("fails", 0) if parameters.get("when", True) else 0
        most = node.retry.max_attempts
        self.retries[node.id] += min(fails, most - 1)
        if fails >= most:
            raise FailedError(error_object(f"programmed failure of {node.id}", "PROGRAMMED", node.id))
        return work_output(node.id, visit.payload, parameters.get("note"), parameters.get("pad", 0))

    def _switch(self, node: Node, parameters: dict[str, Any]) -> tuple[Any, tuple[Edge, ...]]:
        rules, routes = parameters["rules"], node.parameters.raw["routes"]
        index = next((index for index, rule in enumerate(rules) if rule["value"] == rule["compare"]), None)
        if index is None and len(routes) > len(rules):
            index = len(rules)
        edge = routes[index] if index is not None and index < len(routes) else None
        return {"output_index": index}, edges_named(node, [edge])

    def _merge(self, node: Node, parameters: dict[str, Any], visit: Visit) -> Any:
        try:
            return combine_payloads(parameters.get("mode", "append"), visit.payload)
        except NodeError as error:
            raise FailedError({**error.failure.as_dict(), "node": node.id}) from None

    def _collect(self, node: Node, visit: Visit) -> dict[str, Any]:
        loops = {loop.split: loop.value() for loop in visit.loops}
        known = {**visit.context, **{f"${split}": loop for split, loop in loops.items()}}
        return {edge.src: known[f"${edge.src}"] for edge in node.in_edges if f"${edge.src}" in known}

    # -- splits ---------------------------------------------------------------------------------------------------

    def _split(self, scope: Scope, node: Node, visit: Visit) -> None:
        parameters = self._parameters(node, visit)
        items = parameters["input_array"]
        if not isinstance(items, list):
            kind = "a number" if isinstance(items, int) else "null"
            raise FailedError(
                error_object(
                    f"'input_array' should be a list, but is {kind}",
                    "NOT_A_LIST",
                    node.id,
                    {"parameter": "input_array", "type": kind},
                )
            )
        halts = parameters.get("on_item_error", "collect" if node.aggregator else "halt") == "halt"
        results = []
        for index, item in enumerate(items):
            value, error = self._item(node, visit, index, len(items), item)
            if error is not None and halts:
                if len(items) > 1:
                    raise OrderMattersError(f"an item ends the split {node.id} while others run")
                message = f"item {index} failed: {error['message']}"
                details = {"index": index, "error": error}
                raise FailedError(error_object(message, "ITEM_FAILED", node.id, details, "ItemFailed"))
            results.append(({"error": error} if error is not None else value, error is not None))
        self._gather(scope, node, visit, results)

    def _gather(
        self,
        scope: Scope,
        node: Node,
        visit: Visit,
        results: list[tuple[Any, bool]],
        error: dict[str, Any] | None = None,
    ) -> None:
        summary: dict[str, Any] = {"total": len(results), "failed": sum(failed for _, failed in results)}
        if error is not None:
            summary["error"] = error
        after = moved(visit, context={**visit.context, f"${node.id}": summary})
        if node.aggregator is None:
            scope.left.append(after)
            return
        aggregator = self.plan.nodes[node.aggregator]
        self._count(aggregator.id)
        output = [value for value, _ in results]
        self._go_on(scope, aggregator, after, output, aggregator.success_edges)

    def _item(
        self, node: Node, visit: Visit, index: int, total: int, item: Any
    ) -> tuple[Any, dict[str, Any] | None]:
        inner = Scope({}, [], [])
        start = Visit(visit.context, item, "", (*visit.loops, Loop(node.id, index, total, item)))
        try:
            for edge in node.success_edges:
                path = f"{edge.position:04x}" if forks(node) else ""
                if edge.dst == node.aggregator:
                    inner.collected.append((edge.slot, start))
                else:
                    inner.over.setdefault(edge.id, []).append(moved(start, path=path))
            self._read(inner, node.id, {})
            return self._brought(node, inner), None
        except HaltError as halt:
            if not halt.node.solitary:
                raise OrderMattersError(f"{halt.node.id} ends its item while siblings may run") from None
            return None, halt.error

    def _brought(self, node: Node, inner: Scope) -> Any:
        if not inner.collected or node.aggregator is None:
            return None
        slots = [slot for slot, _ in inner.collected]
        last = max(inner.collected, key=lambda found: found[0])[1]
        if slots.count(max(slots)) > 1:
            self.uncertainties.append("several tokens over the aggregator's last edge")
        expression = self.plan.nodes[node.aggregator].parameters.expressions.get("output")
        return evaluate(expression.source, last, self.input) if expression is not None else last.payload

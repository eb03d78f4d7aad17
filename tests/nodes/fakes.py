"""A context that does for a node what the engine does: compiles its parameters, renders them, evaluates the rest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from dalsegno.core.values import encode_value
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import StepMeter, evaluated_each
from dalsegno.errors import CredentialNotFound, InvalidInput
from dalsegno.graph.checks.parameters import form_problems, unwrapped
from dalsegno.graph.templates import compile_template
from dalsegno.lang import Expression, RootNames, compile_condition, compile_expression
from dalsegno.model.published import LARGEST_VALUE, check_key
from dalsegno.nodes import builtin_registry
from dalsegno.ports.node import NodeType
from dalsegno.ports.secrets import Credential

REGISTRY = builtin_registry(plugins=False)
NOW = 1_700_000_000.0  # 2023-11-14T22:13:20Z


class FakeContext:
    """Everything a node may ask for; ``roots`` holds values by root (``$json``) or node id."""

    execution_id = "execution-1"
    workflow = "test"
    version = 1
    node_id = "node"
    node_name = "Node"
    attempt = 1
    credential_name: str | None = None

    def __init__(
        self,
        roots: Mapping[str, Any] | None = None,
        *,
        payload: Any = None,
        start: Any = None,
        outputs: Mapping[str, Any] | None = None,
        services: Mapping[str, Any] | None = None,
        now: float = NOW,
        idempotency_key: str = "token-1",
        indexes: tuple[int, ...] = (),
        credentials: Mapping[str, Credential] | None = None,
    ) -> None:
        self.credentials = dict(credentials or {})
        self.roots = dict(roots or {})
        self.payload = payload
        self.input = start
        self.outputs: Mapping[str, Any] = dict(outputs or {})
        self.services: Mapping[str, Any] = dict(services or {})
        self.now = now
        self.idempotency_key = idempotency_key
        self.indexes = indexes
        self.expressions: dict[str, Expression] = {}
        self.lines: list[tuple[str, str]] = []
        self.published: dict[str, bytes] = {}
        self.heartbeats = 0
        self.meter = StepMeter(EngineLimits())

    def lookup(self, root: str) -> Any:
        return self.roots[root]

    def evaluate(self, parameter: str, local: Mapping[str, Any] | None = None) -> Any:
        own = local or {}
        self.meter.renew()
        return self.expressions[parameter].evaluate(
            lambda root: own[root] if root in own else self.lookup(root),
            now=self.now,
            local=own,
            meter=self.meter,
        )

    async def evaluate_each(self, parameter: str, names: Iterable[Mapping[str, Any] | None]) -> list[Any]:
        return await evaluated_each(lambda local: self.evaluate(parameter, local), names, self.heartbeat)

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def has_expression(self, parameter: str) -> bool:
        return parameter in self.expressions

    def log(self, message: str, level: str = "info") -> None:
        self.lines.append((level, message))

    def publish(self, key: str, value: Any) -> None:
        try:
            name = check_key(key)
        except ValueError as error:
            raise InvalidInput(f"ctx.publish(): {error}") from None
        self.published[name] = encode_value(value, name, LARGEST_VALUE, LARGEST_VALUE)

    def heartbeat(self) -> None:
        self.heartbeats += 1

    async def acredential(self, name: str | None = None) -> Credential:
        if name not in self.credentials:
            raise CredentialNotFound(f"there is no credential '{name}'")
        return self.credentials[name]

    def credential(self, name: str | None = None) -> Credential:
        raise AssertionError("nodes are async")

    def redact(self, text: str) -> str:
        """As far as the http node needs it: plain values only."""
        for name, credential in self.credentials.items():
            for value in credential.values():
                text = text.replace(value, f"[secret {name}]")
        return text

    def prepare(self, node_type: NodeType, parameters: Mapping[str, Any]) -> Any:
        """Typed parameters of a node as a document writes them."""
        return node_type.parse(self.compile(node_type, parameters))

    def compile(self, node_type: NodeType, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Rendered parameters; those that are expressions are kept for later."""
        spec = node_type.spec
        names = RootNames.of(root for root in self.roots if not root.startswith("$"))
        local = names.with_variables(*spec.local_names)
        ready: dict[str, Any] = {}
        for key, value in parameters.items():
            match spec.kinds.get(key, "template"):
                case "raw":
                    ready[key] = value
                case "condition":
                    self.expressions[key] = compile_condition(value, parameters.get("operator"), local)
                case "expression":
                    source = unwrapped(value) if isinstance(value, str) else json.dumps(value)
                    self.expressions[key] = compile_expression(source, names=local)
                case _:
                    ready[key] = compile_template(value, names, "").render(self.lookup, now=self.now)
        return ready


async def run_node(
    node_type: str, parameters: Mapping[str, Any], context: FakeContext | None = None, **given: Any
) -> Any:
    """Check, compile, render, parse and execute, as a document with this one node would."""
    found = REGISTRY.get(node_type)
    problems = [*found.spec.check(parameters), *form_problems(found.spec, parameters)]
    assert not problems, problems
    ctx = context or FakeContext(**given)
    return await found.execute(ctx, ctx.prepare(found, parameters))


def problems_of(node_type: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """Messages of the document check by path, spelled like a JSON pointer."""
    found = REGISTRY.find(node_type)
    assert found is not None
    problems = [*found.check(parameters), *form_problems(found, parameters)]
    return {"/".join(map(str, problem.path)): problem.message for problem in problems}

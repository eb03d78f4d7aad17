"""Results of jobs in processes, and checks of graphs with node types that only this application has.

A process checks the graph, given a description of these types without their code. It returns the parameters of their
nodes, which the application's own code checks here, in a thread and a few at a time, so that other callers are served
in between.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dalsegno import errors
from dalsegno.engine.scripts.programs import InvalidScript
from dalsegno.engine.subprocesses.job_pool import Offload
from dalsegno.errors import Finding, InvalidDefinition, LimitExceeded
from dalsegno.graph.catalog import Catalog, ControlKind, NodeSpec, ParameterKind, ParameterProblem
from dalsegno.lang import Finding as ScriptFinding
from dalsegno.lang import FlowSyntaxError
from dalsegno.ports.node import NodeTypes

AT_ONCE = 65_536
"""Characters of parameters that are checked before other callers are served."""
LONGEST = 262_144
"""Characters of the parameters of one node. Longer ones are checked when the node runs."""

Parameters = tuple[str, str]
"""The type of a node, and its parameters as JSON."""
Problems = tuple[str, str, list[tuple[tuple[str | int, ...], str, str, str]]]
"""The type, the parameters, and their problems: path, message, rule and severity."""


def value_of(reply: Mapping[str, Any]) -> Any:
    """Return the result of a function in its process, or raise its error."""
    raised = reply.get("raised")
    if raised is None:
        return reply["value"]
    match raised["class"]:
        case "InvalidDefinition":
            raise InvalidDefinition([Finding(**each) for each in raised["findings"]])
        case "InvalidScript":
            raise InvalidScript(raised["name"], [ScriptFinding(*each) for each in raised["findings"]])
        case "FlowSyntaxError":
            raise FlowSyntaxError(raised["message"], raised["line"], raised["column"])
    kind = getattr(errors, raised["class"], None)
    if isinstance(kind, type) and issubclass(kind, errors.UsageError):
        raise kind(raised["message"])
    raise LimitExceeded(raised["message"])


async def examined(offload: Offload, types: NodeTypes, own: Sequence[TypeSpec], job: str, given: Any) -> Any:
    """Return the result of a job on a graph, or raise its error. ``given``: a `Given` of `dalsegno.job_process`.
    ``own``: node types that other processes lack."""
    found = value_of(await offload.large("with_types", job, given, own, []))
    wrong = await _problems(offload, types, [(name, raw) for name, raw in found["parameters"]])
    if wrong:
        found = value_of(await offload.large("with_types", job, given, own, wrong))
    return value_of(found["reply"])


async def _problems(offload: Offload, types: NodeTypes, parameters: Sequence[Parameters]) -> list[Problems]:
    found: list[Problems] = []
    try:
        async with asyncio.timeout(offload.limits.seconds):
            for chunk in _slices(parameters):
                found += await offload.small(_checked, types, chunk)
    except TimeoutError:
        raise LimitExceeded(
            f"checking the parameters of its nodes takes more than {offload.limits.seconds:g} s (limit"
            " 'check_seconds'); make the graph smaller"
        ) from None
    return found


def _slices(parameters: Sequence[Parameters]) -> Iterator[list[Parameters]]:
    chunk: list[Parameters] = []
    size = 0
    for name, raw in parameters:
        if len(raw) > LONGEST:
            continue
        chunk.append((name, raw))
        size += len(raw)
        if size > AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _checked(types: NodeTypes, parameters: Sequence[Parameters]) -> list[Problems]:
    found = list[Problems]()
    for name, raw in parameters:
        problems = types.get(name).spec.check(json.loads(raw))
        if problems:
            found.append((name, raw, [_packed(each) for each in problems]))
    return found


def _packed(problem: ParameterProblem) -> tuple[tuple[str | int, ...], str, str, str]:
    return problem.path, problem.message, problem.rule, problem.severity


class TypeSpec(Struct, frozen=True):
    """The parts of an application's node type that documents show."""

    type: str
    control: ControlKind
    aliases: tuple[str, ...]
    kinds: dict[str, ParameterKind]
    local_names: frozenset[str]
    children: bool
    schemas: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    receives: bool = False


def type_spec(spec: NodeSpec, needs: frozenset[str] = frozenset(), *, receives: bool = False) -> TypeSpec:
    return TypeSpec(
        spec.type,
        spec.control,
        spec.aliases,
        dict(spec.kinds),
        spec.local_names,
        spec.children,
        spec.schemas,
        needs,
        receives,
    )


Check = Callable[[Mapping[str, Any]], Sequence[ParameterProblem]]


def node_spec(given: TypeSpec, check: Check = lambda parameters: ()) -> NodeSpec:
    return NodeSpec(
        given.type,
        given.control,
        given.aliases,
        given.kinds,
        check,
        given.schemas,
        local_names=given.local_names,
        children=given.children,
    )


class WiderCatalog:
    """A catalog extended by further types."""

    def __init__(self, known: Catalog, more: Sequence[NodeSpec]) -> None:
        self._known = known
        self._more = {name: spec for spec in more for name in (spec.type, *spec.aliases)}
        self._types = [spec.type for spec in more]

    def find(self, type_name: str) -> NodeSpec | None:
        return self._known.find(type_name) or self._more.get(type_name)

    def types(self) -> Sequence[str]:
        return sorted({*self._known.types(), *self._types})

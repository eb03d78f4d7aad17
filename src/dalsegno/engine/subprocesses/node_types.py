"""Node types of an application as other processes see them: what documents show of them, without their code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dalsegno.graph.catalog import Catalog, ControlKind, NodeSpec, ParameterKind, ParameterProblem


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

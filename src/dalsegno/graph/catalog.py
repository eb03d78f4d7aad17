"""What a graph must know of node types, without knowing the node library: the library fills a catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

ControlKind = Literal["plain", "conditional", "switch", "split", "aggregator", "merge", "wait", "trigger"]
"""How the kernel treats a node. Everything but the named kinds runs and goes along all its success edges."""

ParameterKind = Literal["template", "condition", "expression", "raw"]
"""template: rendered before the node runs · condition: compiled in condition mode, evaluated by the node ·
expression: compiled strictly, evaluated by the node (per item) · raw: handed over untouched."""


@dataclass(frozen=True, slots=True)
class ParameterProblem:
    """A parameter that does not fit: ``path`` leads to it inside the parameters object."""

    path: tuple[str | int, ...]
    message: str
    rule: str = "bad-parameter"
    severity: Literal["error", "warning"] = "error"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node type as documents see it."""

    type: str
    control: ControlKind = "plain"
    aliases: tuple[str, ...] = ()
    kinds: Mapping[str, ParameterKind] = field(default_factory=dict)
    """Parameters that are not plain templates."""
    check: Callable[[Mapping[str, Any]], Sequence[ParameterProblem]] = lambda parameters: ()
    """Checks constant parameters; values that hold templates are judged when the node runs."""
    parameter_schema: Mapping[str, Any] = field(default_factory=dict)
    local_names: frozenset[str] = frozenset()
    """Extra names (``item``, ``index``) that this type's expressions may use."""
    children: bool = False
    """Whether its nodes may wait for executions of their own, which then end with the branch that waits."""


class Catalog(Protocol):
    def find(self, type_name: str) -> NodeSpec | None:
        """By type or alias."""

    def types(self) -> Sequence[str]:
        """All canonical type names, for suggestions and the published schema."""

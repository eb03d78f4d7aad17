"""The catalog of node types as graphs see it. The node library fills it; this package does not import the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

ControlKind = Literal["plain", "conditional", "switch", "split", "aggregator", "merge", "wait", "trigger"]
"""How the kernel treats a node. Every kind without special treatment runs and takes all its success edges."""

ParameterKind = Literal["template", "condition", "expression", "raw"]
"""How a parameter is compiled.

* template: rendered before the node runs.
* condition: compiled in condition mode, evaluated by the node.
* expression: compiled strictly, evaluated by the node (per item).
* raw: passed to the node unchanged.
"""


@dataclass(frozen=True, slots=True)
class ParameterProblem:
    """An invalid parameter; ``path`` is its place within the parameters object."""

    path: tuple[str | int, ...]
    message: str
    rule: str = "bad-parameter"
    severity: Literal["error", "warning"] = "error"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """The properties of a node type that documents depend on."""

    type: str
    control: ControlKind = "plain"
    aliases: tuple[str, ...] = ()
    kinds: Mapping[str, ParameterKind] = field(default_factory=dict)
    """Kinds of the parameters that are not plain templates."""
    check: Callable[[Mapping[str, Any]], Sequence[ParameterProblem]] = lambda parameters: ()
    """Checks constant parameters. Values that contain templates are checked when the node runs."""
    schemas: frozenset[str] = frozenset()
    """Parameters that are JSON Schemas. They are checked when a definition is deployed, not when it is loaded."""
    parameter_schema: Mapping[str, Any] = field(default_factory=dict)
    local_names: frozenset[str] = frozenset()
    """Additional names (``item``, ``index``) that expressions of this type may use."""
    children: bool = False
    """True if its nodes may wait for child executions. These end with the branch that waits."""


class Catalog(Protocol):
    def find(self, type_name: str) -> NodeSpec | None:
        """Return the spec of a type or alias."""

    def types(self) -> Sequence[str]:
        """Return all canonical type names, for suggestions and the published schema."""

"""The registry of node types: built-in types, plugins found by entry point, and those that an application adds."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dalsegno.errors import BadConfiguration, DalSegnoError, InvalidInput, NotFound
from dalsegno.graph.catalog import NodeSpec
from dalsegno.nodes.builtin import BUILTIN_TYPES
from dalsegno.ports.node import NodeType

PLUGIN_GROUP = "dalsegno.nodes"
_BUILTIN_NAMES = {name for each in BUILTIN_TYPES for name in (each.spec.type, *each.spec.aliases)}


class NodeRegistry:
    """Node types by name. A name, canonical or alias, belongs to one type only."""

    def __init__(self, types: Iterable[NodeType] = ()) -> None:
        self._types: dict[str, NodeType] = {}
        self._names: dict[str, NodeType] = {}
        for node_type in types:
            self.register(node_type)

    def register(self, node_type: NodeType) -> None:
        """Add a type; raise without adding anything if one of its names is taken."""
        names = (node_type.spec.type, *node_type.spec.aliases)
        for name in names:
            if not name or name != name.strip():
                raise InvalidInput(f"a node type cannot be named {name!r}")
            if (other := self._names.get(name)) is not None:
                raise InvalidInput(
                    f"node type '{node_type.spec.type}': the name '{name}' is already taken by "
                    f"node type '{other.spec.type}'"
                )
        self._types[node_type.spec.type] = node_type
        self._names.update(dict.fromkeys(names, node_type))

    def find(self, type_name: str) -> NodeSpec | None:
        """Return the spec of a type or alias."""
        node_type = self._names.get(type_name)
        return node_type.spec if node_type is not None else None

    def types(self) -> Sequence[str]:
        return sorted(self._types)

    def added(self) -> Sequence[str]:
        """Return names and aliases of the types that are not built in."""
        return sorted(self._names.keys() - _BUILTIN_NAMES)

    def get(self, type_name: str) -> NodeType:
        """Return the type with that name or alias; raise NotFound."""
        try:
            return self._names[type_name]
        except KeyError:
            raise NotFound(
                f"no node type '{type_name}'; it is neither built in nor given by an installed plugin"
            ) from None


def builtin_registry(*, plugins: bool = True) -> NodeRegistry:
    """Return a new registry with the built-in types and, by default, the installed plugins."""
    registry = NodeRegistry(BUILTIN_TYPES)
    if plugins:
        load_plugins(registry, _installed_plugins(tuple(sys.path)))
    return registry


@cache
def _installed_plugins(_path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the plugins installed along the module path. Reading the metadata of all packages takes some 20 ms."""
    return tuple(entry_points(group=PLUGIN_GROUP))


def load_plugins(registry: NodeRegistry, plugins: Iterable[EntryPoint]) -> None:
    """Register the result of each entry point: a NodeType, several, or a function without arguments returning them.

    An unusable plugin is an error that names it. Otherwise a workflow would later miss its nodes.
    """
    for plugin in plugins:
        try:
            for node_type in _node_types(plugin.load()):
                registry.register(node_type)
        except Exception as error:
            raise BadConfiguration(_plugin_error(plugin, error)) from error


def _node_types(loaded: Any) -> list[NodeType]:
    if not isinstance(loaded, NodeType) and callable(loaded):
        loaded = loaded()
    found = [loaded] if isinstance(loaded, NodeType) else loaded
    if not isinstance(found, list | tuple) or not all(isinstance(each, NodeType) for each in found):
        raise InvalidInput(f"it gives {type(loaded).__name__}, not a NodeType or a list of them")
    return list(found)


def _plugin_error(plugin: EntryPoint, error: Exception) -> str:
    package = f" of package '{plugin.dist.name}'" if plugin.dist is not None else ""
    reason = str(error) if isinstance(error, DalSegnoError) else f"{type(error).__name__}: {error}"
    return (
        f"node plugin '{plugin.name}' ({plugin.value}){package} cannot be used: {reason}. "
        "Fix or uninstall the plugin."
    )

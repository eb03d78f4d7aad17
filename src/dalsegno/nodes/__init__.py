"""The node library: the registry, the built-in node types (one module per node or small family), and shared code."""

from dalsegno.nodes.builder import ThreadedExecute, node_type
from dalsegno.nodes.parameters import CONDITION, EXPRESSION, RAW, NodeParameters
from dalsegno.nodes.registry import NodeRegistry, builtin_registry, load_plugins

__all__ = [
    "CONDITION",
    "EXPRESSION",
    "RAW",
    "NodeParameters",
    "NodeRegistry",
    "ThreadedExecute",
    "builtin_registry",
    "load_plugins",
    "node_type",
]

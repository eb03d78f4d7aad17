"""The input of a run: a document, its payload, and how the system around it is built."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class Scenario(Struct, frozen=True):
    """A graph and its environment; with a schedule of faults and an order of steps it is a case."""

    document: dict[str, Any]
    input: dict[str, Any]
    news: bool = False
    """True if messages only wake workers, which claim any ready token; else every message names a token."""
    concurrency: int = 4
    bystander: bool = False
    """A second, simple execution runs beside the first (L9)."""

    rerun: int | None = None
    """Rerun after the end: from everything that failed, or else from a node drawn with this number."""

    def parameters(self) -> dict[str, dict[str, Any]]:
        """Return the parameters of every node, as written in the document."""
        nodes = self.document.get("dag", self.document)["nodes"]
        return {node["id"]: node.get("config") or node.get("parameters") or {} for node in nodes}

    def as_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self.document), indent=1).decode()


BYSTANDER: dict[str, Any] = {
    "name": "bystander",
    "nodes": [{"id": name, "type": "work"} for name in ("one", "two", "three")],
    "edges": [{"id": "e1", "src": "one", "dst": "two"}, {"id": "e2", "src": "two", "dst": "three"}],
}

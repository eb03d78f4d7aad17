"""What a run is about: a document, its input, and how the system around it is built."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class Scenario(Struct, frozen=True):
    """A graph and its surroundings; with a schedule of faults and an order of steps it makes a case."""

    document: dict[str, Any]
    input: dict[str, Any]
    news: bool = False
    """Workers claim what is ready, and messages only wake them; else every message names a token."""
    concurrency: int = 4
    bystander: bool = False
    """A second, simple execution runs beside the first (L9)."""

    rerun: int | None = None
    """When it has ended, it is run again: from everything that failed, or else from a node drawn with this number."""

    def parameters(self) -> dict[str, dict[str, Any]]:
        """Of every node, as the document writes them."""
        nodes = self.document.get("dag", self.document)["nodes"]
        return {node["id"]: node.get("config") or node.get("parameters") or {} for node in nodes}

    def as_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self.document), indent=1).decode()


BYSTANDER: dict[str, Any] = {
    "name": "bystander",
    "nodes": [{"id": name, "type": "work"} for name in ("one", "two", "three")],
    "edges": [{"id": "e1", "src": "one", "dst": "two"}, {"id": "e2", "src": "two", "dst": "three"}],
}

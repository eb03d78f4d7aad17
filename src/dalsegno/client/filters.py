"""Which executions are meant, as a query of the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dalsegno.ports.archive import ExecutionFilter


def query_of(where: ExecutionFilter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "workflow": where.workflow,
        "state": list(where.states),
        "tag": [f"{name}={tag}" for name, tag in where.tags],
        "parent": where.parent,
        "kind": list(where.kinds),
        "relation": list(where.relations),
        "created_since": _iso(where.created_since),
        "created_until": _iso(where.created_until),
        "ended_since": _iso(where.ended_since),
        "ended_until": _iso(where.ended_until),
        "text": where.text,
    }
    return {name: each for name, each in found.items() if each}


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()

"""Names of tasks that a document gives as plain text. Templates are not checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dalsegno.graph.documents.findings import pointer_to
from dalsegno.graph.plan import Plan
from dalsegno.lang import ExpressionError, RootNames, compile_string


def named_tasks(plan: Plan, source: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield pointer, node and task name. The stored form keeps the document's spelling and the order of its nodes."""
    if not any(node.type == "task" for node in plan.nodes.values()):
        return
    document = msgspec.json.decode(source)
    base, container = ("/dag", document["dag"]) if isinstance(document.get("dag"), dict) else ("", document)
    for index, fields in enumerate(container.get("nodes") or ()):
        node = plan.nodes.get(fields.get("id", ""))
        if node is None or node.type != "task" or node.id in plan.triggers:
            continue
        key = "parameters" if fields.get("parameters") is not None else "config"
        parameters = fields.get(key) or {}
        name = "task" if "task" in parameters else "name"
        task = _constant(parameters.get(name))
        if task is not None:
            yield pointer_to(base, "nodes", index, key, name), node.id, task


def _constant(written: Any) -> str | None:
    if not isinstance(written, str):
        return None
    try:
        compiled = compile_string(written, RootNames.of(()), False)
    except ExpressionError:
        return None  # the name is a template
    return compiled if isinstance(compiled, str) else None

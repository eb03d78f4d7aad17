"""``graph.schema.json``: the JSON Schema of graph documents with the built-in node types."""

from __future__ import annotations

import json

from dalsegno.graph.documents.published_schema import document_schema
from dalsegno.nodes.registry import builtin_registry


def page() -> str:
    schema = document_schema(builtin_registry(plugins=False))
    return json.dumps(schema, indent=1, ensure_ascii=False, sort_keys=True) + "\n"

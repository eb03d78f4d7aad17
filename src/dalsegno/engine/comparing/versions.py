"""Two versions of a workflow side by side: their sources as one reads them, and what changed."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from dalsegno.engine.comparing.graphs import GraphChanges, compare_graphs
from dalsegno.engine.comparing.texts import TextChanges, compare_texts
from dalsegno.lang import FlowProgram
from dalsegno.lang.python.program import stored_text
from dalsegno.model.definition import Definition

Changes = GraphChanges | TextChanges
_WIDTH = 110
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def compare(before: Definition, after: Definition) -> Changes:
    """Graphs by their nodes and edges, everything else by its lines."""
    if before.kind == after.kind == "graph":
        return compare_graphs(before.source, after.source)
    names = (f"version {before.version}", f"version {after.version}" if after.version else "this file")
    return compare_texts(source_text(before), source_text(after), names)


def source_text(definition: Definition) -> str:
    """The source as somebody wrote it, or could have."""
    match definition.kind:
        case "graph":
            document = msgspec.json.decode(definition.source)
            return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
        case "script":
            return FlowProgram.load(definition.source).source
        case "python":
            return stored_text(definition.source)
        case _:
            return definition.source.decode(errors="replace")

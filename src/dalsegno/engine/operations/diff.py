"""The differences between two versions of a workflow: graphs by nodes, edges and fields, everything else line by
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import takewhile
from typing import Any, Literal

import msgspec
import yaml

from dalsegno.graph.documents.normalise import EDGE_FIELDS, NODE_FIELDS, TOP_FIELDS
from dalsegno.lang import FlowProgram
from dalsegno.lang.python.program import stored_text
from dalsegno.model.definition import Definition

__all__ = ["Changes", "FieldChange", "GraphChanges", "PartChange", "TextChanges", "compare", "source_text"]

ChangeKind = Literal["added", "removed", "changed"]
_Object = Mapping[str, Any]


class _Missing:
    """Placeholder for an absent field; no document can contain it."""


_MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A changed field. ``path`` is written as an access path: ``parameters.headers.accept``."""

    kind: ChangeKind
    path: str
    before: Any = None
    after: Any = None

    def as_object(self) -> dict[str, Any]:
        sides = {"before": self.before} if self.kind != "added" else {}
        if self.kind != "removed":
            sides["after"] = self.after
        return {"change": self.kind, "path": self.path, **sides}


@dataclass(frozen=True, slots=True)
class PartChange:
    """A changed node or edge; ``about`` is the node's type, or the edge's source and target."""

    kind: ChangeKind
    part: Literal["node", "edge"]
    id: str
    about: str
    fields: tuple[FieldChange, ...] = ()

    def as_object(self) -> dict[str, Any]:
        change: dict[str, Any] = {"change": self.kind, "id": self.id, "about": self.about}
        return {**change, "fields": [each.as_object() for each in self.fields]} if self.fields else change


@dataclass(frozen=True, slots=True)
class GraphChanges:
    parts: tuple[PartChange, ...] = ()
    fields: tuple[FieldChange, ...] = field(default=())
    """Changed fields of the document itself."""

    def __bool__(self) -> bool:
        return bool(self.parts or self.fields)

    def as_object(self) -> dict[str, Any]:
        return {
            "nodes": [change.as_object() for change in self.parts if change.part == "node"],
            "edges": [change.as_object() for change in self.parts if change.part == "edge"],
            "fields": [change.as_object() for change in self.fields],
        }


def compare_graphs(before: bytes, after: bytes) -> GraphChanges:
    """Compare two stored sources. The order of nodes and display-only fields are ignored."""
    old, new = msgspec.json.decode(before), msgspec.json.decode(after)
    old_parts, new_parts = _holder(old), _holder(new)
    return GraphChanges(
        (
            *_compare_parts("node", _nodes(old_parts), _nodes(new_parts), NODE_FIELDS),
            *_compare_parts("edge", _edges(old_parts), _edges(new_parts), EDGE_FIELDS),
        ),
        tuple(_differences(_known(old, _HEADER), _known(new, _HEADER))),
    )


_HEADER = tuple(name for name in TOP_FIELDS if name not in ("name", "nodes", "edges", "dag"))


def _holder(document: _Object) -> _Object:
    dag = document.get("dag")
    return dag if isinstance(dag, dict) else document


def _nodes(holder: _Object) -> dict[str, _Object]:
    return {node["id"]: node for node in holder.get("nodes") or ()}


def _edges(holder: _Object) -> dict[str, _Object]:
    return {edge.get("id", f"{edge['src']}->{edge['dst']}"): edge for edge in holder.get("edges") or ()}


def _known(fields: _Object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _compare_parts(
    part: Literal["node", "edge"],
    before: Mapping[str, _Object],
    after: Mapping[str, _Object],
    names: tuple[str, ...],
) -> Iterator[PartChange]:
    for name, fields in after.items():
        if name not in before:
            yield PartChange("added", part, name, _about(part, fields))
    for name, fields in before.items():
        if name not in after:
            yield PartChange("removed", part, name, _about(part, fields))
    for name, fields in after.items():
        if name in before:
            found = tuple(_differences(_known(before[name], names), _known(fields, names)))
            if found:
                yield PartChange("changed", part, name, _about(part, fields), found)


def _about(part: str, fields: _Object) -> str:
    if part == "edge":
        return f"{fields['src']} -> {fields['dst']}"
    kind = fields.get("type", fields.get("handler"))
    return str(kind) if kind is not None else "manual"


def _differences(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Yield the leaves that differ. Lists of equal length are compared item by item, others as a whole."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            place = f"{path}.{key}" if path else key
            yield from _differences(before.get(key, _MISSING), after.get(key, _MISSING), place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif before is _MISSING:
        yield FieldChange("added", path, after=after)
    elif after is _MISSING:
        yield FieldChange("removed", path, before=before)
    elif type(before) is not type(after) or before != after:
        yield FieldChange("changed", path, before, after)


MOST_LINES = 4000
"""Changed lines above which the texts are shown as a full replacement: comparing takes quadratic time."""
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class TextChanges:
    added: int
    removed: int
    diff: tuple[str, ...]
    """Lines in unified format, without line ends."""

    def __bool__(self) -> bool:
        return bool(self.diff)

    def as_object(self) -> dict[str, Any]:
        return {"added": self.added, "removed": self.removed, "diff": "\n".join(self.diff)}


def compare_texts(before: str, after: str, names: tuple[str, str] = ("before", "after")) -> TextChanges:
    old, new = before.splitlines(), after.splitlines()
    if _changed(old, new) > MOST_LINES:
        diff = [f"--- {names[0]}", f"+++ {names[1]}", f"@@ -1,{len(old)} +1,{len(new)} @@"]
        diff += [f"-{line}" for line in old] + [f"+{line}" for line in new]
        return TextChanges(len(new), len(old), tuple(diff))
    diff = list(unified_diff(old, new, *names, n=CONTEXT, lineterm=""))
    added = sum(line.startswith("+") for line in diff[2:])
    return TextChanges(added, sum(line.startswith("-") for line in diff[2:]), tuple(diff))


def _changed(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of lines between the common beginning and the common end."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    rest = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    same += sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))
    return max(len(old), len(new)) - same


Changes = GraphChanges | TextChanges
_WIDTH = 110
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def compare(before: Definition, after: Definition) -> Changes:
    """Compare two definitions: graphs by nodes and edges, everything else by lines."""
    if before.kind == after.kind == "graph":
        return compare_graphs(before.source, after.source)
    names = (f"version {before.version}", f"version {after.version}" if after.version else "this file")
    return compare_texts(source_text(before), source_text(after), names)


def source_text(definition: Definition) -> str:
    """Return the source in readable form."""
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

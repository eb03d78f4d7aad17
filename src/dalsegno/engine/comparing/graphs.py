"""What is different between two versions of a graph: nodes, edges and fields, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from dalsegno.graph.normalise import EDGE_FIELDS, NODE_FIELDS, TOP_FIELDS

ChangeKind = Literal["added", "removed", "changed"]
_Object = Mapping[str, Any]


class _Missing:
    """Stands for a field that is not there; no document can hold it."""


_MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """``path`` is written as one would reach it: ``parameters.headers.accept``."""

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
    """Of a node or an edge; ``about`` is its type, or where it leads from and to."""

    kind: ChangeKind
    part: Literal["node", "edge"]
    id: str
    about: str
    fields: tuple[FieldChange, ...] = ()

    def as_object(self) -> dict[str, Any]:
        told: dict[str, Any] = {"change": self.kind, "id": self.id, "about": self.about}
        return {**told, "fields": [each.as_object() for each in self.fields]} if self.fields else told


@dataclass(frozen=True, slots=True)
class GraphChanges:
    parts: tuple[PartChange, ...] = ()
    fields: tuple[FieldChange, ...] = field(default=())
    """Of the document itself."""

    def __bool__(self) -> bool:
        return bool(self.parts or self.fields)

    def as_object(self) -> dict[str, Any]:
        return {
            "nodes": [change.as_object() for change in self.parts if change.part == "node"],
            "edges": [change.as_object() for change in self.parts if change.part == "edge"],
            "fields": [change.as_object() for change in self.fields],
        }


def compare_graphs(before: bytes, after: bytes) -> GraphChanges:
    """Two stored sources. The order of nodes and what is only displayed are no differences."""
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
    """Leaves that differ. Lists of one length are compared item by item, others as a whole."""
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

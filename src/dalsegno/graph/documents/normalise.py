"""Normalisation of both spellings to one `Draft`: shapes, ids and names. Semantics are checked elsewhere.

The canonical form of a document, which the store keeps, and the hash that identifies its program.

* The canonical form is the document in its own spelling, as compact JSON in UTF-8: known fields first and in a fixed
  order, ``name`` filled in, all other fields after them.
* Parameters and schemas are kept as written, including key order, because key order can be visible outside (in a
  request body). Loading the canonical form gives the same plan.
* The hash covers everything the engine reads, and ``description`` and ``tags``, so that a changed description is a
  new version. It leaves out display fields (``position`` and all unread fields) and the ids of other systems.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from dalsegno.graph.documents.draft import Draft, DraftEdge, DraftNode
from dalsegno.graph.documents.findings import Report, kind_of, no_boolean, pointer_to, quoted, unquoted
from dalsegno.model.definition import name_problems

_Object = dict[str, Any]


def canonical_form(draft: Draft) -> tuple[bytes, str]:
    """Return the source to store, and the hash of its program."""
    program, display = _arrange(draft)
    dumped = _dump(program)
    return _dump(display) if display is not program else dumped, sha256(dumped).hexdigest()


def content_hash(draft: Draft) -> str:
    """Return the hash of the program as other programs send it: independent also of the order of keys."""
    program, _ = _arrange(draft)
    try:
        dumped = msgspec.json.encode(program, order="deterministic")
    except OverflowError:
        dumped = json.dumps(program, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return sha256(dumped).hexdigest()


def _arrange(draft: Draft) -> tuple[_Object, _Object]:
    """Return the document without and with display fields; the same object twice if it has none."""
    whole = {**draft.fields, "name": draft.name}
    program, display = _ordered(whole, TOP_FIELDS)
    inner, inner_display = (program, display) if not draft.container else _ordered(program["dag"], TOP_FIELDS)
    parts: dict[str, list[_Object]] = {}
    display_parts: dict[str, list[_Object]] = {}
    for key, known in (("nodes", NODE_FIELDS), ("edges", EDGE_FIELDS)):
        for part in inner.get(key) or ():
            one, other = _ordered(part, known)
            parts.setdefault(key, []).append(one)
            display_parts.setdefault(key, []).append(other)
    plain = inner is inner_display and program is display and _same(parts, display_parts)
    results = [_with(program, inner, parts, draft.container)]
    if not plain:
        results.append(_with(display, inner_display, display_parts, draft.container))
    return results[0], results[-1]


def _same(parts: dict[str, list[_Object]], others: dict[str, list[_Object]]) -> bool:
    return all(one is other for key in parts for one, other in zip(parts[key], others[key], strict=True))


def _with(document: _Object, inner: _Object, parts: dict[str, list[_Object]], container: str) -> _Object:
    return {**document, "dag": {**inner, **parts}} if container else {**document, **parts}


def _ordered(fields: _Object, known: tuple[str, ...]) -> tuple[_Object, _Object]:
    """Order the known fields and drop nulls, which mean the same as an absent field.

    An ordered object is not copied.
    """
    program = {key: fields[key] for key in known if key in fields and fields[key] is not None}
    if len(program) == len(fields):
        program = fields if list(program) == list(fields) else program
        return program, program
    shown = {key: fields[key] for key in sorted(fields) if key not in known}
    return (program, {**program, **shown}) if shown else (program, program)


def _dump(document: _Object) -> bytes:
    try:
        return msgspec.json.encode(document)
    except OverflowError:  # integers beyond 64 bits: the standard library writes them, ten times slower
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


# -- normalisation -------------------------------------------------------------------------------------------


TOP_FIELDS = (
    "name", "description", "tags", "input_schema", "timeout", "output", "concurrency", "nodes", "edges", "dag",
)  # fmt: skip
NODE_FIELDS = (
    "id", "name", "type", "handler", "parameters", "config", "dependencies", "trigger", "retry", "timeout", "queue",
    "concurrency", "credentials", "error",
)  # fmt: skip
EDGE_FIELDS = ("id", "src", "dst", "is_error")
RESERVED_IDS = ("trigger", "item", "index", "json", "execution", "node", "input")

_NODE_FIELDS, _EDGE_FIELDS = frozenset(NODE_FIELDS), frozenset(EDGE_FIELDS)
_ID = re.compile(r"\w[\w.:-]{0,127}")
_ERROR_MARKS = {
    True: True, "error": True, "true": True,
    False: False, "false": False, "success": False, "": False, None: False,
}  # fmt: skip
_FOREIGN_ENDS = {"src": ("source", "from"), "dst": ("target", "to")}
# Misspellings worth a warning. Any other unknown field counts as a display field and is kept.
_SIMILARITY = 0.8


def normalise(data: Mapping[str, Any], default_name: str | None, report: Report) -> Draft:
    holder, container = _holder(data, report)
    nodes = _list(holder, "nodes", container, report)
    edges = _list(holder, "edges", container, report)
    depends = any(isinstance(node, dict) and node.get("dependencies") for node in nodes)
    draft = Draft(
        name=_name(data, default_name, report),
        fields=data,
        container=container,
        joins_all=not edges and (depends or bool(container)),
    )
    _warn_unknown(data, TOP_FIELDS, "", report)
    _warn_of_settings(data, report)
    for index, node in enumerate(nodes):
        _add_node(draft, node, f"{container}/nodes/{index}", report)
    for index, edge in enumerate(edges):
        _add_edge(draft, edge, f"{container}/edges/{index}", report)
    _add_dependencies(draft, mixed=bool(edges), report=report)
    return draft


def _holder(data: Mapping[str, Any], report: Report) -> tuple[Mapping[str, Any], str]:
    dag = data.get("dag")
    if dag is None:
        return data, ""
    if not isinstance(dag, dict):
        report.error("/dag", "wrong-type", f"'dag' must be an object with 'nodes', not {kind_of(dag)}.")
        return {}, "/dag"
    if data.get("nodes"):
        report.error(
            "/nodes", "mixed-spelling", "Nodes are listed both here and in 'dag'; keep one of the two lists."
        )
    return dag, "/dag"


def _list(holder: Mapping[str, Any], key: str, container: str, report: Report) -> list[Any]:
    value = holder.get(key)
    if value is None or isinstance(value, list):
        return value or []
    report.error(f"{container}/{key}", "wrong-type", f"'{key}' must be a list, not {kind_of(value)}.")
    return []


def _name(data: Mapping[str, Any], default_name: str | None, report: Report) -> str:
    name = data.get("name")
    if name is None:
        name = default_name or "workflow"
    if not isinstance(name, str):
        report.error("/name", "wrong-type", f"'name' must be text{unquoted(name)}.")
        return "workflow"
    for problem in name_problems(name):
        report.error("/name", "bad-name", problem)
    return name


def _warn_unknown(fields: Mapping[str, Any], known: tuple[str, ...], pointer: str, report: Report) -> None:
    for key in fields:
        if key in known:
            continue
        close = report.closest(key, known, _SIMILARITY)
        if close and close not in fields:
            message = f"The field {quoted(key)} is not read; did you mean '{close}'?"
            report.warn(pointer_to(pointer, key), "unknown-field", message)


def _warn_of_settings(data: Mapping[str, Any], report: Report) -> None:
    """Warn about ``settings``.

    A graph has none, and those of scripts and Python workflows would be ignored silently.
    """
    settings = data.get("settings")
    found = [(key, pointer_to("/settings", key)) for key in settings] if isinstance(settings, dict) else []
    if "cancel_grace" in data:
        found.append(("cancel_grace", "/cancel_grace"))
    for key, pointer in found:
        if key == "cancel_grace":
            message = (
                "'cancel_grace' has no effect in a graph: it ends without a clean-up when it is cancelled."
            )
            report.warn(pointer, "no-effect", message)
        elif key in TOP_FIELDS:
            message = f"{quoted(key)} is not read in 'settings'; write it at the top of the document."
            report.warn(pointer, "unknown-field", message)
        else:
            message = f"A graph has no setting {quoted(key)}; nothing reads it."
            report.warn(pointer, "unknown-field", message)


def _add_node(draft: Draft, fields: Any, pointer: str, report: Report) -> None:
    if not isinstance(fields, dict):
        report.error(
            pointer, "wrong-type", f"A node must be an object with 'id' and 'type', not {kind_of(fields)}."
        )
        return
    if not _NODE_FIELDS.issuperset(fields):
        _warn_unknown(fields, NODE_FIELDS, pointer, report)
    identifier = _node_id(fields, pointer, report)
    key, parameters = _parameters(fields, pointer, report)
    node = DraftNode(
        id=identifier or "",
        name=_node_name(fields, identifier or "", pointer, report),
        type=_type(fields, pointer, report),
        pointer=pointer,
        fields=fields,
        written=parameters,
        parameters=parameters,
        parameters_pointer=f"{pointer}/{key}",
        attached=identifier is not None and identifier not in draft.by_id,
    )
    draft.nodes.append(node)
    if node.attached:
        draft.by_id[node.id] = node
    elif identifier is not None:
        other = draft.by_id[identifier].pointer
        message = f"The id {quoted(identifier)} is taken by the node at {other}; give each node its own."
        report.error(f"{pointer}/id", "duplicate-id", message)


def _node_id(fields: Mapping[str, Any], pointer: str, report: Report) -> str | None:
    identifier = fields.get("id")
    if identifier is None:
        report.error(pointer, "missing-id", "The node has no 'id'; give it one.")
    elif not isinstance(identifier, str):
        message = f"A node's id must be text{unquoted(identifier)}."
        report.error(f"{pointer}/id", "bad-id", message)
    elif not _ID.fullmatch(identifier):
        message = (
            f"{quoted(identifier)} cannot be a node's id: use up to 128 letters, digits, '_', '-', '.' or ':', "
            "and begin with a letter, a digit or '_' (a 'name' may hold anything)."
        )
        report.error(f"{pointer}/id", "bad-id", message)
    else:
        return identifier
    return None


def _node_name(fields: Mapping[str, Any], identifier: str, pointer: str, report: Report) -> str:
    name = fields.get("name")
    if name is None or name == "":
        return identifier
    if not isinstance(name, str):
        report.error(f"{pointer}/name", "wrong-type", f"A node's name must be text{unquoted(name)}.")
        return identifier
    return name


def _type(fields: Mapping[str, Any], pointer: str, report: Report) -> str:
    key = "handler" if "handler" in fields and "type" not in fields else "type"
    if "handler" in fields and "type" in fields and fields["handler"] != fields["type"]:
        report.error(
            f"{pointer}/handler", "mixed-spelling", "'type' and 'handler' disagree; keep one of them."
        )
    value = fields.get(key)
    if isinstance(value, str) and value:
        return value
    if value is None and fields.get("trigger") is True:
        return "manual"
    if value is None:
        report.error(pointer, "missing-type", "The node has no 'type'; say what it does.")
    else:
        report.error(f"{pointer}/{key}", "wrong-type", f"A node's type must be text, not {kind_of(value)}.")
    return ""


def _parameters(fields: Mapping[str, Any], pointer: str, report: Report) -> tuple[str, dict[str, Any]]:
    written = "config" in fields or "handler" in fields
    key = "config" if written and "parameters" not in fields else "parameters"
    if fields.get("config") and fields.get("parameters"):
        report.error(f"{pointer}/config", "mixed-spelling", "Use 'parameters' or 'config', not both.")
    value = fields.get(key)
    if value is None or isinstance(value, dict):
        return key, value or {}
    report.error(f"{pointer}/{key}", "wrong-type", f"'{key}' must be an object, not {kind_of(value)}.")
    return key, {}


def _add_edge(draft: Draft, fields: Any, pointer: str, report: Report) -> None:
    if not isinstance(fields, dict):
        report.error(
            pointer, "wrong-type", f"An edge must be an object with 'src' and 'dst', not {kind_of(fields)}."
        )
        return
    if not _EDGE_FIELDS.issuperset(fields):
        _warn_unknown(fields, EDGE_FIELDS, pointer, report)
    src, dst = _end(fields, "src", pointer, report), _end(fields, "dst", pointer, report)
    identifier = fields.get("id", f"{src}->{dst}")
    if not isinstance(identifier, str):
        report.error(f"{pointer}/id", "bad-id", f"An edge's id must be text{unquoted(identifier)}.")
        return
    if not 0 < len(identifier) <= 300:
        report.error(f"{pointer}/id", "bad-id", "An edge's id must be text of 1 to 300 characters.")
        return
    mark = fields.get("is_error")
    if isinstance(mark, str | bool | None) and mark in _ERROR_MARKS:
        is_error = _ERROR_MARKS[mark]
    else:
        message = f"'is_error' must be true, false or 'error'.{no_boolean(mark)}"
        report.error(f"{pointer}/is_error", "wrong-type", message)
        is_error = False
    if src is not None and dst is not None:
        draft.edges.append(DraftEdge(identifier, src, dst, is_error, pointer))


def _end(fields: Mapping[str, Any], key: str, pointer: str, report: Report) -> str | None:
    value = fields.get(key)
    if isinstance(value, str):
        return value
    if value is not None:
        report.error(f"{pointer}/{key}", "wrong-type", f"'{key}' must be a node's id{unquoted(value)}.")
        return None
    foreign = next((name for name in _FOREIGN_ENDS[key] if name in fields), None)
    hint = f"; rename '{foreign}' to '{key}'" if foreign else "; name the node's id"
    report.error(pointer, "missing-end", f"The edge has no '{key}'{hint}.")
    return None


def _add_dependencies(draft: Draft, *, mixed: bool, report: Report) -> None:
    for node in draft.nodes:
        listed = node.fields.get("dependencies")
        pointer = f"{node.pointer}/dependencies"
        if not listed and (listed is None or isinstance(listed, list)):
            continue
        if not isinstance(listed, list):
            message = f"'dependencies' must be a list of node ids, not {kind_of(listed)}."
            report.error(pointer, "wrong-type", message)
        elif mixed:
            message = "The document lists 'edges' as well as 'dependencies'; use one of the two."
            report.error(pointer, "mixed-spelling", message)
        elif node.attached:
            _depend(draft, node, listed, pointer, report)


def _depend(draft: Draft, node: DraftNode, listed: list[Any], pointer: str, report: Report) -> None:
    seen: set[str] = set()
    for index, source in enumerate(listed):
        place = f"{pointer}/{index}"
        if not isinstance(source, str):
            report.error(place, "wrong-type", f"A dependency must be a node's id{unquoted(source)}.")
        elif source in seen:
            report.error(place, "duplicate-dependency", f"{quoted(source)} is listed twice; keep one.")
        else:
            seen.add(source)
            draft.edges.append(DraftEdge(f"{source}->{node.id}", source, node.id, False, place, listed=False))

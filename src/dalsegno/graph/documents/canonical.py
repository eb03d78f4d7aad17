"""The canonical form of a document, which the store keeps, and the hash that identifies its program.

* The canonical form is the document in its own spelling, as compact JSON in UTF-8: known fields first and in a fixed
  order, ``name`` filled in, all other fields after them.
* Parameters and schemas are kept as written, including key order, because key order can be visible outside (in a
  request body). Loading the canonical form gives the same plan.
* The hash covers everything the engine reads, and ``description`` and ``tags``, so that a changed description is a
  new version. It leaves out display fields (``position`` and all unread fields) and the ids of other systems.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec

from dalsegno.graph.documents.draft import Draft
from dalsegno.graph.documents.normalise import EDGE_FIELDS, NODE_FIELDS, TOP_FIELDS

_Object = dict[str, Any]


def canonical_form(draft: Draft) -> tuple[bytes, str]:
    """Return the source to store, and the hash of its program."""
    program, display = _arrange(draft)
    dumped = _dump(program)
    return _dump(display) if display is not program else dumped, sha256(dumped).hexdigest()


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

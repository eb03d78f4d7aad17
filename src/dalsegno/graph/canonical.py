"""What the store keeps of a document, and what makes two documents the same program.

The canonical form is the document in its own spelling, as compact JSON in UTF-8: known fields first and in a fixed
order, ``name`` filled in, everything else behind. Parameters and schemas are kept as written, key order included,
because key order can reach the outside (a request body). Loading it again gives the same plan.

The hash covers what the engine reads, and ``description`` and ``tags``, so that a better description is a new version.
It leaves out display fields (``position`` and whatever else nothing reads) and the ids of other systems.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec

from dalsegno.graph.draft import Draft
from dalsegno.graph.normalise import EDGE_FIELDS, NODE_FIELDS, TOP_FIELDS

_Object = dict[str, Any]


def canonical_form(draft: Draft) -> tuple[bytes, str]:
    """The source to keep, and the hash of the program in it."""
    program, display = _arrange(draft)
    dumped = _dump(program)
    return _dump(display) if display is not program else dumped, sha256(dumped).hexdigest()


def _arrange(draft: Draft) -> tuple[_Object, _Object]:
    """The document without and with display fields; the same object if it has none."""
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
    """Null means the same as nothing for every field a document knows. What is in order already is not copied."""
    program = {key: fields[key] for key in known if key in fields and fields[key] is not None}
    if len(program) == len(fields):
        program = fields if list(program) == list(fields) else program
        return program, program
    shown = {key: fields[key] for key in sorted(fields) if key not in known}
    return (program, {**program, **shown}) if shown else (program, program)


def _dump(document: _Object) -> bytes:
    try:
        return msgspec.json.encode(document)
    except (
        OverflowError
    ):  # integers beyond 64 bits: the standard library writes them, at a tenth of the speed
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

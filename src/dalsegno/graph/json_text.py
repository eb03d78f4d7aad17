"""JSON text to data. Stricter than the standard library: a key that appears twice is refused, with its place."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from dalsegno.errors import Finding
from dalsegno.graph.findings import pointer_to, quoted
from dalsegno.graph.refusal import Refused

_LONG_NUMBER = re.compile(r"[0-9]{4301}")


def read_json(text: str) -> Any:
    """Data, or `Refused` with line and column. Non-finite numbers are left to the caller, who knows their pointer."""
    repeated: list[tuple[dict[str, Any], str]] = []

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.extend((result, key) for key, count in counts.items() if count > 1)
        return result

    data = _load(text, collect)
    if repeated:
        raise Refused.because(_locate(data, repeated))
    return data


def _load(text: str, collect: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=collect)
    except json.JSONDecodeError as error:
        message = f"Line {error.lineno}, column {error.colno}: {error.msg}."
        raise Refused("syntax", message) from None
    except RecursionError:
        raise Refused("too-deep", "The document nests too deeply; flatten it.") from None
    except ValueError:
        # The only other refusal of the standard library: digits beyond what int() converts.
        found = _LONG_NUMBER.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        message = f"Line {line}: a number has more than 4,300 digits; write it as text."
        raise Refused("too-large", message) from None


def _locate(data: Any, repeated: list[tuple[dict[str, Any], str]]) -> list[Finding]:
    """Pointers to the objects with repeated keys, found by identity."""
    keys: dict[int, list[str]] = {}
    for where, key in repeated:
        keys.setdefault(id(where), []).append(key)
    findings: list[Finding] = []
    stack: list[tuple[str, Any]] = [("", data)]
    while stack:
        pointer, value = stack.pop()
        for key in keys.get(id(value), ()) if isinstance(value, dict) else ():
            message = f"The key {quoted(key)} appears twice in this object; keep one."
            findings.append(Finding(pointer_to(pointer, key), "duplicate-key", message))
        steps = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        stack.extend((pointer_to(pointer, step), child) for step, child in steps)
    return findings or [
        Finding("", "duplicate-key", "A key appears twice in an object that another key hides.")
    ]

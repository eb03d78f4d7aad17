"""Random values of a JSON Schema, and values beside it: one place of such a value changed for something else."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1.5, "", "x", "\u0000", "\ud800", "😀" * 50, "a" * 200, [], {}, [[]], {"$ref": "x"},
)  # fmt: skip
LETTERS = "abcXYZ019_-"


def value_of(schema: Mapping[str, Any], chance: random.Random, known: Mapping[str, list[Any]]) -> Any:
    """``known``: values that mean something, by the name of the field."""
    if "anyOf" in schema and "type" not in schema:
        return value_of(chance.choice(schema["anyOf"]), chance, known)
    kinds = schema.get("type", ("null", "string", "integer", "object"))
    match chance.choice([kinds] if isinstance(kinds, str) else list(kinds)):
        case "object":
            return _object(schema, chance, known)
        case "array":
            length = chance.randint(0, min(schema.get("maxItems", 3), 3))
            return [value_of(schema.get("items", {}), chance, known) for _ in range(length)]
        case "integer":
            return chance.choice((schema.get("minimum", 0), chance.randint(schema.get("minimum", -5), 9)))
        case "number":
            return chance.random()
        case "boolean":
            return chance.random() < 0.5
        case "string":
            return "".join(chance.choices(LETTERS, k=chance.randint(1, 12)))
    return None


def _object(
    schema: Mapping[str, Any], chance: random.Random, known: Mapping[str, list[Any]]
) -> dict[str, Any]:
    required = {*schema.get("required", ()), *chance.choice(schema.get("anyOf", [{}])).get("required", ())}
    found = {}
    for name, inner in schema.get("properties", {}).items():
        if name in required or chance.random() < 0.4:
            is_known = name in known and chance.random() < 0.9
            found[name] = chance.choice(known[name]) if is_known else value_of(inner, chance, known)
    return found


def changed(value: Any, chance: random.Random) -> Any:
    """Return the value with one place of it missing, odd, or doubled in depth."""
    found = copy.deepcopy(value)
    holder = found
    while isinstance(holder, (dict, list)) and holder:
        place: Any = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        if isinstance(holder[place], (dict, list)) and holder[place] and chance.random() < 0.6:
            holder = holder[place]
            continue
        if chance.random() < 0.3:
            del holder[place]
        else:
            holder[place] = chance.choice((*ODD, {"more": holder[place]}))
        return found
    return chance.choice(ODD)

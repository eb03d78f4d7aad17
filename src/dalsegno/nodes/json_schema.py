"""JSON Schema of parameter models, with the keywords of the standard."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

_KEYWORDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
"""For bounds of fields that may also be text, the model emits Python's keywords."""


def parameter_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema: dict[str, Any] = _standard(model.model_json_schema())
    return schema


def _standard(value: Any) -> Any:
    if isinstance(value, list):
        return [_standard(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        _KEYWORDS[key] if key in _KEYWORDS and isinstance(each, int | float) else key: _standard(each)
        for key, each in value.items()
    }

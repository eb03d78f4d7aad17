"""The schema of KEDA's ``ScaledObject``, read out of the Python models that a package has made of its definition.

The models are read, not run: classes whose annotated names are the fields. KEDA itself publishes its schema only inside
a manifest for clusters.
"""

from __future__ import annotations

import ast
from typing import Any

ROOT = "ScaledObject"
LEFT_OUT = {"status"}
"""What KEDA writes and we do not."""
SIMPLE = {"str": {"type": "string"}, "int": {"type": "integer"}, "bool": {"type": "boolean"}}
ANY_OBJECT = {"type": "object"}
BOUNDS = {"ge": "minimum", "le": "maximum"}


def scaled_object_schema(source: str) -> dict[str, Any]:
    """Like the API server, it refuses what it does not know."""
    classes = {node.name: node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    schema = _object(classes, ROOT)
    schema["required"] = [
        "apiVersion",
        "kind",
        "metadata",
        "spec",
    ]  # the models supply the first three by themselves
    return schema


def _object(classes: dict[str, ast.ClassDef], name: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in classes[name].body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            options = _options(field.annotation)
            told = options.pop("alias", field.target.id)
            if told not in LEFT_OUT:
                properties[told] = _schema(classes, field.annotation) | options
                required += [told] if field.value is None else []
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(required),
        "properties": properties,
    }


def _schema(classes: dict[str, ast.ClassDef], annotation: ast.expr) -> dict[str, Any]:
    match annotation:
        case ast.Name(name) if name in SIMPLE:
            return dict(SIMPLE[name])
        case ast.Name(name):
            return _object(classes, name)
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([inner, *_])):
            return _schema(classes, inner)
        case ast.Subscript(ast.Name("Optional"), inner):
            return _schema(classes, inner)
        case ast.Subscript(ast.Name("List"), inner):
            return {"type": "array", "items": _schema(classes, inner)}
        case ast.Subscript(ast.Name("Dict"), ast.Tuple([_, inner])):
            return {"type": "object", "additionalProperties": _schema(classes, inner)}
        case ast.Subscript(ast.Name("Literal"), ast.Constant(value)):
            return {"const": value}
        case ast.Attribute(_, "ObjectMeta"):
            return dict(ANY_OBJECT)
    raise ValueError(f"a type that is not known here: {ast.unparse(annotation)}")


def _options(annotation: ast.expr) -> dict[str, Any]:
    """The field's name outside Python, and its bounds."""
    match annotation:
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([_, ast.Call(keywords=keywords)])):
            given = {each.arg: ast.literal_eval(each.value) for each in keywords if each.arg}
            return {BOUNDS.get(key, key): value for key, value in given.items() if key in (*BOUNDS, "alias")}
    return {}

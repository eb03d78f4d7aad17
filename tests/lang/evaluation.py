"""Evaluates one expression against the sample graph that the tables of these tests refer to."""

from __future__ import annotations

from typing import Any

from dalsegno.lang import Limits, RootNames, compile_expression

NAMES = RootNames.of(
    [
        ("fetch", "Fetch user"),
        ("http-1", None),
        ("http", None),
        ("a", "A node"),
        ("late", None),
        ("dotted.id", None),
    ],
    variables=("item", "index"),
)
DATA: dict[str, Any] = {
    "fetch": {
        "status": 200,
        "name": "Ann",
        "body": {"plan": "pro", "users": [{"name": "Bob", "age": 31}, {"name": "Cid", "age": None}]},
        "list": [3, 1, 2],
        "null": None,
        "age": "42",
    },
    "http-1": {"body": "one", "output": {"body": "real"}},
    "http": {"body": 10},
    "a": 7,
    "dotted.id": {"x": 1},
    "$trigger": {"user_id": "u1", "n": 5},
    "$item": {"sku": "s"},
    "$index": 2,
    "$json": [1],
    "$execution": {"id": "e-1"},
}
NOW = 1_700_000_000.5


def run(
    source: str, *, condition: bool = False, limits: Limits | None = None, local: dict[str, Any] | None = None
) -> Any:
    compiled = compile_expression(source, names=NAMES, condition=condition)
    given = {"item": {"price": 4}, "index": 0} if local is None else local
    return compiled.evaluate(DATA.__getitem__, now=NOW, limits=limits, local=given, entropy=bytes)

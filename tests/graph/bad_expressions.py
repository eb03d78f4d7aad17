"""Expressions in documents that validation refuses: each with the pointer, the rule and words of the advice."""

from __future__ import annotations

from typing import Any

from tests.graph.bad_documents import node
from tests.graph.documents import document


def saying(message: Any) -> dict[str, Any]:
    return {"parameters": {"message": message}}


EXPRESSIONS = {
    "syntax": (node(**saying("{{ 1 + }}")), "/nodes/0/parameters/message", "bad-expression", "^"),
    "syntax, deep inside": (
        node(**saying({"x": ["{{ ( }}"]})),
        "/nodes/0/parameters/message/x/0",
        "bad-expression",
        "column",
    ),
    "unknown name": (node(**saying("{{ $nobody.x }}")), "/nodes/0/parameters/message", "bad-expression", "nobody"),
    "condition": (
        document("c > a", c={"type": "conditional", "parameters": {"expression": "1 =="}}),
        "/nodes/0/parameters/expression",
        "bad-expression",
        "column 5",
    ),
    "condition operator": (
        document("c > a", c={"type": "conditional", "parameters": {"expression": [{"op1": 1, "operator": "is"}]}}),
        "/nodes/0/parameters/expression",
        "bad-expression",
        "comparison 1",
    ),
    "strict expression is an object": (
        document("s > a > g", s="split", g={"type": "aggregator", "parameters": {"output": {"x": 1}}}),
        "/nodes/2/parameters/output",
        "bad-expression",
        "as text, not an object",
    ),
    "output": ({**node(), "output": "$a."}, "/output", "bad-expression", "^"),
    "output is an object": ({**node(), "output": {"x": "$a"}}, "/output", "bad-expression", "{ total: $sum.total }"),
    "reference to a later node": (
        document("a > b", a=saying("{{ $b.x }}")),
        "/nodes/0/parameters/message",
        "reference-not-before",
        "'$b', which never runs before it",
    ),
    "reference to a sibling": (
        document("x > a, x > b", b=saying("got $a.y")),
        "/nodes/2/parameters/message",
        "reference-not-before",
        "no path leads from there",
    ),
    "reference to itself": (node(**saying("$a.y")), "/nodes/0/parameters/message", "reference-not-before", "own"),
    "reference by name": (
        document("a > b", a=saying('{{ $node["Later on"].x }}'), b={"name": "Later on"}),
        "/nodes/0/parameters/message",
        "reference-not-before",
        "'$b'",
    ),
    "reference into a split": (
        document("s > a > g > z", s="split", g="aggregator", z=saying("$a.y")),
        "/nodes/3/parameters/message",
        "reference-out-of-scope",
        "once per item of split 's'",
    ),
    "output reads an item's node": (
        {**document("s > a > g", s="split", g="aggregator"), "output": "$a.x"},
        "/output",
        "reference-out-of-scope",
        "aggregator's output",
    ),
    "item outside a split": (node(**saying("$item.x")), "/nodes/0/parameters/message", "item-outside-split", "'$item'"),
    "index in the output": ({**node(), "output": "$index"}, "/output", "item-outside-split", "only inside a split"),
}  # fmt: skip

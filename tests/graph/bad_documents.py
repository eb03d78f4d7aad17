"""Documents that validation refuses, by rule: each with the pointer, the rule and words of the advice."""

from __future__ import annotations

from typing import Any

from tests.graph.documents import document

LOG = {"id": "a", "type": "log"}


def node(**fields: Any) -> dict[str, Any]:
    """A document of one node."""
    return {"name": "test", "nodes": [{**LOG, **fields}], "edges": []}


def dag(*nodes: dict[str, Any]) -> dict[str, Any]:
    return {"name": "test", "dag": {"nodes": [{"handler": "log", **fields} for fields in nodes]}}


SHAPE = {
    "a list instead of a document": ("[]", "", "not-an-object", "object with 'nodes'"),
    "an empty text": ("", "", "not-an-object", "object"),
    "no nodes": ({"name": "x"}, "/nodes", "no-nodes", "at least one"),
    "no nodes in a dag": ({"name": "x", "dag": {}}, "/dag/nodes", "no-nodes", "at least one"),
    "dag is a list": ({"dag": []}, "/dag", "wrong-type", "must be an object"),
    "nodes is an object": ({"nodes": {"a": {}}}, "/nodes", "wrong-type", "must be a list"),
    "edges is text": ({"nodes": [LOG], "edges": "a->b"}, "/edges", "wrong-type", "must be a list"),
    "a node is text": ({"nodes": ["a"]}, "/nodes/0", "wrong-type", "A node must be an object"),
    "an edge is a list": ({"nodes": [LOG], "edges": [["a", "b"]]}, "/edges/0", "wrong-type", "An edge must be"),
    "name is a number": ({"name": 3, "nodes": [LOG]}, "/name", "wrong-type", "must be text"),
    "name is blank": ({"name": "  ", "nodes": [LOG]}, "/name", "bad-name", "1 to 200"),
    "name holds a version's sign": ({"name": "a@b", "nodes": [LOG]}, "/name", "bad-name", "must not hold '@'"),
    "nodes twice": ({"nodes": [LOG], "dag": {"nodes": [LOG]}}, "/nodes", "mixed-spelling", "keep one"),
    "tags is text": ({**node(), "tags": "x"}, "/tags", "wrong-type", "list of texts"),
    "description is a list": ({**node(), "description": []}, "/description", "wrong-type", "must be text"),
    "concurrency limit zero": ({**node(), "concurrency": {"limit": 0}}, "/concurrency/limit", "wrong-type", "whole"),
    "concurrency key": ({**node(), "concurrency": {"key": 3, "limit": 1}}, "/concurrency/key", "wrong-type", "text"),
    "concurrency rate": ({**node(), "concurrency": {"rate": "fast"}}, "/concurrency", "wrong-type", "10/s"),
    "concurrency expression": (
        {**node(), "concurrency": {"key": "$trigger.", "limit": 1}}, "/concurrency/key", "bad-expression", "",
    ),
}  # fmt: skip

NODES = {
    "no id": ({"nodes": [{"type": "log"}]}, "/nodes/0", "missing-id", "no 'id'"),
    "concurrency of a node": (
        node(concurrency={"limit": "2"}),
        "/nodes/0/concurrency",
        "bad-concurrency",
        "whole",
    ),
    "numeric id": (node(id=7), "/nodes/0/id", "bad-id", "without quotes"),
    "id with a space": (node(id="a b"), "/nodes/0/id", "bad-id", "letters, digits"),
    "id with a dollar": (node(id="$a"), "/nodes/0/id", "bad-id", "begin with a letter"),
    "empty id": (node(id=""), "/nodes/0/id", "bad-id", "begin with"),
    "reserved id": (node(id="item"), "/nodes/0/id", "reserved-id", "'$item' means something else"),
    "reserved id of another type": (node(id="input"), "/nodes/0/id", "reserved-id", "choose another"),
    "duplicate id": ({"nodes": [LOG, LOG]}, "/nodes/1/id", "duplicate-id", "node at /nodes/0"),
    "no type": ({"nodes": [{"id": "a"}]}, "/nodes/0", "missing-type", "no 'type'"),
    "type is a number": (node(type=3), "/nodes/0/type", "wrong-type", "must be text"),
    "unknown type": (node(type="htpp"), "/nodes/0/type", "unknown-type", "did you mean 'http'?"),
    "unknown handler": (
        dag({"id": "a", "handler": "mrege"}),
        "/dag/nodes/0/handler",
        "unknown-type",
        "'merge'?",
    ),
    "type and handler": (node(handler="http"), "/nodes/0/handler", "mixed-spelling", "disagree"),
    "parameters is a list": (
        node(parameters=[]) | {},
        "/nodes/0/parameters",
        "wrong-type",
        "must be an object",
    ),
    "parameters and config": (
        node(parameters={"message": "x"}, config={"message": "y"}),
        "/nodes/0/config",
        "mixed-spelling",
        "not both",
    ),
    "unknown parameter": (
        node(parameters={"mesage": "x"}),
        "/nodes/0/parameters/mesage",
        "bad-parameter",
        "did you mean 'message'?",
    ),
    "unknown config": (
        dag({"id": "a", "config": {"a/b": 1}}),
        "/dag/nodes/0/config/a~1b",
        "bad-parameter",
        "Unknown parameter",
    ),
    "missing parameter": (node(type="http"), "/nodes/0/parameters", "bad-parameter", "'url' is missing"),
    "node name is a list": (node(name=[]), "/nodes/0/name", "wrong-type", "must be text"),
    "trigger is text": (node(trigger="yes"), "/nodes/0/trigger", "wrong-type", "true or false"),
    "credentials": (
        node(credentials={"ref": "{{ $trigger.key }}"}),
        "/nodes/0/credentials/ref",
        "bad-credentials",
        "write it out",
    ),
    "queue with a space": (node(queue="my queue"), "/nodes/0/queue", "bad-queue", "letters, digits"),
}

SETTINGS = {
    "timeout in words": (node(timeout="soon"), "/nodes/0/timeout", "bad-duration", "'30s'"),
    "unknown unit": (node(timeout="3 parsecs"), "/nodes/0/timeout", "bad-duration", "unknown unit 'parsecs'"),
    "number without unit": (node(timeout="1h30"), "/nodes/0/timeout", "bad-duration", "without a unit"),
    "timeout of zero": (node(timeout=0), "/nodes/0/timeout", "bad-duration", "zero"),
    "negative timeout": ({**node(), "timeout": -1}, "/timeout", "bad-duration", "negative"),
    "boolean timeout": ({**node(), "timeout": True}, "/timeout", "bad-duration", "not a duration"),
    "endless timeout": ({**node(), "timeout": "99999d"}, "/timeout", "bad-duration", "hundred years"),
    "retry is a number": (node(retry=3), "/nodes/0/retry", "bad-retry", '{"max_attempts": 3}'),
    "retry never": (node(retry={"max_attempts": 0}), "/nodes/0/retry/max_attempts", "bad-retry", "from 1"),
    "retry misspelt": (
        node(retry={"max_atempts": 2}),
        "/nodes/0/retry/max_atempts",
        "bad-retry",
        "'max_attempts'?",
    ),
    "retry delay": (
        node(retry={"max_attempts": 2, "initial_delay": "x"}),
        "/nodes/0/retry/initial_delay",
        "bad-duration",
        "not a duration",
    ),
    "retry factor": (node(retry={"factor": 0.5}), "/nodes/0/retry/factor", "bad-retry", "from 1 to 100"),
    "retry jitter": (node(retry={"jitter": 2}), "/nodes/0/retry/jitter", "bad-retry", "from 0 to 1"),
    "retry on": (node(retry={"on": [3]}), "/nodes/0/retry/on", "bad-retry", "list of error codes"),
    "http retry": (
        node(type="http", parameters={"url": "u", "retry": "{{ 3 }}"}),
        "/nodes/0/parameters/retry",
        "bad-retry",
        "whole number",
    ),
    "error strategy": (node(error={"type": "stop"}), "/nodes/0/error/type", "bad-error-strategy", "'halt'"),
    "error is a list": (node(error=[1]), "/nodes/0/error", "wrong-type", "object with 'type'"),
    "branch without edge": (node(error={"type": "branch"}), "/nodes/0/error", "no-error-edge", "error_edge"),
    "merge wait_mode": (
        node(type="merge", parameters={"wait_mode": "some"}),
        "/nodes/0/parameters/wait_mode",
        "bad-parameter",
        "'wait_for_all'",
    ),
    "merge timeout as template": (
        node(type="merge", parameters={"timeout": "{{ 3 }}"}),
        "/nodes/0/parameters/timeout",
        "bad-duration",
        "not a duration",
    ),
    "input schema": (
        {**node(), "input_schema": {"type": "strin"}},
        "/input_schema/type",
        "bad-input-schema",
        "Not a valid JSON Schema",
    ),
    "input schema is text": (
        {**node(), "input_schema": "x"},
        "/input_schema",
        "bad-input-schema",
        "an object",
    ),
    "remote reference": (
        {**node(), "input_schema": {"properties": {"a": {"$ref": "https://example.com/s.json"}}}},
        "/input_schema/properties/a/$ref",
        "bad-input-schema",
        "outside the schema",
    ),
    "pattern with lookahead": (
        {**node(), "input_schema": {"pattern": "(?=a)b"}},
        "/input_schema/pattern",
        "bad-input-schema",
        "RE2",
    ),
}

WIRING = {
    "edge from nowhere": (
        {"nodes": [LOG], "edges": [{"id": "e", "src": "b", "dst": "a"}]},
        "/edges/0/src",
        "dangling-edge",
        "no node with that id",
    ),
    "edge to a misspelt node": (
        {"nodes": [{"id": "fetch", "type": "log"}, LOG], "edges": [{"id": "e", "src": "a", "dst": "fetsh"}]},
        "/edges/0/dst",
        "dangling-edge",
        "did you mean 'fetch'?",
    ),
    "edge without dst": ({"nodes": [LOG], "edges": [{"src": "a"}]}, "/edges/0", "missing-end", "no 'dst'"),
    "edge with source and target": (
        {"nodes": [LOG], "edges": [{"id": "e", "source": "a", "dst": "a"}]},
        "/edges/0",
        "missing-end",
        "rename 'source' to 'src'",
    ),
    "edge end is a number": ({"nodes": [LOG], "edges": [{"src": 1, "dst": "a"}]}, "/edges/0/src", "wrong-type", "id"),
    "edge id is a number": (
        {"nodes": [LOG], "edges": [{"id": 1, "src": "a", "dst": "a"}]},
        "/edges/0/id",
        "bad-id",
        "must be text",
    ),
    "error mark": (
        {"nodes": [LOG, {"id": "b", "type": "log"}], "edges": [{"src": "a", "dst": "b", "is_error": 3}]},
        "/edges/0/is_error",
        "wrong-type",
        "true, false or 'error'",
    ),
    "duplicate edge id": (
        {
            "nodes": [LOG, {"id": "b", "type": "log"}],
            "edges": [{"id": "e", "src": "a", "dst": "b"}, {"id": "e", "src": "a", "dst": "b"}],
        },
        "/edges/1/id",
        "duplicate-id",
        "taken by /edges/0",
    ),
    "self-loop": (document("a > a"), "/edges/0", "self-loop", "leads to itself"),
    "cycle": (document("x > a > b > c > a"), "/edges/3", "cycle", "a → b → c → a"),
    "all in a cycle": (document("a > b > a"), "/nodes", "no-entry", "none to start at"),
    "no end": (document("a > b > a"), "/nodes", "no-exit", "none to end at"),
    "dangling dependency": (
        dag({"id": "a", "dependencies": ["b"]}),
        "/dag/nodes/0/dependencies/0",
        "dangling-dependency",
        "depends on 'b'",
    ),
    "dependency is a number": (
        dag({"id": "a", "dependencies": [1]}),
        "/dag/nodes/0/dependencies/0",
        "wrong-type",
        "node's id",
    ),
    "dependencies is text": (dag({"id": "a", "dependencies": "b"}), "/dag/nodes/0/dependencies", "wrong-type", "list"),
    "dependency twice": (
        dag({"id": "a"}, {"id": "b", "dependencies": ["a", "a"]}),
        "/dag/nodes/1/dependencies/1",
        "duplicate-dependency",
        "listed twice",
    ),
    "cycle of dependencies": (
        dag({"id": "a", "dependencies": ["b"]}, {"id": "b", "dependencies": ["a"]}),
        "/dag/nodes/0/dependencies/0",
        "cycle",
        "a → b → a",
    ),
    "edges and dependencies": (
        {"nodes": [LOG, {"id": "b", "type": "log", "dependencies": ["a"]}], "edges": [{"src": "a", "dst": "b"}]},
        "/nodes/1/dependencies",
        "mixed-spelling",
        "use one of the two",
    ),
    "unreachable": (document("t > a, b > c", t="manual"), "/nodes/2", "unreachable", "no trigger leads to it"),
    "input of a trigger": (document("a > t > b", t="manual"), "/edges/0/dst", "trigger-has-input", "starts behind"),
    "trigger with error edge": (document("t > a, t !> b", t="manual"), "/edges/1/is_error", "trigger-error-edge", ""),
    "foreign true edge": (
        document("a > c > b", c={"type": "conditional", "parameters": {"true_edge_id": "a-c"}}),
        "/nodes/1/parameters/true_edge_id",
        "foreign-edge",
        "'a-c' is not an edge that leaves node 'c'; those that do: 'c-b'",
    ),
    "true edge is a list": (
        document("c > b", c={"type": "conditional", "parameters": {"true_edge_id": []}}),
        "/nodes/0/parameters/true_edge_id",
        "wrong-type",
        "edge's id",
    ),
    "foreign route": (
        document("a > s > b", s={"type": "switch", "parameters": {"routes": ["s-b", "nope"]}}),
        "/nodes/1/parameters/routes/1",
        "foreign-edge",
        "not an edge that leaves",
    ),
    "too many routes": (
        document("s > b, s > c", s={"type": "switch", "parameters": {"rules": [], "routes": ["s-b", "s-c"]}}),
        "/nodes/0/parameters/routes",
        "too-many-routes",
        "2 routes for 0 rules",
    ),
    "foreign error edge": (
        document("a > b > c", a={"error": {"type": "branch", "error_edge": "b-c"}}),
        "/nodes/0/error/error_edge",
        "foreign-edge",
        "not an edge that leaves node 'a'",
    ),
    "error edge as condition": (
        document("c > a, c !> b", c={"type": "conditional", "parameters": {"false_edge_id": "c-b"}}),
        "/nodes/0/parameters/false_edge_id",
        "foreign-edge",
        "error edge",
    ),
}  # fmt: skip

SCOPES = {
    "aggregator without split": (document("a > g", g="aggregator"), "/nodes/1", "aggregator-outside-split", "outside"),
    "aggregator after aggregator": (
        document("s > a > g > h", s="split", g="aggregator", h="aggregator"),
        "/nodes/3",
        "aggregator-outside-split",
        "needs a split before it",
    ),
    "aggregator as entry": (document("g > a", g="aggregator"), "/nodes/0", "aggregator-outside-split", "outside"),
    "two aggregators": (
        document("s > a > g, s > b > h", s="split", g="aggregator", h="aggregator"),
        "/nodes/4",
        "ambiguous-aggregator",
        "Both 'g' and 'h'",
    ),
    "aggregator from outside": (
        document("x > s > a > g, x > g", s="split", g="aggregator"),
        "/edges/3",
        "aggregator-from-outside",
        "inside split 's' and outside any split",
    ),
    "aggregator on the split's error edge": (
        document("s > a > g, s !> g", s="split", g="aggregator"),
        "/edges/2",
        "aggregator-from-outside",
        "one split",
    ),
    "node at two depths": (
        document("x > s > a > m, x > m", s="split"),
        "/nodes/3",
        "two-scopes",
        "inside split 's' and outside any split",
    ),
    "node in two splits": (
        document("x > s > a, x > r > a", s="split", r="split"),
        "/nodes/2",
        "two-scopes",
        "inside split 's' and inside split 'r'",
    ),
    "aggregator of two splits": (
        document("x > s > a > g, x > r > b > g", s="split", r="split", g="aggregator"),
        "/edges/5",
        "aggregator-from-outside",
        "inside split 's' and inside split 'r'",
    ),
}  # fmt: skip

DOCUMENTS = {**SHAPE, **NODES, **SETTINGS, **WIRING, **SCOPES}

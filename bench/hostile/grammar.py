"""Seeded generators of expressions, scripts, schemas and graph documents: random ones, and known ways to hurt."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

TEXT_METHODS = (
    "split", "trim", "trimStart", "trimEnd", "toUpperCase", "toLowerCase", "startsWith", "endsWith", "includes",
    "indexOf", "lastIndexOf", "replace", "replaceAll", "replaceMatches", "matches", "match", "substring", "slice",
    "padStart", "padEnd", "repeat", "concat", "at", "charAt", "codePointAt", "toString",
)  # fmt: skip
LIST_METHODS = (
    "concat", "includes", "indexOf", "lastIndexOf", "slice", "join", "flat", "unique", "at", "map", "filter", "find",
    "some", "every", "reduce", "sort", "reverse", "push", "splice", "fill",
)  # fmt: skip
FUNCTIONS = (
    "JSON.parse", "JSON.stringify", "Object.keys", "Object.values", "Object.entries", "Number", "String", "parseInt",
    "parseFloat", "hash", "Math.max", "Math.min", "Math.pow", "Date.parse", "Date.format", "Array.isArray",
)  # fmt: skip
OPERATORS = ("+", "-", "*", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "??", "in")
SIZES = (0, 1, 3, 400, 5_000, 60_000, 600_000, 4_000_000, 15_000_000)
PATTERNS = (
    "^(a+)+$",
    "(" * 20 + "a" + ")" * 20,
    "(a)" * 400,
    "(a|b|c)*d",
    "[",
    "(?=a)",
    ".{1000}",
    "\\\\1",
    "a{1000}{10}",
    r"[\pL\pN]{100}",
    r"(\pL|\pN|\pS)*" * 30,
    r"\pL*" * 120,
    "a[ab]{999}c",
)
COSTLY = (
    "a[ab]{{{}}}c",
    r"\pL{{{}}}",
    r"[\pL\pN]{{{}}}",
    r"(\pL|\pN|\pS)*" * 40 + "{}",
    ".{{0,{0}}}" * 100,
)
"""Patterns whose search or compiling takes long, with a number that makes each another one."""


class Grammar:
    def __init__(self, random: Random) -> None:
        self.random = random

    def choose(self, choices: Any) -> Any:
        return self.random.choice(list(choices))

    # -- expressions ------------------------------------------------------------------------------------------

    def expression(self, depth: int = 4, names: tuple[str, ...] = ("input",)) -> str:
        if depth <= 0 or self.random.random() < 0.15:
            return self.leaf(names)
        made: Callable[[], str] = self.choose(
            (
                lambda: (
                    f"{self.expression(depth - 1, names)} {self.choose(OPERATORS)} {self.expression(depth - 1, names)}"
                ),
                lambda: f"({self.expression(depth - 1, names)})",
                lambda: f"{self.large()}.{self.choose(TEXT_METHODS)}({self.arguments(depth, names)})",
                lambda: f"{self.list()}.{self.choose(LIST_METHODS)}({self.arguments(depth, names)})",
                lambda: f"{self.choose(FUNCTIONS)}({self.arguments(depth, names)})",
                lambda: f"{self.list()}.map(x => {self.expression(depth - 2, (*names, 'x'))})",
                lambda: (
                    f"[{', '.join(self.expression(depth - 1, names) for _ in range(self.random.randint(0, 5)))}]"
                ),
                lambda: f"{{a: {self.expression(depth - 1, names)}, ...{{b: {self.leaf(names)}}}}}",
                lambda: f"({self.expression(depth - 1, names)} ? {self.leaf(names)} : {self.leaf(names)})",
                lambda: f"`{{${{{self.expression(depth - 1, names)}}}}}`",
                self.hurt,
            )
        )
        return made()

    def arguments(self, depth: int, names: tuple[str, ...]) -> str:
        made = [
            self.choose((self.large, self.list, lambda: self.leaf(names), self.number, self.pattern))()
            for _ in range(3)
        ]
        return ", ".join(made[: self.random.randint(0, 2)] or [self.expression(depth - 2, names)])

    def leaf(self, names: tuple[str, ...]) -> str:
        return str(
            self.choose(
                (
                    *names,
                    "null",
                    "true",
                    "1e308",
                    "-1",
                    "0.1",
                    "'x'",
                    "''",
                    "'\\u0000'",
                    "[]",
                    "{}",
                    "9007199254740993",
                )
            )
        )

    def number(self) -> str:
        return str(self.choose((-1, 0, 1, 2, 1000, 10**7, 2**31, 2**53, 1e300)))

    def pattern(self) -> str:
        return json.dumps(self.choose(PATTERNS))

    def large(self) -> str:
        return f"{json.dumps(self.choose(('a', ' ', 'ab', 'é', '9', '(')))}.repeat({self.choose(SIZES)})"

    def list(self) -> str:
        return f"{self.large()}.split({self.choose(('', json.dumps('a'), json.dumps('')))})"

    def hurt(self) -> str:
        """What took seconds or gigabytes once."""
        size = self.choose(SIZES[4:])
        some = min(size, 60_000)
        return str(
            self.choose(
                (
                    f"('a'.repeat({size})).lastIndexOf('a'.repeat({size // 2}) + 'b')",
                    f"parseInt(' '.repeat({size}))",
                    f"Number(' '.repeat({size}) + '1')",
                    f"('a'.repeat({size})).match('(a)'.repeat(400))",
                    f"('a'.repeat({size})).replaceMatches('a', 'bb')",
                    f"('ab'.repeat({size})).split('').sort().join('').toUpperCase()",
                    f"JSON.stringify(('a'.repeat({size})).split('').map(x => [x, x]))",
                    f"JSON.parse('['.repeat({min(size, 100_000)}))",
                    f"[1,2,3,4,5,6,7,8].map(x => 'a'.repeat({size})).map(x => x.slice(1)).map(x => x.substring(1))",
                    f"('a'.repeat({some})).split('').map(x => ('b'.repeat({some})).indexOf(x))",
                    f"('a'.repeat({some})).split('').unique().flat().concat([[[1]]]).flat(200)",
                    f"Math.max(...('9'.repeat({min(size, 600_000)})).split(''))",
                    f"hash('a'.repeat({size})) + hash('b'.repeat({size}))",
                    f"('a'.repeat({size})) == ('a'.repeat({size}))",
                    f"9 ** 9 ** 9 ** {size}",
                )
            )
        )

    # -- scripts ----------------------------------------------------------------------------------------------

    def script(self) -> str:
        return str(self.choose((self.random_script, self.random_script, self.hurting_script))())

    def random_script(self) -> str:
        lines = ["let v0 = inputs"]
        for number in range(1, self.random.randint(2, 12)):
            names = tuple(f"v{index}" for index in range(number))
            value = self.expression(3, names)
            wrapped = self.choose(
                (
                    f"let v{number} = {value}",
                    f"let v{number} = {value}\nawait Timer.delay(0)",
                    f"let v{number} = 0\nfor (let i of {self.list()}) {{ v{number} += i.length }}",
                    f"let v{number} = []\n{_until(f'v{number}', self.choose(SIZES), self.leaf(names))}",
                    f"let v{number} = null\ntry {{ v{number} = {value} }} catch (e) {{ v{number} = e.message }}",
                    f"let v{number} = await Promise.all([Timer.delay(0), Timer.delay(0.01)])\nlog({value})",
                )
            )
            lines.append(wrapped)
        lines.append(f"return {self.choose(('v0', '1', f'v{self.random.randint(0, 1)}'))}")
        return "\n".join(lines)

    def hurting_script(self) -> str:
        size = self.choose(SIZES[5:])
        text = f"let s = 'a'.repeat({size})\nlet all = []\n"
        return str(
            self.choose(
                (
                    "while (true) {}",
                    "function f(n) { return f(n + 1) }\nreturn f(0)",
                    f"let kept = []\nwhile (true) {{ kept.push('a'.repeat({size})); await Timer.delay(0) }}",
                    text + "for (let i = 0; i < 80; i++) { all.push(s) }\nreturn all",
                    text + "while (true) { all.push(s.slice(1)) }",
                    "let d = [1]\nfor (let i = 0; i < 60; i++) { d = [d, d] }\nreturn d",
                    "let d = [1]\nfor (let i = 0; i < 40; i++) { d = [d, d] }\nawait Timer.delay(0)\nreturn d.length",
                    "let p = []\nfor (let i = 0; i < 20000; i++) { p.push(Timer.delay(3600)) }\nawait Promise.all(p)",
                    "let p = []\nfor (let i = 0; i < 2000; i++) { p.push(Timer.delay(0)) }\nawait Promise.all(p)",
                    "await Signal.next('never')",
                    "while (true) { await Timer.delay(0) }",
                    f"let s = ''\nfor (let i = 0; i < {size}; i++) {{ s += 'a' }}\nreturn s.length",
                    f"let l = ('a'.repeat({size})).split('')\nlet n = 0\nfor (let x of l) {{ l[n] = x + x; n++ }}",
                    f"let o = {{}}\nfor (let i = 0; i < {size}; i++) {{ o['k' + i] = i }}\nreturn o.k1",
                    "let f = x => x\nfor (let i = 0; i < 400; i++) { let g = f; f = x => g(x) + 1 }\nreturn f(0)",
                    f"return Task.run('nothing', 'a'.repeat({size}))",
                    "return await Workflow.run('nothing', {})",
                )
            )
        )

    # -- schemas ----------------------------------------------------------------------------------------------

    def schema(self, listener: int) -> dict[str, Any]:
        size = self.choose((3, 12, 24, 60))
        doubled = {
            "$defs": {
                f"d{number}": {
                    "allOf": [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}]
                }
                for number in range(size)
            }
            | {f"d{size}": {"type": "object"}},
            "$ref": "#/$defs/d0",
        }
        outside = {
            "$ref": "#/x-hidden/a",
            "x-hidden": {"a": {"allOf": [{"$id": f"http://127.0.0.1:{listener}/", "$ref": "#/foo"}]}},
        }
        found: dict[str, Any] = self.choose(
            (
                doubled,
                outside,
                {"$ref": "#/x", "x": {"allOf": [{"$id": "file:///etc/passwd", "$ref": "#/a"}]}},
                {"type": "array", "uniqueItems": True},
                {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
                {
                    "$schema": "http://json-schema.org/draft-04/schema#",
                    "properties": {"a": {"pattern": "^(a+)+$"}},
                },
                {
                    "properties": {
                        "a": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}
                    }
                },
                {"patternProperties": {pattern: {"type": "string"} for pattern in PATTERNS[:3]}},
                self.costly_patterns(),
                self.costly_patterns(),
                {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
                {"anyOf": [{"$ref": "#"}] * size},
                {"enum": [{"a": [number] * 100} for number in range(500)]},
                {
                    "unevaluatedProperties": False,
                    "anyOf": [{"properties": {f"p{n}": {}}} for n in range(200)],
                },
                {"contains": {"contains": {"contains": {"const": 1}}}, "type": "array"},
                self.random_schema(5),
            )
        )
        return found

    def costly_patterns(self) -> dict[str, Any]:
        """At a value, at its members and at their names."""
        costly = self.choose(COSTLY)
        some = [costly.format(self.random.randint(50, 999)) for _ in range(self.choose((1, 6, 40)))]
        return {
            "allOf": [{"pattern": each} for each in some],
            "additionalProperties": {"pattern": some[0]},
            "patternProperties": {each: {} for each in some},
        }

    def random_schema(self, depth: int) -> dict[str, Any]:
        if depth <= 0:
            return {"type": self.choose(("string", "number", "object", "array", "null", "nonsense"))}
        made = {}
        for _ in range(self.random.randint(0, 3)):
            keyword = self.choose(
                (
                    "allOf",
                    "anyOf",
                    "oneOf",
                    "not",
                    "items",
                    "properties",
                    "additionalProperties",
                    "if",
                    "$ref",
                    "minimum",
                    "format",
                )
            )
            inner = self.random_schema(depth - 1)
            if keyword in ("allOf", "anyOf", "oneOf"):
                made[keyword] = [inner, self.random_schema(depth - 1)]
            elif keyword == "properties":
                made[keyword] = {"a": inner, "b": self.random_schema(depth - 2)}
            elif keyword == "$ref":
                made[keyword] = self.choose(("#", "#/nowhere", "#/allOf/0", "http://127.0.0.1:1/x", ""))
            elif keyword in ("minimum", "format"):
                made[keyword] = self.choose((1, "date", "regex", 1e308))
            else:
                made[keyword] = inner
        return made

    def payload(self) -> Any:
        size = self.choose((1, 10, 1_500, 20_000))
        return self.choose(
            (
                {"a": "a" * 40 + "!"},
                {"a": [{"k": [number % 7]} for number in range(size)]},
                [{"k": [number]} for number in range(size)],
                "x" * size,
                _nested(self.choose((5, 150, 190))),
                {f"p{number}": number for number in range(size)},
                None,
                12345678901234567890,
            )
        )

    # -- graphs -----------------------------------------------------------------------------------------------

    def graph(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = self.choose(
            (self.chain, self.chain, self.list_nodes, self.wide, self.waiting, self.keyed)
        )()
        return {"name": name, **made}

    def braces(self, depth: int = 4) -> str:
        return "{{ " + self.expression(depth) + " }}"

    def chain(self) -> dict[str, Any]:
        """Nodes in a row; their parameters are templates."""
        count = self.choose((1, 2, 5, 30))
        nodes = [
            {
                "id": f"n{number}",
                "type": "edit",
                "parameters": {
                    "assignments": [
                        {"name": f"f{index}", "value": self.braces()}
                        for index in range(self.choose((1, 3, 12, 80)) if count < 5 else 1)
                    ]
                },
                **({"error": {"type": "ignore"}} if self.random.random() < 0.5 else {}),
            }
            for number in range(count)
        ]
        return {"nodes": nodes, "edges": _row(nodes)}

    def list_nodes(self) -> dict[str, Any]:
        items = "{{ " + f"('ab'.repeat({self.choose(SIZES[3:7])})).split('')" + " }}"
        kind = self.choose(("map", "filter", "sort", "group", "dedupe", "limit"))
        parameters: dict[str, Any] = {"input_array": items}
        if kind == "limit":
            parameters["count"] = 10
        else:
            parameters["expression"] = self.choose(
                ("$item", "$item + $item", "$index % 7", "$item == 'a'", self.expression(2, ("$item",)))
            )
        nodes = [{"id": "l", "type": kind, "parameters": parameters}]
        return {"nodes": nodes, "edges": []}

    def wide(self) -> dict[str, Any]:
        size = self.choose((10, 300, 3_000))
        nodes = [
            {
                "id": "s",
                "type": "split",
                "parameters": {"input_array": "{{ " + f"'a'.repeat({size}).split('')" + " }}"},
            },
            {
                "id": "e",
                "type": "edit",
                "parameters": {"assignments": [{"name": "x", "value": self.braces(2)}]},
            },
            {"id": "g", "type": "aggregator"},
        ]
        return {"nodes": nodes, "edges": _row(nodes)}

    def waiting(self) -> dict[str, Any]:
        node: dict[str, Any] = self.choose(
            (
                {
                    "id": "w",
                    "type": "wait",
                    "parameters": {"amount": self.choose((0, 0.01, 1e9, -1, "x")), "unit": "seconds"},
                },
                {
                    "id": "w",
                    "type": "wait",
                    "parameters": {"resume": "signal", "signal": "never", "timeout": "36500d"},
                },
                {"id": "w", "type": "approval", "parameters": {"message": "?", "form": self.schema(1)}},
                {
                    "id": "w",
                    "type": "http",
                    "timeout": "36500d",
                    "parameters": {"url": "http://127.0.0.1:1/", "timeout": 1e9},
                },
                {
                    "id": "w",
                    "type": "http",
                    "parameters": {"url": "http://１２７。０。０。１/", "headers": {"Host": "x"}},
                },
                {"id": "w", "type": "workflow", "parameters": {"name": "hostile-0", "input": {}}},
                {"id": "w", "type": "script", "parameters": {"source": self.script()}},
                {"id": "w", "type": "nonsense", "parameters": {}},
            )
        )
        return {"nodes": [node], "edges": []}

    def keyed(self) -> dict[str, Any]:
        nodes = [{"id": "n", "type": "log", "parameters": {"message": "x"}}]
        limit = {"key": self.braces(), "limit": 1}
        return {"nodes": nodes, "edges": [], "concurrency": limit, "output": self.braces(3)}

    def vast_graph(self, name: str, count: int) -> dict[str, Any]:
        nodes = [
            {"id": f"n{number}", "type": "log", "parameters": {"message": "m"}} for number in range(count)
        ]
        return {"name": name, "nodes": nodes, "edges": _row(nodes)}


def _until(name: str, size: int, value: str) -> str:
    return f"while ({name}.length < {size}) {{ {name}.push({value}) }}"


def _row(nodes: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"src": left["id"], "dst": right["id"]} for left, right in pairwise(nodes)]


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value

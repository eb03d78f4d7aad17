"""After a syntax error the rest of a script is read, too: all errors are told at once, and no consequences of them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.lang import FlowSyntaxError, compile, validate
from dalsegno.lang.flow.syntax.error_recovery import MOST_PROBLEMS
from tests.effort import examples
from tests.rows import rows


def found(source: str) -> list[str]:
    return [f"{finding.rule} {finding.line}:{finding.column}" for finding in validate(source)]


SEVERAL = [
    ("if (x = 5) { return 1 }\nlet y = i++ + 2", ["syntax 1:7", "syntax 2:10"]),
    ("let x = {a: 1 b: 2}\nlet y = [1 2]\nreturn (1, 2)", ["syntax 1:15", "syntax 2:12", "syntax 3:10"]),
    ("let x = a\nouter: for (const y of x) { break outer }", ["undefined-variable 1:9", "syntax 2:1"]),
    ("let a = = 1\nreturn a + missing", ["syntax 1:9", "undefined-variable 2:12"]),
    ("let x = 1\nvar y = 2\nreturn x + y + z", ["syntax 2:1", "undefined-variable 3:16"]),
    ("let x = 1\n#\nreturn x + z", ["syntax 2:1", "undefined-variable 3:12"]),
    ("function f(a) {\n  return a +\n}\nlet b = = f(1)\nlog(c)",
     ["syntax 3:1", "syntax 4:9", "undefined-variable 5:5"]),
    ("const r = [1].map(x => {\n  let q = = x\n  return q\n})\nlog(r, z)", ["syntax 2:11", "undefined-variable 5:8"]),
    ("workflow a(i) { return i }\nlog(1)\nlog(2)", ["syntax 2:1", "syntax 3:1"]),
    ("log(`a ${1 +} b`)\nlog(nope)", ["syntax 1:13", "undefined-variable 2:5"]),
    ("let x = 1 +\n\n  2 = 5\nlog(x, y)", ["syntax 3:5", "undefined-variable 4:8"]),
    ("let x = f(1 2)\n  .map(y => y)\nlog(x, z)", ["syntax 1:13", "undefined-variable 3:8"]),
]  # fmt: skip

HEADS = [
    ("while (a b) { break }\nlog(c)", ["syntax 1:10", "undefined-variable 2:5"]),
    ("for (let i = 0; i < ; i++) { break }\nlog(c)", ["syntax 1:21", "undefined-variable 2:5"]),
    ("if (a b) { log(1) } else if (c d) { log(2) } else { log(e) }",
     ["syntax 1:7", "syntax 1:32", "undefined-variable 1:57"]),
    ("try { log(1) } catch (1) { log(b) }", ["syntax 1:23", "undefined-variable 1:32"]),
    ("function f(a, 1) { return a }\nreturn f(1) + b", ["syntax 1:15", "undefined-variable 2:15"]),
    ("if () { log(1) }\nlog(b)", ["syntax 1:5", "undefined-variable 2:5"]),
    ("if (inputs.a) return 2\nlog(b)", ["syntax 1:1", "undefined-variable 2:5"]),
    ("if inputs.a {\n  log(1)\n}\nelse {\n  log(2)\n}\nlog(b)", ["syntax 1:4", "undefined-variable 7:5"]),
]  # fmt: skip

NO_CONSEQUENCES = [
    ("try { log(1) }\nreturn 2", ["syntax 2:1"]),
    ("try { log(1) } catch e { log(e) }", ["syntax 1:22"]),
    ("let total = = 1\ntotal = 2\ntotal += 1\nreturn total", ["syntax 1:13"]),
    ("let used = 1\nlog(used used)", ["syntax 2:10"]),
    ("async function main() { return 1 }\nlog(1 main())", ["syntax 2:7"]),
    ("return #", ["syntax 1:8"]),
    ("let a = 'abc\nlet b = 'def'\nreturn b + c", ["syntax 2:13"]),
    ("function f() {\n  log(1)\nreturn f() + c", ["syntax 1:14"]),
    ("function f() {\n  let a = 1 }\n  return a\n}\nreturn f()", ["syntax 4:1"]),
]  # fmt: skip


@rows(("source", "expected"), [*SEVERAL, *HEADS, *NO_CONSEQUENCES])
def test_findings_despite_syntax_errors(source: str, expected: list[str]) -> None:
    assert found(source) == expected


def test_what_stands_before_a_missing_bracket_is_still_read() -> None:
    assert found("let a = = 1\nlog(a b)\nwhile (true { log(1) }\nlet b = = 2") == [
        "syntax 1:9",
        "syntax 2:7",
        "syntax 3:7",
    ]


def test_the_number_of_syntax_errors_is_limited() -> None:
    assert len(validate("let a = = 1\n" * 100)) == MOST_PROBLEMS == 20


def test_a_long_source_gets_few_tries() -> None:
    source = "let a = = 1\n" * 40_000
    started = time.process_time()
    assert 1 <= len(validate(source)) <= 4
    assert time.process_time() - started < 20


def test_the_excerpt_is_of_the_source_as_it_was_written() -> None:
    assert [finding.excerpt for finding in validate("let a = = 1\nlet b = = 2")] == [
        "let a = = 1\n        ^",
        "let b = = 2\n        ^",
    ]


def test_a_source_that_is_nested_too_deeply_is_told_once() -> None:
    assert found("{" * 300 + "}" * 300) == ["syntax 1:201"]


def test_errors_of_the_front_matter_stand_alone() -> None:
    assert found("```\nname: 5\n```\nlet a = = 1") == ["syntax 2:1"]


CLEAN = """const limit = inputs.limit ?? 3
let total = 0
for (const item of inputs.items) {
  if (item.price > limit) {
    total += item.price
  } else {
    log(`cheap: ${item.name}`)
  }
  const rate = await Task.run("rate", {item})
  total = total * rate
}
function rounded(value) {
  const cents = Math.round(value * 100)
  return cents / 100
}
let tries = 0
while (tries < 3) {
  tries++
  if (await Signal.next("go")) { break }
}
try {
  await Task.run("charge", {total: rounded(total)})
} catch (error) {
  log(error.message)
}
return {total, done: [1, 2].map(x => x * total)}
""".splitlines()
SIMPLE = [number for number, line in enumerate(CLEAN) if "{" not in line and "}" not in line]
BROKEN = [
    "let = 5",
    "log(1 2)",
    "x = = 1",
    "return a b",
    "new Thing()",
    "log(1 << 2)",
    "5 = x",
    "let y = z++ + 1",
    "@",
]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("number", SIMPLE)
def test_one_broken_line_is_one_error(broken: str, number: int) -> None:
    """Whatever the line defined or used, nothing else is said to be wrong."""
    original = CLEAN[number].strip()
    lines = [
        *CLEAN[:number],
        f"{broken} {original}" if number % 2 else f"{broken}, {original}",
        *CLEAN[number + 1 :],
    ]
    assert validate("\n".join(CLEAN)) == []
    errors = [finding for finding in validate("\n".join(lines)) if finding.severity == "error"]
    assert {finding.line for finding in errors} == {number + 1}


def first_error(source: str) -> tuple[int, int, str] | None:
    try:
        compile(source)
    except FlowSyntaxError as error:
        return error.line, error.column, error.message
    return None


PIECES = [
    "let a = 1",
    "}",
    "{",
    "(",
    ")",
    "if (x) {",
    "`a${",
    "'",
    "/*",
    "x =>",
    "= 2",
    "else {",
    "\n",
    ";",
    "[1, ",
    "new",
]


@examples(300)
@given(st.lists(st.sampled_from([*PIECES, *CLEAN]), max_size=12).map(" ".join))
def test_whatever_the_source_validation_ends_and_names_the_error_of_the_compiler(source: str) -> None:
    places = [
        (finding.line, finding.column, finding.message)
        for finding in validate(source)
        if finding.rule == "syntax"
    ]
    first = first_error(source)
    assert places == [] if first is None else first in places
    assert len(set(places)) == len(places)

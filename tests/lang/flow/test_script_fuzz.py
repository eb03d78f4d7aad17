"""Whatever the text, reading a script ends in a tree or in a `FlowSyntaxError`, and soon."""

from __future__ import annotations

import gc
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.lang import Finding, FlowSyntaxError, validate
from dalsegno.lang.flow.syntax.keywords import CONTEXTUAL_WORDS, FOREIGN_OPERATORS, FOREIGN_WORDS, KEYWORDS
from dalsegno.lang.flow.syntax.parser import parse_program
from dalsegno.lang.flow.syntax.syntax_errors import ERRORS, WARNINGS
from dalsegno.lang.runtime.limits import MAX_SOURCE
from tests.effort import examples
from tests.lang.flow.test_script_errors import ERRORS as WRONG
from tests.lang.flow.test_script_syntax import BRACES, NEWLINES, STATEMENTS
from tests.lang.printing import printed

SIGNS = [
    "(", ")", "[", "]", "{", "}", "=>", "=", "+=", "??=", "==", "===", "!", "!=", "+", "++", "--", "-", "*", "**", "/",
    "%", "<", ">=", "&&", "||", "??", "?", "?.", ".", ",", ";", ":", "...", "\n", " ", "//", "/*", "*/", "`", "${", "'",
    '"', "\\", "$", "0", "1.5", "0x", "1e9", "'s'", "`t`", "é", "\x00", "#", "```",
]  # fmt: skip
NAMES = [
    "a",
    "b",
    "x",
    "main",
    "inputs",
    "Task",
    "Promise",
    "log",
    "Task.run(",
    ".map(",
    "async",
    "function f(",
    "() => {",
]
WORDS = sorted({*SIGNS, *NAMES, *KEYWORDS, *CONTEXTUAL_WORDS, *FOREIGN_WORDS, *FOREIGN_OPERATORS})

PROGRAM = """```
name: pay
```
// everything that the language has
const LIMIT = 3
async function charged({id, items = []}, ...rest) {
  for (const [key, value] of Object.entries(items)) {
    if (value?.price > LIMIT && !(key in rest)) { continue } else if (key == "x") { break } else { log(key) }
    total += value.price
  }
  return rest.length ? await Task.run("charge", {id, total, [`k${id}`]: [...rest, 1]}) : null
}
workflow pay(ctx, inputs) {
  let total = 0, i = 0x1F
  while (i < 10) { i++ }
  for (let k in inputs) { log(`${k}: ${inputs[k] ?? "none"}`) }
  for (let j = 0; j < 3; j += 1) { total *= 2 ** 3 }
  try { await charged(inputs, 1, 2) } catch (error) { throw {code: "E", message: error.message} } finally { total = -1 }
  const f = async (x, y = 2) => { return x + y }, g = x => ({x}), h = function (a) { return a }
  ;[total, i] = [i, total]
  return [f(1), g(2), h(3)].map(x => x.y)
}
"""


def attempt(source: str) -> None:
    """Parsing gives a tree or our error with a place; validation gives findings with places."""
    lines = source.count("\n") + 1
    findings = validate(source, ["charge"])
    for finding in findings:
        assert finding.rule in ERRORS | WARNINGS
        check_place(finding, lines)
    syntax = [finding.message for finding in findings if finding.rule == "syntax"]
    assert (first_problem(source, lines) in syntax) if syntax else first_problem(source, lines) is None


def first_problem(source: str, lines: int) -> str | None:
    try:
        parse_program(source)
    except FlowSyntaxError as problem:
        check_place(problem, lines)
        return problem.message
    return None


def check_place(problem: FlowSyntaxError | Finding, lines: int) -> None:
    assert 1 <= problem.line <= lines
    assert problem.column >= 1
    assert problem.excerpt.endswith("^")


@examples(500)
@given(source=st.text(max_size=60))
def test_arbitrary_text(source: str) -> None:
    attempt(source)


@examples(1_500)
@given(words=st.lists(st.sampled_from(WORDS), max_size=25), space=st.sampled_from(["", " "]))
def test_arbitrary_words(words: list[str], space: str) -> None:
    attempt(space.join(words))


PIECES = [source for source, *_ in [*STATEMENTS, *NEWLINES, *BRACES, *WRONG]]


@examples(800)
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=5),
    space=st.sampled_from(["\n", " ", "", ";", "\n{", "}"]),
)
def test_statements_after_each_other(pieces: list[str], space: str) -> None:
    attempt(space.join(pieces))


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """The program with a few pieces cut out, doubled, or replaced by a word."""
    source = PROGRAM
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(source)))
        end = min(len(source), start + draw(st.integers(0, 30)))
        new = draw(st.sampled_from(["", source[start:end] * 2, *WORDS]))
        source = source[:start] + new + source[end:]
    return source


@examples(800)
@given(source=mutations())
def test_mutated_programs(source: str) -> None:
    attempt(source)


def test_the_program_that_is_mutated_is_right() -> None:
    program, front_matter = parse_program(PROGRAM)
    assert front_matter == {"name": "pay"}
    assert program.form == "workflow"


@examples(500)
@given(pieces=st.lists(st.sampled_from([*STATEMENTS, *NEWLINES, *BRACES]), min_size=1, max_size=6))
def test_a_newline_and_a_semicolon_separate_statements_alike(pieces: list[tuple[str, str]]) -> None:
    apart = printed(";\n".join(source for source, _ in pieces))
    assert apart == " ".join(meaning for _, meaning in pieces)


LONG = [
    "(" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    "{" * 100_000,
    "x = " + "!" * 30_000 + "1",
    "x = " + "a ? " * 30_000,
    "x = " + "a => " * 20_000 + "1",
    "x = " + "2 ** " * 15_000 + "2",
    "x = " + "- " * 20_000 + "1",
    "await " * 20_000 + "x",
    "`${" * 50_000,
    "if (a) {} else " * 5_000 + "{}",
    "if (a) {" * 5_000 + "}" * 5_000,
    "x = " + "() => {return " * 300 + "1" + "}" * 300,
    "f(" * 300 + ")" * 300,
    "let " + "[" * 300 + "a" + "]" * 300 + " = b",
    "a" * 500_000,
    "'" + "\\'" * 200_000,
    '"' + "a" * 500_000,
    "/*" + "*" * 500_000,
    "/*" * 200_000,
    "`" + "$" * 500_000,
    "{" + " " * 300_000 + "/* */" * 1_000,
    "1" * 500_000,
    "workflow " * 10_000,
    "async " * 10_000,
    "```\n" + "`" * 300_000,
    "\n" * 900_000,
    "é" * 300_000,
]


@pytest.mark.parametrize("source", LONG, ids=lambda source: f"{source[:12]!r}")
def test_long_and_deep_sources_are_refused_or_read_in_time(source: str) -> None:
    started = time.process_time()
    attempt(source)
    assert time.process_time() - started < 10


def test_nesting_is_limited_in_every_direction() -> None:
    deep = ["if (a) {" * 150 + "}" * 150, "x = " + "[" * 150 + "]" * 150, "{" * 150 + "}" * 150]
    for source in deep:
        parse_program(source)
    for source in ["if (a) {" * 201 + "}" * 201, "if (a) {} else " * 201 + "{}", "x = " + "!" * 201 + "a"]:
        with pytest.raises(FlowSyntaxError, match="nested deeper than 200 levels"):
            parse_program(source)


def test_depth_adds_up_over_expressions_and_blocks() -> None:
    source = "x = " + ("!" * 60 + "(() => {return ") * 4 + "1" + "})" * 4
    with pytest.raises(FlowSyntaxError, match="nested deeper than 200 levels"):
        parse_program(source)


def test_reading_is_linear() -> None:
    small, large = ("let a1 = b.c(1) + `x${d}`\n" * count for count in (500, 5_000))
    timings = []
    gc.collect()
    gc.disable()  # what other tests have left would be looked through again and again
    try:
        for source in (small, large):
            started = time.thread_time()
            parse_program(source)
            timings.append(time.thread_time() - started)
    finally:
        gc.enable()
    assert timings[1] < 30 * max(timings[0], 0.01)


def test_two_thousand_lines_are_read_quickly() -> None:
    source = "  total += await Task.run('charge', {id: orders[0].id, amount: 1.2 * (a + b)})\n" * 2_000
    parse_program("x = 1")
    started = time.process_time()
    parse_program(source)
    assert time.process_time() - started < 3


def test_ten_megabytes_are_refused_at_once() -> None:
    source = "let a = 1\n" * 1_000_000
    started = time.process_time()
    with pytest.raises(FlowSyntaxError, match=f"the limit is {MAX_SOURCE:,}"):
        parse_program(source)
    assert validate(source)[0].rule == "syntax"
    assert time.process_time() - started < 1

"""Findings: which rule, how bad, and where."""

from __future__ import annotations

import inspect
import sys

import pytest

from dalsegno.lang import Finding, validate
from dalsegno.lang.flow.syntax.syntax_errors import ERRORS, MAX_FINDINGS, WARNINGS
from tests.rows import rows


def found(source: str, tasks: list[str] | None = None) -> list[str]:
    return [f"{finding.rule} {finding.line}:{finding.column}" for finding in validate(source, tasks)]


CLEAN = [
    "return 1",
    "let a = 1\na += 1\nreturn a",
    "let {a, b: [c], d = a} = inputs\nreturn [a, c, d]",
    "workflow pay(ctx, inputs) { return ctx.executionId + inputs.id }",
    "async function main() { return await charged(1) }\nasync function charged(x) { return x }",
    "const LIMIT = 3\nasync function main() { return check(4) }\nfunction check(x) { return x > LIMIT }",
    "return f(1)\nfunction f(n) { return n ? g(n) : 0 }\nfunction g(n) { return f(n - 1) }",
    "let f = () => later\nlet later = 1\nreturn f()",
    "for (const x of [1]) { if (x) { continue } break }",
    "for (let i = 0; i < 3; i++) { log(i) }",
    "for (const [k, v] of {a: 1}) { log(k, v) }",
    "for (const _ of [1]) { log(1) }",
    "try { log(1) } catch (e) { throw e } finally { log(2) }",
    "try { log(1) } catch (e) { log(2) }",
    "let x = 1\n{ let x = 2; log(x) }\nreturn x",
    "return [1, 2].map((x, i) => x * i)",
    "return [1].map(item => { let y = item; return y })",
    "return Inputs.a + inputs.b + Context.attempt + context.version",
    "return math.max(1, 2) + Math.PI + Number('1') + number('2')",
    "let task = await Task.run('a', {})\nlet node = 1\nlet date = 2\nreturn [task, node, date]",
    "return await Task.with({retries: 3}).run('a', {})",
    "return await task.run('a', {})",
    "return await Promise.all([Task.run('a', 1), Timer.delay('1h')])",
    "return await Promise.all(inputs.ids.map(id => Task.run('a', id)))",
    "let promises = [1].map(id => Task.run('a', id))\nreturn await Promise.all(promises)",
    "async function f() { return await Task.run('a', {}) }\nreturn await Promise.all([await f(), Task.run('b', {})])",
    "return await Task.run(...inputs.arguments)",
    "return wait_for_signal('x', {timeout: 5})",
    "return uuid() + random() + hash('a') + add(1, 2)",
    "let total = 0\n;[1].forEach(x => total += x)\nreturn total",
    "let fact = function f(n) { return n ? n * f(n - 1) : 1 }\nreturn fact(3)",
    "while (true) { if (await Signal.next('stop')) { break } }\nlog('done')",
    "while (inputs.x) { }\nlog(1)",
    "return 1\nfunction unused() { return used() }\nfunction used() { return unused }",
    "let {length} = 'abc'\nreturn `${length} of ${inputs.n}`",
    "undefined",
]  # fmt: skip

ERRORS_FOUND = [
    ("if (x) y()", ["syntax 1:1"]),
    ("return x", ["undefined-variable 1:8"]),
    ("return x + x", ["undefined-variable 1:8", "undefined-variable 1:12"]),
    ("{ let x = 1; log(x) }\nreturn x", ["undefined-variable 2:8"]),
    ("{ let x = 1; x = 2; log(x) }\nreturn x", ["undefined-variable 2:8"]),
    ("for (let i = 0; i < 1; i++) { }\nreturn i", ["undefined-variable 2:8"]),
    ("try { } catch (e) { }\nreturn e", ["undefined-variable 2:8"]),
    ("function f(a) { return a }\nreturn f(a)", ["undefined-variable 2:10"]),
    ("log(x)\nlet x = 1", ["undefined-variable 1:5"]),
    ("let x = x + 1", ["undefined-variable 1:9"]),
    ("let a = 1\n{ log(a); let a = 2 }\nlog(a)", ["undefined-variable 2:7"]),
    ("x.y = 1", ["undefined-variable 1:1"]),
    ("return {x}", ["undefined-variable 1:9"]),
    ("return `${x}`", ["undefined-variable 1:11"]),
    ("return ((a = x) => a)()", ["undefined-variable 1:14"]),
    ("let {a = x} = inputs\nreturn a", ["undefined-variable 1:10"]),
    ("return Math.flor(1)", ["undefined-variable 1:13"]),
    ("return Task.start('a', {})", ["undefined-variable 1:13"]),
    ("const a = 1\na = 2\nreturn a", ["const-assignment 2:1"]),
    ("const a = 1\na += 2\na++\n[a] = [1]\nreturn a",
     ["const-assignment 2:1", "const-assignment 3:1", "const-assignment 4:2"]),
    ("const a = 1\nfor (a of [1]) { log(a) }", ["const-assignment 2:6"]),
    ("for (const a of [1]) { a = 2; log(a) }", ["const-assignment 1:24"]),
    ("const a = 1\nlet f = () => a = 2\nreturn f()", ["const-assignment 2:15"]),
    ("let a = 1\nlet a = 2\nreturn a", ["redeclaration 2:5"]),
    ("let a = 1\nfunction a() { }\nreturn a", ["redeclaration 2:10"]),
    ("function f(a, a) { return a }\nreturn f()", ["redeclaration 1:15"]),
    ("function f(a) { let a = 1; return a }\nreturn f()", ["redeclaration 1:21"]),
    ("let {a, b: a} = inputs\nreturn a", ["redeclaration 1:12"]),
    ("try { } catch (e) { let e = 1; log(e) }", ["redeclaration 1:25"]),
    ("workflow f(x) { let x = 1; return x }", ["redeclaration 1:21"]),
    ("await Task.run('a', 1).named('x')\nawait Task.run('b', 1).named('x')", ["repeated-label 2:1"]),
    ("await Task.run('a', 1).named('x')\nlet f = () => await Task.run('b', 1).named('x')\nreturn f()", []),
    ("break", ["stray-break 1:1"]),
    ("if (inputs.x) { continue }", ["stray-break 1:17"]),
    ("while (inputs.x) { [1].map(x => { break }) }", ["stray-break 1:35"]),
    ("function f() { break }\nfor (;;) { f() }", ["stray-break 1:16"]),
    ("Task.run('a')", ["argument-count 1:9"]),
    ("Task.run('a', {}, 1)", ["argument-count 1:9"]),
    ("task.run('a')", ["argument-count 1:9"]),
    ("Task.with({}).run('a')", ["argument-count 1:18"]),
    ("Workflow.with({}).start('a')", ["argument-count 1:24"]),
    ("Timer.delay()", ["argument-count 1:12"]),
    ("wait_for_signal()", ["argument-count 1:16"]),
    ("Math.abs()", ["argument-count 1:9"]),
    ("Promise.all()", ["argument-count 1:12"]),
    ("JSON.parse(1, 2)", ["argument-count 1:11"]),
    ("uuid(1)", ["argument-count 1:5"]),
    ("await Task.with({retrys: 3}).run('a', {})", ["unknown-option 1:18"]),
    ("await Workflow.with({priority: 1, 'queue': 'q'}).run('a', {})", ["unknown-option 1:35"]),
    ("await Node.with({[inputs.x]: 3, ...inputs}).run('a', {})", []),
    ("let x = 2\nlog('top')\nasync function main() { return x }", ["uncalled-main 3:16"]),
    ("function main() { return 1 }\nmain()", []),
    ("log(1)\nif (inputs.x) { function main() { return 1 } }", ["unused-variable 2:26"]),
]  # fmt: skip

WARNINGS_FOUND = [
    ("x = 1\nx = 2\nreturn x", ["implicit-global 1:1"]),
    ("function f() { x = 1 }\nf()\nreturn x", ["implicit-global 1:16"]),
    ("return x\nfunction f() { x = 1 }", ["unused-variable 2:10", "implicit-global 2:16"]),
    ("[a, b] = [1, 2]", ["implicit-global 1:2", "implicit-global 1:5"]),
    ("for (k in {}) { log(k) }", ["implicit-global 1:6"]),
    ("return 1\nlog(2)\nlog(3)", ["unreachable-code 2:1"]),
    ("return 1\na + b", ["undefined-variable 2:1", "unreachable-code 2:1", "undefined-variable 2:5"]),
    ("throw 1\nlog(2)", ["unreachable-code 2:1"]),
    ("for (;;) { break\nlog(1) }", ["unreachable-code 2:1"]),
    ("for (;;) { continue\nlog(1) }", ["unreachable-code 2:1"]),
    ("if (inputs.x) { return 1 } else { throw 2 }\nlog(1)", ["unreachable-code 2:1"]),
    ("if (inputs.x) { return 1 }\nlog(1)", []),
    ("while (true) { log(1) }\nlog(2)", ["unreachable-code 2:1"]),
    ("for (;;) { for (;;) { break } }\nlog(2)", ["unreachable-code 2:1"]),
    ("try { return 1 } catch { return 2 }\nlog(1)", ["unreachable-code 2:1"]),
    ("try { return 1 } catch { log(2) }\nlog(1)", []),
    ("try { log(1) } finally { return 2 }\nlog(1)", ["unreachable-code 2:1"]),
    ("return [1].map(x => { return x\nlog(1) })", ["unreachable-code 2:1"]),
    ("let a = 1", ["unused-variable 1:5"]),
    ("const a = () => 1", ["unused-variable 1:7"]),
    ("let a = 1\na = 2\na += 3", ["unused-variable 1:5"]),
    ("let a = {}\na.b = 1", ["unused-variable 1:5"]),
    ("let {a, b} = inputs\nreturn a", ["unused-variable 1:9"]),
    ("for (const x of [1]) { log(1) }", ["unused-variable 1:12"]),
    ("function f() { return 1 }", ["unused-variable 1:10"]),
    ("function f(a) { return 1 }\nreturn f()", []),
    ("let _a = 1", []),
    ("let Task = 1\nreturn Task.run", ["hides-builtin 1:5"]),
    ("function log(x) { return x }\nreturn log(1, 2, 3)", ["hides-builtin 1:10"]),
    ("return [1].map(hash => hash)", ["hides-builtin 1:16"]),
    ("Math = {}\nreturn Math.nothing", ["hides-builtin 1:1", "implicit-global 1:1"]),
    ("async function f() { return await Task.run('a', {}) }\nreturn await Promise.all([f(), f()])",
     ["sequential-async 2:27", "sequential-async 2:32"]),
    ("const f = async x => await Task.run('a', x)\nreturn await Promise.any([1].map(f))", ["sequential-async 2:34"]),
    ("const f = async x => await Task.run('a', x)\nreturn await Task.all([1].map(x => f(x)))",
     ["sequential-async 2:33"]),
    ("return await Promise.race(inputs.ids.map(async id => { await Timer.delay(id) }))", ["sequential-async 1:51"]),
    ("return await Promise.all([(async () => await Task.run('a', {}))()])", ["sequential-async 1:37"]),
    ("function f() { return g() }\nfunction g() { return await Timer.delay(1) }\nreturn await Promise.all([f()])",
     ["sequential-async 3:27"]),
    ("Timer.delay('5s')", ["forgotten-await 1:1"]),
    ("timer.until(inputs.at)", ["forgotten-await 1:1"]),
    ("Task.delay(5)", ["forgotten-await 1:1"]),
    ("Signal.next('go')", ["forgotten-await 1:1"]),
    ("wait_for_signal('go')", ["forgotten-await 1:1"]),
    ("if (inputs.x) { Signal.when('go', {timeout: 1}) }", ["forgotten-await 1:17"]),
    ("return 08 + 0 + 0.5 + 0x0f", ["leading-zero 1:8"]),
    ("return ['08', `07`, {'09': 1}]", []),
    ("await Timer.delay(1)", []),
    ("let p = Timer.delay(1)\nawait p", []),
    ("Task.run('a', 1)", []),
    ("[1].map(x => Timer.delay(x))", []),
    ("let Timer = {delay: x => x}\nTimer.delay(1)", ["hides-builtin 1:5"]),
    ("await Task.run('b', {})\nawait Task.run('unknown', {})", []),
]  # fmt: skip


@rows("source", CLEAN)
def test_nothing_is_found_in_a_clean_program(source: str) -> None:
    assert validate(source) == []


@rows(("source", "expected"), [*ERRORS_FOUND, *WARNINGS_FOUND])
def test_findings(source: str, expected: list[str]) -> None:
    assert found(source) == expected


def test_unknown_tasks_are_found_only_if_the_tasks_are_known() -> None:
    source = "await Task.run('chrage', {})\nawait Task.with({}).run('b', {})\nawait Task.run(inputs.name, {})"
    assert found(source) == []
    assert found(source, ["charge", "b"]) == ["unknown-task 1:16"]
    assert found(source, []) == ["unknown-task 1:16", "unknown-task 2:25"]
    assert "did you mean 'charge'?" in validate(source, ["charge", "b"])[0].message


def test_severity_follows_from_the_rule() -> None:
    rules = set()
    for source, _ in [*ERRORS_FOUND, *WARNINGS_FOUND]:
        for finding in validate(source, ["b"]):
            rules.add(finding.rule)
            assert finding.severity == ("error" if finding.rule in ERRORS else "warning")
    assert rules == ERRORS | WARNINGS


def test_all_findings_come_at_once_in_the_order_of_the_source() -> None:
    source = "let a = 1\nlet a = b\nTask.run(1)\nc = 2\nif (c) { break }\nreturn 1\nlog(2)\n"
    assert found(source) == [
        "unused-variable 1:5",
        "redeclaration 2:5",
        "undefined-variable 2:9",
        "argument-count 3:9",
        "implicit-global 4:1",
        "stray-break 5:10",
        "unreachable-code 7:1",
    ]


def test_a_finding_shows_its_line() -> None:
    (finding,) = validate("let a = 1\nreturn a + missing\n")
    assert finding == Finding("undefined-variable", "error", "Undefined variable 'missing'", 2, 12)
    assert finding.excerpt == "return a + missing\n           ^"
    assert finding.as_dict()["excerpt"] == finding.excerpt


SUGGESTIONS = [
    ("let amount = 1\nreturn amuont + amount", "did you mean 'amount'?"),
    ("return inptus", "did you mean 'inputs'?"),
    ("total = 1\nreturn totl", "did you mean 'total'?"),
    ("return Mth.abs(1)", "did you mean 'Math'?"),
    ("return Promise.alll([])", "did you mean 'Promise.all'?"),
]


@pytest.mark.parametrize(("source", "hint"), SUGGESTIONS)
def test_similar_names_are_suggested(source: str, hint: str) -> None:
    messages = [finding.message for finding in validate(source) if finding.severity == "error"]
    assert hint in messages[0]


def test_lines_count_the_front_matter() -> None:
    assert found("```\nname: a\n```\nreturn x") == ["undefined-variable 4:8"]


def test_the_number_of_findings_is_limited() -> None:
    assert len(validate("x\n" * 5_000)) == MAX_FINDINGS


DEEP = ["if (inputs.a) {" * 197 + "}" * 197, "{" * 199 + "}" * 199, "try {" * 199 + "} finally {}" * 199,
        "log(" + "a => " * 195 + "1)", "return " + "[" * 198 + "]" * 198]  # fmt: skip


@pytest.mark.parametrize("source", DEEP, ids=lambda source: source[:12])
def test_the_deepest_programs_are_checked(source: str) -> None:
    assert validate(source) == []


@pytest.mark.parametrize("source", DEEP[:3], ids=lambda source: source[:12])
def test_a_caller_deep_in_its_own_stack_gets_a_finding_instead_of_a_crash(source: str) -> None:
    def called_at(depth: int) -> list[Finding]:
        return validate(source) if depth == 0 else called_at(depth - 1)

    frames = len(inspect.stack())
    (finding,) = called_at(sys.getrecursionlimit() - frames - 250)
    assert finding.rule == "syntax"
    assert "nested too deeply" in finding.message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("console.log(1)", "Undefined variable 'console'; write log(…)"),
        ("await fetch('http://x')", 'Node.run("http", {url: …})'),
        ("await sleep(5)", "write await Timer.delay("),
        ("Timer.delay('5s')", "nothing waits for this Timer.delay(): write await Timer.delay(…)"),
        ("Task.with({retrys: 3})", "Task.with() has no option 'retrys'; did you mean 'retry'?"),
        ("Task.with({colour: 3})", "Task.with() has no option 'colour'; known are queue, priority, retries"),
        (
            "Node.run('http')",
            "Node.run() takes 2 arguments, not 1: without parameters, write Node.run(…, {})",
        ),
        ("Task.run('a')", "Task.run() takes 2 arguments, not 1: without input, write Task.run(…, null)"),
    ],
)
def test_a_finding_says_what_to_write(source: str, said: str) -> None:
    assert said in validate(source)[0].message

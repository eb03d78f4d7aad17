"""What programs mean: source on the left, the same with every bracket and semicolon written out on the right."""

from __future__ import annotations

from typing import Any

from dalsegno.lang.flow.syntax.parser import parse_program
from tests.lang.printing import printed
from tests.rows import rows

STATEMENTS = [
    ("let a", "let a;"),
    ("const a", "const a;"),
    ("let a = 1, b, c = 2", "let a = 1; let b; let c = 2;"),
    ("let {a, b: c, d = 1} = x", 'let {"a": a, "b": c, "d": d = 1} = x;'),
    ("let {a: {b = 2}, 'c d': e} = x", 'let {"a": {"b": b = 2}, "c d": e} = x;'),
    ("const [x, [y, z = 3], ...rest] = a", "const [x, [y, z = 3], ...rest] = a;"),
    ("a = 1", "a = 1;"),
    ("a.b[c].d = 1", "a.b[c].d = 1;"),
    ("a += 1; a -= 1; a *= 1; a /= 1; a %= 1", "a += 1; a -= 1; a *= 1; a /= 1; a %= 1;"),
    ("a ??= b; a ||= b; a &&= b", "a ??= b; a ||= b; a &&= b;"),
    ("i++; i--; ++i; --i; a.b++", "i += 1; i -= 1; i += 1; i -= 1; a.b += 1;"),
    ("[a, b] = [b, a]", "[a, b] = [b, a];"),
    ("{a, b: c} = x", '{"a": a, "b": c} = x;'),
    ("({a} = x)", '{"a": a} = x;'),
    ("if (a) {b()}", "if (a) {b();}"),
    ("if (a) {} else {b}", "if (a) {} else {b;}"),
    ("if (a) {} else if (b) {} else {}", "if (a) {} else {if (b) {} else {}}"),
    ("while (a) {break}", "while (a) {break;}"),
    ("for (let x of y) {}", "for (let x of y) {}"),
    ("for (const [k, v] of y) {}", "for (const [k, v] of y) {}"),
    ("for (const {a, b = 1} of y) {}", 'for (const {"a": a, "b": b = 1} of y) {}'),
    ("for (let k in o) {}", "for (let k in o) {}"),
    ("for (k in o) {}", "for (k in o) {}"),
    ("for ([k, v] of o) {}", "for ([k, v] of o) {}"),
    ("for ({a} of o) {}", 'for ({"a": a} of o) {}'),
    ("for (const of of of) {}", "for (const of of of) {}"),
    ("for (const x of await f()) {}", "for (const x of (await f())) {}"),
    ("for (let i = 0; i < 3; i++) {}", "for (let i = 0; (i < 3); i += 1) {}"),
    ("for (let i = 0, j = 9; i < j; i++, j--) {}", "for (let i = 0, j = 9; (i < j); i += 1, j -= 1) {}"),
    ("for (;;) {}", "for (; ; ) {}"),
    ("for (i = 0; ; f()) {}", "for (i = 0; ; f()) {}"),
    ("for (let i = 'a' in o ? 1 : 2; ; ) {}", 'for (let i = (("a" in o) ? 1 : 2); ; ) {}'),
    ("try {a} catch (e) {b} finally {c}", "try {a;} catch (e) {b;} finally {c;}"),
    ("try {a} catch {b}", "try {a;} catch {b;}"),
    ("try {a} finally {b}", "try {a;} finally {b;}"),
    ("try {} catch ({code, message}) {}", 'try {} catch ({"code": code, "message": message}) {}'),
    ("throw {code: 'E'}", 'throw {"code": "E"};'),
    ("function f(a, {b}, [c] = [], ...d) {return a}", 'function f(a, {"b": b}, [c] = [], ...d) {return a;}'),
    ("async function f() {}", "function f() {}"),
    ("{let a = 1} {}", "{let a = 1;} {}"),
    (";;a;;", "a;"),
]

NEWLINES = [
    ("a\nb", "a; b;"),
    ("a = 1 b = 2 let c = 3 if (a) {} c", "a = 1; b = 2; let c = 3; if (a) {} c;"),
    ("a\n(b)", "a; b;"),
    ("a\n[b]", "a; [b];"),
    ("a\n`b`", 'a; `${"b"}`;'),
    ("a(b)\n[c]", "a(b); [c];"),
    ("a\n.b\n?.c", "a.b?.c;"),
    ("a\n+ b\n- c", "((a + b) - c);"),
    ("a\n&& b\n|| c", "((a && b) || c);"),
    ("a\n? b\n: c", "(a ? b : c);"),
    ("a\n= b", "a = b;"),
    ("a\n++b", "a; b += 1;"),
    ("a\n!b", "a; (! b);"),
    ("f(a\n(b))", "f(a(b));"),
    ("f([a\n[b]])", "f([a[b]]);"),
    ("`${a\n(b)}`", "`${a(b)}`;"),
    ("return\na", "return; a;"),
    ("return a", "return a;"),
    ("return (\na)", "return a;"),
    ("return {\na: 1}", 'return {"a": 1};'),
    ("return\n{a: 1}", 'return; {"a": 1};'),
    ("return // why\na", "return; a;"),
    ("return /* a\nb */ a", "return; a;"),
    ("if (a) {return}", "if (a) {return;}"),
    ("let f = () => {}\n(a)", "let f = () => {}; a;"),
    ("let f = () => {}\n-a", "let f = () => {}; (- a);"),
    ("let f = function () {}\n(a)", "let f = () => {}; a;"),
    ("if (a) {}\n(b)", "if (a) {} b;"),
    ("if (a) {}\n-b", "if (a) {} (- b);"),
    ("while (a)\n{\nbreak\n}\nb", "while (a) {break;} b;"),
    ("function f\n(a)\n{}", "function f(a) {}"),
    ("while (1) {break\nfoo}", "while (1) {break; foo;}"),
    ("a /* x */ + /* y */ b // z", "(a + b);"),
    ("let x = a\nlet y = b", "let x = a; let y = b;"),
    ("await a\nawait b", "(await a); (await b);"),
    ("\r\na\r\n(b)\r\n", "a; b;"),
]

BRACES = [
    ("{a: 1}", '{"a": 1};'),
    ("{'a': 1}", '{"a": 1};'),
    ("{a, b}", '{"a": a, "b": b};'),
    ("{[a]: 1}", "{[a]: 1};"),
    ("{...a}", "{...a};"),
    ("{ /* c */ a /* d */ : 1}", '{"a": 1};'),
    ("{a}", "{a;}"),
    ("{}", "{}"),
    ("{a()}", "{a();}"),
    ("if (a) {[b, c] = d}", "if (a) {[b, c] = d;}"),
    ("x => {a: 1}", '(x) => ({"a": 1});'),
    ("x => {}", "(x) => {};"),
    ("x => {return x}", "(x) => {return x;};"),
    ("x => ({})", "(x) => ({});"),
    ("x => {[a, b] = x}", "(x) => {[a, b] = x;};"),
    ("let a = {}", "let a = {};"),
    ("f({}, {a})", 'f({}, {"a": a});'),
    ("a = b ? {} : {c}", 'a = (b ? {} : {"c": c});'),
    ("`${{a: 1}.a}`", '`${({"a": 1}).a}`;'),
]

EXPRESSIONS = [
    ("a ? b : c ? d : e", "(a ? b : (c ? d : e))"),
    (
        "a ?? b || c && d == e in f < g + h * i ** j",
        "(a ?? (b || (c && (d == (e in (f < (g + (h * (i ** j)))))))))",
    ),
    ("a === b !== c", "((a == b) != c)"),
    ("2 ** 3 ** 2", "(2 ** (3 ** 2))"),
    ("(-a) ** b", "((- a) ** b)"),
    ("2 ** -1", "(2 ** (- 1))"),
    ("2 ** await a", "(2 ** (await a))"),
    ("await a + b", "((await a) + b)"),
    ("await a.b(c)", "(await a.b(c))"),
    ("(await a).b", "((await a)).b"),
    ("!await a", "(! (await a))"),
    ("await await a", "(await (await a))"),
    ("typeof a == 'x'", '((typeof a) == "x")'),
    ("-a.b", "(- a.b)"),
    ("a - -b", "(a - (- b))"),
    ("a?.b?.[c].d(e)", "a?.b?.[c].d(e)"),
    ("a ?.5 : b", "(a ? 0.5 : b)"),
    ("f(...a, b,)", "f(...a, b)"),
    ("[...a, b,]", "[...a, b]"),
    ("{a, 'b': 1, [c]: 2, 3: d, ...e,}", '{"a": a, "b": 1, [c]: 2, "3": d, ...e}'),
    ("x => x", "(x) => (x)"),
    ("() => 1", "() => (1)"),
    ("(a, b = 1, ...c) => a", "(a, b = 1, ...c) => (a)"),
    ("({a, b: [c]}) => a", '({"a": a, "b": [c]}) => (a)'),
    ("async x => await x", "(x) => ((await x))"),
    ("async (x) => x", "(x) => (x)"),
    ("async () => {await a}", "() => {(await a);}"),
    ("async (x)", "async(x)"),
    ("a => b => c", "(a) => ((b) => (c))"),
    ("x => y = x", "(x) => {y = x; return y;}"),
    ("x => y.z += x", "(x) => {y.z += x; return y.z;}"),
    ("x => y[f()] = x", "(x) => {y[f()] = x;}"),
    ("() => n++", "() => {n += 1; return (n - 1);}"),
    ("() => --n", "() => {n -= 1; return n;}"),
    ("function (a) {return a}", "(a) => {return a;}"),
    ("async function () {}", "() => {}"),
    ("function f(n) {return f(n - 1)}", "(() => {function f(n) {return f((n - 1));} return f;})()"),
    ("(() => 1)()", "(() => (1))()"),
    ("function () {}()", "(() => {})()"),
    ("true", "true"),
    ("undefined", "null"),
    ("null", "null"),
    ("a.if.let.await.function", "a.if.let.await.function"),
    ("{if: 1, await: 2, in: 3, new: 4}", '{"if": 1, "await": 2, "in": 3, "new": 4}'),
    (
        "letter + nullable + awaiting + ifs + $ + _ + a$1",
        "((((((letter + nullable) + awaiting) + ifs) + $) + _) + a$1)",
    ),
    ("async + of + workflow", "((async + of) + workflow)"),
]

LITERALS = [
    ("0", 0), ("12", 12), ("1_000", 1000), ("1.5", 1.5), (".5", 0.5), ("2.0", 2), ("1e3", 1000), ("1.5e-3", 0.0015),
    ("0xFF", 255), ("0xE", 14), ("0b101", 5), ("0xf_f", 255), ("9007199254740993", 9007199254740993),
    ('"a\\n\\t\\"b"', 'a\n\t"b'), ("'it\\'s'", "it's"), ("'a\nb'", "a\nb"), ("'\\u0041\\u{1F600}\\x42'", "A😀B"),
    ("'// no comment'", "// no comment"), ("'é 漢'", "é 漢"),
]  # fmt: skip

TEMPLATES = [
    ("``", "``"),
    ("`a`", '`${"a"}`'),
    ("`a${b}c`", '`${"a"}${b}${"c"}`'),
    ("`$ ${a} $b {c}`", '`${"$ "}${a}${" $b {c}"}`'),
    ("`a\nb`", '`${"a\\nb"}`'),
    ("`${`${a}`}`", "`${`${a}`}`"),
    ("`${f({a: `}`})}`", '`${f({"a": `${"}"}`})}`'),
    ("`${(() => { return `x` })()}`", '`${(() => {return `${"x"}`;})()}`'),
    ("`\\`\\${a}`", '`${"`${a}"}`'),
]


@rows(("source", "meaning"), [*STATEMENTS, *NEWLINES, *BRACES])
def test_statements(source: str, meaning: str) -> None:
    assert printed(source) == meaning


@rows(("source", "meaning"), [*EXPRESSIONS, *TEMPLATES])
def test_expressions(source: str, meaning: str) -> None:
    assert printed(f"x = {source}") == f"x = {meaning};"


@rows(("source", "value"), LITERALS)
def test_literals(source: str, value: Any) -> None:
    program, _ = parse_program(f"return {source}")
    (statement,) = program.body.body
    found = statement.value.value  # type: ignore[union-attr]
    assert found == value
    assert type(found) is type(value)


@rows("source", [pair[0] for pair in [*STATEMENTS, *NEWLINES, *BRACES]])
def test_what_is_printed_reads_the_same(source: str) -> None:
    once = printed(source)
    assert printed(once) == once


def test_0xe_plus_one_is_a_sum() -> None:
    assert printed("x = 0xE+1") == "x = (14 + 1);"

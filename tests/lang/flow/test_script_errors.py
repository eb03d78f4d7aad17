"""Syntax errors: the message says what to write, and the place is the right one."""

from __future__ import annotations

import pytest

from dalsegno.errors import UsageError
from dalsegno.lang import FlowSyntaxError
from dalsegno.lang.flow.syntax.parser import parse_program
from tests.rows import rows

# source, a part of the message, line, column
ERRORS = [
    ("if (x) y()", "the body of 'if' needs braces: write if (…) { … }", 1, 1),
    ("if (x) {} else y()", "the body of 'else' needs braces: write else { … }", 1, 11),
    ("while (x) y()", "the body of 'while' needs braces", 1, 1),
    ("while (x);", "the body of 'while' needs braces", 1, 1),
    ("for (let x of y) z()", "the body of 'for' needs braces", 1, 1),
    ("try a()", "the body of 'try' needs braces: write try { … }", 1, 1),
    ("try {} catch (e) a()", "the body of 'catch' needs braces", 1, 8),
    ("function f()", "the body of 'function' needs braces: write function name(…) { … }", 1, 1),
    ("if x {}", "the condition of 'if' needs parentheses", 1, 4),
    ("while x {}", "the condition of 'while' needs parentheses", 1, 7),
    ("for x of y {}", "'for' needs parentheses", 1, 5),
    ("for (x : y) {}", "write for (let item of list)", 1, 8),
    ("for (let i = 0) {}", "write for (let item of list)", 1, 15),
    ("for () {}", "write for (let item of list)", 1, 6),
    ("for await (x of y) {}", "there is no 'for await'", 1, 5),
    ("for (let x of) {}", "a value is missing after 'of'", 1, 14),
    ("else {}", "'else' follows no 'if'", 1, 1),
    ("if (a) {}; else {}", "'else' follows no 'if'", 1, 12),
    ("catch (e) {}", "'catch' follows no 'try'", 1, 1),
    ("try {}\na", "'try' needs catch (error) { … } or finally { … }", 2, 1),
    ("try {} catch e {}", "write catch (error) { … }", 1, 14),
    ("outer: while (1) {}", "there are no labels", 1, 1),
    ("while (1) {break outer}", "there are no labels", 1, 18),
    ("while (1) {continue outer}", "there are no labels", 1, 21),
    ("switch (x) {}", "there is no 'switch': write if", 1, 1),
    ("do {} while (x)", "there is no 'do': write while (true)", 1, 1),
    ("var x = 1", "write 'let' instead of 'var'", 1, 1),
    ("class A {}", "there are no classes", 1, 1),
    ("throw new Error('x')", "there is no 'new': write values directly", 1, 7),
    ("this.x", "there is no 'this'", 1, 1),
    ("delete a.b", "there is no 'delete'", 1, 1),
    ("import a from 'b'", "cannot import", 1, 1),
    ("export default 1", "nothing is exported", 1, 1),
    ("function* f() {}", "there are no generators", 1, 1),
    ("function () {}", "a function needs a name here", 1, 1),
    ("pay(x) {}", "write function pay(…) { … } to define one", 1, 1),
    ("x = a and b", "write && instead of 'and'", 1, 7),
    ("if (a or b) {}", "write || instead of 'or'", 1, 7),
    ("x = not a", "write ! before a value", 1, 5),
    ("x instanceof Y", "there is no 'instanceof'", 1, 3),
    ("a & b", "there is no operator '&': write && for 'and'", 1, 3),
    ("a ^ b", "a power is written a ** b", 1, 3),
    ("return ~1", "there is no operator '~': write ! for 'not'", 1, 8),
    ("return 1 << 2", "there is no operator '<<': write a * 2 ** n", 1, 10),
    ("return a >>> 2", "there is no operator '>>': write Math.floor(a / 2 ** n)", 1, 10),
    ("let t = new Date()", "Date.now() is the present time in milliseconds", 1, 9),
    ("let t = new Promise(f)", "Timer.delay and Signal.next make promises", 1, 9),
    ("return #", "unexpected character '#': a comment begins with //", 1, 8),
    ("return @a", "unexpected character '@': there are no decorators", 1, 8),
    ("return \\", "it means nothing in a script; as text it needs quotes", 1, 8),
    ("let z = y++ + 2", "'++' is a statement of its own and has no value: write it on a line before", 1, 10),
    ("let z = y-- * 2", "'--' is a statement of its own and has no value", 1, 10),
    ("x **= 2", "there is no '**=': write a = a ** b", 1, 3),
    ("x = /a+/", "a pattern is written as a string", 1, 5),
    ("let x =", "the program ends too early: a value is missing after '='", 1, 8),
    ("x = 1 +\n\n", "a value is missing after '+'", 1, 8),
    ("x = {a: }", "unexpected '}': a value is missing after ':'", 1, 9),
    ("f(,)", "unexpected ',': a value is missing after '('", 1, 3),
    ("`${}`", "a value is missing after '${'", 1, 4),
    ("let", "a name is missing after 'let'", 1, 4),
    ("let if = 1", "'if' is a keyword and cannot be a name", 1, 5),
    ("a.", "a name is missing after '.'", 1, 3),
    ("let x = if (y) {}", "unexpected 'if': it begins a statement", 1, 9),
    ("x = y = 1", "an assignment is a statement and has no value", 1, 7),
    ("if (x = 1) {}", "a condition cannot assign: compare with ==", 1, 7),
    ("f(x = 1)", "an assignment is a statement and has no value", 1, 5),
    ("f(i++)", "'++' is a statement of its own and has no value", 1, 4),
    ("x = i++", "'++' is a statement of its own", 1, 6),
    ("x = ++i", "'++' is a statement of its own", 1, 5),
    ("1 = 2", "only a variable, a member or an index", 1, 1),
    ("f() = 2", "only a variable, a member or an index", 1, 1),
    ("a?.b = 2", "a place reached with '?.' cannot be assigned to", 1, 1),
    ("a?.b++", "a place reached with '?.' cannot be assigned to", 1, 1),
    ("-a ** b", "write (-a) ** b or -(a ** b)", 1, 4),
    ("await a ** b", "write (await a) ** b or await (a ** b)", 1, 9),
    ("a?.(1)", "there is no '?.('", 1, 4),
    ("let {a, ...b} = c", "'...' cannot be used in an object pattern", 1, 9),
    ("let {a}", "a pattern needs a value", 1, 5),
    ("let [...a, b] = c", "must come last", 1, 6),
    ("function f(...a, b) {}", "must come last", 1, 12),
    ("function f(a b) {}", "expected ')' or ',' or '='", 1, 14),
    ("let o = {f() {}}", "an object's function is written f: (…) => { … }", 1, 11),
    ("let o = {a = 1}", "an object's values follow ':'", 1, 12),
    ("let o = {a b}", "expected ',' or ':' or '}'", 1, 12),
    ("f(a b)", "an operator or ',' is missing before it", 1, 5),
    ("a, b", "write one expression per statement", 1, 2),
    ("x = (a, b)", "a list is written [a, b]", 1, 7),
    ("(a; b)", "unexpected ';' inside the '(' of line 1", 1, 3),
    ("x = => y", "'=>' needs parameters before it", 1, 5),
    ("() => {}()", "put it in parentheses", 1, 9),
    ("() => {} + 1", "'+' needs a value before it", 1, 10),
    ("x => { [k]: 1 }", "=> ({key: value})", 1, 11),
    ("a ! b", "did you mean '!='?", 1, 3),
    ("{\n  f(", "'(' is never closed", 2, 4),
    ("if (a) {\n  b()\n", "'{' is never closed", 1, 8),
    ("f(a}", "expected ')' here, found '}': '(' was opened at line 1, column 2", 1, 4),
    ("}", "'}' closes nothing", 1, 1),
    ("'abc", "the string is never closed by '", 1, 1),
    ("x = `abc ${d", "'${' is never closed", 1, 10),
    ("x = `abc", "the template text is never closed by `", 1, 5),
    ("a /* b", "the comment is never closed by */", 1, 3),
    ("let x = 'a\nlet y = 'b'", "the string that began at line 1 spans several lines", 2, 11),
    ("x = 3px", "'3px' is not a number", 1, 5),
    ("x = é", "names are written with a–z, A–Z, 0–9, _ and $", 1, 5),
    ("x = #", "unexpected character '#'", 1, 5),
    ("x = 'a\\u12'", "needs hexadecimal digits", 1, 7),
    ("x = `a\n${b}\n c\\x`", "needs hexadecimal digits", 3, 3),
    ("a\n\n  b c d !", "'!' cannot be used between two values", 3, 9),
    ("x = '\ud800'", "half a surrogate pair", 1, 6),
]  # fmt: skip


@rows(("source", "message", "line", "column"), ERRORS, ids=lambda value: str(value)[:24])
def test_message_and_place(source: str, message: str, line: int, column: int) -> None:
    with pytest.raises(FlowSyntaxError) as caught:
        parse_program(source)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


def test_the_error_says_its_place_and_shows_the_line() -> None:
    with pytest.raises(UsageError) as caught:
        parse_program("let a = 1\nif (a) log(a)\n")
    error = caught.value
    assert isinstance(error, FlowSyntaxError)
    assert str(error) == "line 2, column 1: the body of 'if' needs braces: write if (…) { … }"
    assert error.excerpt == "if (a) log(a)\n^"
    assert error.code == "DS-182"


def test_the_error_can_be_made_from_message_and_place() -> None:
    error = FlowSyntaxError("no", 3, 4)
    assert (error.message, error.line, error.column) == ("no", 3, 4)
    assert error.excerpt.endswith("^")


def test_messages_never_show_the_parsers_own_words() -> None:
    for source, *_ in ERRORS:
        with pytest.raises(FlowSyntaxError) as caught:
            parse_program(source)
        for word in ("LBRACE", "LPAR", "RPAR", "SEMI", "NAME", "$END", "something else"):
            assert word not in caught.value.message

"""The forms a program may have, its front matter and its name."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang import FlowSyntaxError, validate
from dalsegno.lang.expressions.syntax.tree import Program
from dalsegno.lang.flow.syntax.parser import parse_program
from tests.lang.printing import statement, target
from tests.rows import rows

FORMS = [
    ("return 1", "statements", "", "", "return 1;"),
    ("function main() {return 1}", "main", "", "", "return 1;"),
    ("async function main() {return 1}", "main", "", "", "return 1;"),
    ("async function main(inputs) {return 1}", "main", "inputs", "", "return 1;"),
    ("workflow pay(inputs) {return 1}", "workflow", "inputs", "", "return 1;"),
    ("workflow(ctx, inputs) {return 1}", "workflow", "ctx inputs", "", "return 1;"),
    ("workflow () {return 1}", "workflow", "", "", "return 1;"),
    ("async workflow pay({id}) {return 1}", "workflow", '{"id": id}', "", "return 1;"),
    ("function f() {} function main() {return 1} function g() {}", "main", "", "f g", "return 1;"),
    ("function f() {} workflow pay(x) {return 1}", "workflow", "x", "f", "return 1;"),
    ("const a = 1; function f() {} function main() {return a}", "main", "", "",
     "const a = 1; function f() {} {return a;}"),
    ("let a = 1; workflow pay() {return a}", "workflow", "", "", "let a = 1; {return a;}"),
    ("function main() {} main()", "statements", "", "", "function main() {} main();"),
    ("function charged() {}", "statements", "", "", "function charged() {}"),
    ("workflow(1)", "statements", "", "", "workflow(1);"),
    ("workflow.run('a', {})", "statements", "", "", 'workflow.run("a", {});'),
    ("workflow = 1", "statements", "", "", "workflow = 1;"),
]  # fmt: skip


@rows(("source", "form", "parameters", "functions", "body"), FORMS)
def test_forms(source: str, form: str, parameters: str, functions: str, body: str) -> None:
    program, _ = parse_program(source)
    assert program.form == form
    assert " ".join(map(target, program.parameters)) == parameters
    assert " ".join(function.name for function in program.functions) == functions
    assert " ".join(map(statement, program.body.body)) == body


@pytest.mark.parametrize("source", ["", " \n ", "// nothing", "/* a */", ";;", "```\nname: a\n```\n"])
def test_an_empty_program_is_a_syntax_error(source: str) -> None:
    with pytest.raises(FlowSyntaxError, match="the program is empty"):
        parse_program(source)


WRONG_FORMS = [
    ("workflow a() {} workflow b() {}", "this is the second", 17),
    ("workflow a() {} log(1)", "move this into its body", 17),
    ("workflow a(x, y, z) {}", "at most two parameters", 18),
    ("function main(x, y, z) {}", "at most two parameters", 21),
    ("workflow a()", "the body of 'workflow' needs braces", 1),
]


@pytest.mark.parametrize(("source", "message", "column"), WRONG_FORMS)
def test_wrong_forms(source: str, message: str, column: int) -> None:
    with pytest.raises(FlowSyntaxError, match=message) as caught:
        parse_program(source)
    assert caught.value.column == column


def parsed(source: str, name: str | None = None) -> tuple[Program, dict[str, Any]]:
    return parse_program(source, name)


def test_the_name_is_that_of_the_front_matter_else_of_the_wrapper_else_of_the_file() -> None:
    assert parsed("```\nname: a\n```\nworkflow b() {return 1}", "c")[0].name == "a"
    assert parsed("workflow b() {return 1}", "c")[0].name == "b"
    assert parsed("workflow() {return 1}", "c")[0].name == "c"
    assert parsed("async function main() {}", "c")[0].name == "c"
    assert parsed("return 1")[0].name is None


def test_front_matter_is_yaml() -> None:
    source = "```yaml\nname: pay\ntimeout: 1h\ninput_schema:\n  type: object\n  required: [id]\non: 1\n```\nreturn 1\n"
    _, front_matter = parsed(source)
    assert front_matter == {
        "name": "pay",
        "timeout": "1h",
        "input_schema": {"type": "object", "required": ["id"]},
        "on": 1,
    }


@pytest.mark.parametrize(
    "source", ["```\n```\nreturn 1", "\ufeff```\n```\nreturn 1", "\n\n``` \n# a: 1\n ``` \nreturn 1"]
)
def test_front_matter_may_be_empty(source: str) -> None:
    program, front_matter = parsed(source)
    assert front_matter == {}
    assert len(program.body.body) == 1


def test_lines_count_from_the_start_of_the_file() -> None:
    with pytest.raises(FlowSyntaxError) as caught:
        parse_program("```\nname: a\n```\nlet x =\n")
    assert caught.value.line == 4


BAD_FRONT_MATTER = [
    ("```\nname: a\nreturn 1", "never closed", 1),
    ("```\nname: a\nb: [1\n```\nreturn 1", "front matter", 4),
    ("```\n- a\n```\nreturn 1", "keys and values", 2),
    ("```\nname: 3\n```\nreturn 1", "the name must be text", 2),
    ("```\nname: ''\n```\nreturn 1", "the name must be text", 2),
    ("```\ntimeout: 1h\nname: 3\n```\nreturn 1", "the name must be text", 3),
    ("```\ntimeout: 1h\nname: a/b\n```\nreturn 1", "'name' must not hold '/'", 3),
    ("```\ntimeout: 1h\n'name' : a@b\n```\nreturn 1", "'name' must not hold '@': it stands between", 3),
    ("```\n{name: a/b}\n```\nreturn 1", "'name' must not hold '/'", 2),
    ('```\nname: "a\\tb"\n```\nreturn 1', "'name' must hold 1 to 200 printable characters", 2),
    (f"```\nname: {'a' * 201}\n```\nreturn 1", "'name' must hold 1 to 200 printable characters", 2),
    ("```\nname: a\ntimeout: soon\n```\nreturn 1", "the timeout is not a duration; write seconds", 3),
    ("```\nname: a\ntimeout: -5\n```\nreturn 1", "the timeout is negative", 3),
    ("```\ntimeout: [1]\n```\nreturn 1", "the timeout is not a duration", 2),
    ("```\nname: a\ninput_schema: 5\n```\nreturn 1", "the input_schema must be a JSON Schema", 3),
    ("```\nname: a\nname: b\n```\nreturn 1", "appears twice", 3),
    ("```\na: !!python/object:os.system x\n```\nreturn 1", "tag", 2),
    ("```\na: *b\n```\nreturn 1", "alias", 2),
    ("```\na: .nan\n```\nreturn 1", "NaN", 2),
    ("```\n" + "a: " + "[" * 100 + "]" * 100 + "\n```\nreturn 1", "deeper", 2),
    ("```\n" + "a: b\n" * 50_000 + "```\nreturn 1", "longer", 2),
]


@rows(("source", "message", "line"), BAD_FRONT_MATTER, ids=lambda value: str(value)[:20])
def test_bad_front_matter_is_a_syntax_error_with_its_line(source: str, message: str, line: int) -> None:
    with pytest.raises(FlowSyntaxError, match=message) as caught:
        parse_program(source)
    assert caught.value.line == line
    assert validate(source)[0].rule == "syntax"


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [" + "x, " * 20 + "]"]
    lines += [f"a{n}: &a{n} [" + f"*a{n - 1}, " * 20 + "]" for n in range(1, 9)]
    with pytest.raises(FlowSyntaxError, match="aliases repeat"):
        parse_program("```\n" + "\n".join(lines) + "\n```\nreturn 1")


SEED_SCRIPTS = [
    """workflow example(inputs) {
  result = await Task.run("process_data", inputs)
  // Workflow needs to resume here when task completes
  return result
}
""",
    """fastest = await Task.any([
  Task.run("api1", inputs),
  Task.run("api2", inputs),
  Task.run("api3", inputs)
])
// Returns first successful result
""",
    """result = await Task.race([
  Task.run("operation", inputs),
  Task.delay(30)  // Timeout
])

if (result.item_id == timeout_timer) {
  return {error: "Operation timed out"}
}
""",
    """approval = await wait_for_signal("approval")
""",
]


@pytest.mark.parametrize("source", SEED_SCRIPTS)
def test_the_first_scripts_ever_written_parse(source: str) -> None:
    program, _ = parse_program(source)
    assert program.body.body
    errors = {finding.message for finding in validate(source) if finding.severity == "error"}
    assert errors <= {"Undefined variable 'timeout_timer'"}

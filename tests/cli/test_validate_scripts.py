"""``validate`` with scripts, alone and among documents."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Invoke
from tests.cli.documents import BAD, HELLO, TASKS, write

GOOD = "workflow pay(inputs) {\n  return await Task.run('work', inputs.n)\n}\n"
WRONG = "let total = 1\nreturn totl + Task.run('a')\n"


def test_a_good_script_is_named_after_its_wrapper_else_its_file(invoke: Invoke, folder: Path) -> None:
    write(folder, good_flow=GOOD, plain_flow="return 1\n")
    result = invoke("validate", "good.flow", "plain.flow")
    assert result.exit_code == 0
    assert "good.flow: pay, 3 lines" in result.stdout
    assert "plain.flow: plain, 1 line" in result.stdout


def test_findings_show_place_rule_and_the_line_with_a_caret(invoke: Invoke, folder: Path) -> None:
    write(folder, wrong_flow=WRONG)
    result = invoke("validate", "wrong.flow")
    assert result.exit_code == 2
    assert "wrong.flow: 2 errors" in result.stdout
    assert (
        "wrong.flow:2:8  error  undefined-variable\n"
        "    Undefined variable 'totl'; did you mean 'total'?\n"
        "    return totl + Task.run('a')\n"
        "           ^\n"
    ) in result.stdout
    assert "wrong.flow:2:23  error  argument-count" in result.stdout
    assert "wrong.flow:1:5  warning  unused-variable" in result.stdout


def test_a_syntax_error_is_a_finding(invoke: Invoke, folder: Path) -> None:
    write(folder, wrong_flow="let a = 1\nif (a) log(a)\n")
    result = invoke("validate", "wrong.flow")
    assert result.exit_code == 2
    assert "wrong.flow:2:1  error  syntax" in result.stdout
    assert "the body of 'if' needs braces" in result.stdout


def test_warnings_do_not_fail(invoke: Invoke, folder: Path) -> None:
    write(folder, warned_flow="x = 1\nreturn x\n")
    result = invoke("validate", "warned.flow")
    assert result.exit_code == 0
    assert "warned.flow:1:1  warning  implicit-global" in result.stdout


def test_scripts_and_documents_may_be_mixed(invoke: Invoke, folder: Path) -> None:
    write(folder, good_flow=GOOD, bad_yaml=BAD, hello_yaml=HELLO, wrong_flow=WRONG)
    result = invoke("validate", "good.flow", "bad.yaml", "hello.yaml", "wrong.flow")
    assert result.exit_code == 2
    for told in (
        "good.flow: pay",
        "bad.yaml:4:5  error  unknown-type",
        "hello.yaml: hello",
        "wrong.flow: 2 errors",
    ):
        assert told in result.stdout
    assert invoke("validate", "good.flow", "hello.yaml").exit_code == 0


def test_as_json(invoke: Invoke, folder: Path) -> None:
    write(folder, good_flow=GOOD, hello_yaml=HELLO, wrong_flow=WRONG)
    told = json.loads(invoke("validate", "good.flow", "hello.yaml", "wrong.flow", "--json").stdout)
    assert told["valid"] is False
    assert told["files"] == [
        {"file": "good.flow", "kind": "script", "valid": True, "name": "pay"},
        {"file": "hello.yaml", "kind": "graph", "valid": True, "name": "hello"},
        {"file": "wrong.flow", "kind": "script", "valid": False, "name": "wrong"},
    ]
    undefined = next(each for each in told["findings"] if each["rule"] == "undefined-variable")
    assert (undefined["file"], undefined["line"], undefined["column"]) == ("wrong.flow", 2, 8)
    assert undefined["excerpt"].endswith("^")
    assert told["error"]["message"] == "not valid: wrong.flow"


def test_tasks_are_looked_up_in_the_given_application(invoke: Invoke, folder: Path) -> None:
    write(folder, good_flow=GOOD.replace("'work'", "'wrok'"), tasks_py=TASKS)
    assert "unknown-task" not in invoke("validate", "good.flow").stdout
    result = invoke("validate", "good.flow", "--app", "tasks:app")
    assert result.exit_code == 0
    assert "good.flow:2:25  warning  unknown-task" in result.stdout
    assert "did you mean 'work'?" in result.stdout


def test_a_file_that_is_not_utf_8_is_refused_with_its_place(invoke: Invoke, folder: Path) -> None:
    (folder / "odd.flow").write_bytes(b"return 1\nlet x = '\xff'\n")
    result = invoke("validate", "odd.flow")
    assert result.exit_code == 2
    assert "odd.flow:2:10  error  syntax" in result.stdout


def test_a_missing_script_is_told(invoke: Invoke) -> None:
    assert invoke("validate", "nowhere.flow").exit_code == 2


FRONT_MATTER = """\
```
input_schema: {type: 7}
timeout: 3s
concurrency: {limit: 0}
```
return 1 + totl
"""


def test_what_deploying_would_refuse_is_found_too(invoke: Invoke, folder: Path) -> None:
    write(folder, wrong_flow=FRONT_MATTER)
    result = invoke("validate", "wrong.flow")
    assert result.exit_code == 2
    assert "wrong.flow: 3 errors" in result.stdout
    places = [
        line.split()[0]
        for line in result.stdout.splitlines()
        if line.startswith("wrong.flow:") and "  " in line
    ]
    assert places == ["wrong.flow:2:1", "wrong.flow:4:1", "wrong.flow:6:12"]
    assert "the concurrency is not valid: 'limit' must be a whole number" in " ".join(result.stdout.split())

"""``validate``, ``deploy``, ``nodes``, and the examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import BAD, HELLO, write

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


def test_validate_names_file_line_and_rule(invoke: Invoke, folder: Path) -> None:
    write(folder, bad_yaml=BAD, hello_yaml=HELLO)
    result = invoke("validate", "bad.yaml", "hello.yaml")
    assert result.exit_code == 2
    assert "bad.yaml:4:5  error  unknown-type" in result.stdout
    assert "bad.yaml:8:7  error  bad-parameter" in result.stdout
    assert "hello.yaml: hello, 1 node" in result.stdout


def test_validate_as_json(invoke: Invoke, folder: Path) -> None:
    write(folder, bad_json='{"nodes": [\n {"id": "a",\n  "type": "htpp"}]}', hello_yaml=HELLO)
    told = json.loads(invoke("validate", "bad.json", "hello.yaml", "--json").stdout)
    assert told["valid"] is False
    assert [each["valid"] for each in told["files"]] == [False, True]
    assert (told["findings"][0]["file"], told["findings"][0]["line"]) == ("bad.json", 3)
    good = invoke("validate", "hello.yaml", "--json")
    assert good.exit_code == 0
    assert "error" not in json.loads(good.stdout)


def test_syntax_errors_name_their_line(invoke: Invoke, folder: Path) -> None:
    write(folder, torn_yaml="name: x\nnodes: [\n")
    (finding,) = json.loads(invoke("validate", "torn.yaml", "--json").stdout)["findings"]
    assert finding["rule"] == "syntax"
    assert finding["line"] == 3


UNQUOTED = """\
name: unquoted
nodes:
  - {id: a, type: log, parameters: {message: hi}}
  - {id: true, type: log, parameters: {message: hi}}
  - {id: b, type: manual, trigger: yes}
edges:
  - {id: false, src: a, dst: true}
  - {src: a, dst: b, is_error: no}
"""


def test_value_without_quotes_is_no_text(invoke: Invoke, folder: Path) -> None:
    write(folder, unquoted_yaml=UNQUOTED)
    result = invoke("validate", "unquoted.yaml")
    said = " ".join(result.stdout.split())
    for place, message in (
        (
            "4:6",
            'A node\'s id must be text; without quotes, YAML and JSON read true as a boolean: write "true".',
        ),
        (
            "7:6",
            'An edge\'s id must be text; without quotes, YAML and JSON read false as a boolean: write "false".',
        ),
        (
            "7:25",
            "'dst' must be a node's id; without quotes, YAML and JSON read true as a boolean: write \"true\".",
        ),
        (
            "8:22",
            "'is_error' must be true, false or 'error'. Here 'no' is text, as in YAML 1.2: write false.",
        ),
        (
            "5:27",
            "'trigger' must be true or false, not text. Here 'yes' is text, as in YAML 1.2: write true.",
        ),
    ):
        assert re.search(rf"unquoted\.yaml:{place} error [a-z-]+ [\w/]+ {re.escape(message)}", said), said


def test_key_without_quotes_is_no_text(invoke: Invoke, folder: Path) -> None:
    write(folder, keys_yaml="name: keys\nnodes: []\nextra:\n  true: 1\n")
    result = invoke("validate", "keys.yaml")
    assert "keys.yaml:4:3  error  syntax" in result.stdout
    said = " ".join(result.stdout.split())
    assert 'a key must be text, and without quotes YAML reads true as a boolean; write "true"' in said


def test_yes_no_and_on_are_text_in_a_graph(invoke: Invoke, folder: Path) -> None:
    """As in YAML 1.2: an id may be one of them."""
    document = (
        "name: words\nnodes:\n  - {id: on, type: log, parameters: {message: hi}}\n"
        "  - {id: yes, type: log, parameters: {message: no}}\nedges: [{id: no, src: on, dst: yes}]\n"
    )
    write(folder, words_yaml=document)
    assert invoke("validate", "words.yaml").exit_code == 0


def test_warnings_are_shown_and_do_not_fail(invoke: Invoke, folder: Path) -> None:
    write(folder, only_yaml="name: only\nnodes: [{id: t, type: manual, trigger: true}]\n")
    result = invoke("validate", "only.yaml")
    assert result.exit_code == 0
    assert "warning" in result.stdout


def test_deploy_tells_new_from_unchanged(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)

    def deployed() -> tuple[int, str]:
        (told,) = json.loads(invoke("deploy", "hello.yaml", "--json").stdout)["definitions"]
        return told["version"], told["status"]

    assert deployed() == (1, "new")
    assert deployed() == (1, "unchanged")
    write(folder, hello_yaml=HELLO.replace("Hello", "Good day"))
    assert deployed() == (2, "new")
    write(folder, hello_yaml=HELLO)
    assert deployed() == (1, "current again")
    assert "hello  unchanged: still version 1" in invoke("deploy", "hello.yaml").stdout


def test_deploy_stores_nothing_if_one_document_is_bad(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO, bad_yaml=BAD)
    assert invoke("deploy", "hello.yaml", "bad.yaml").exit_code == 2
    assert not (folder / "dalsegno.db").exists()


def test_nodes_lists_types_and_parameters(invoke: Invoke) -> None:
    entries = {each["type"]: each for each in json.loads(invoke("nodes", "--json").stdout)["nodes"]}
    assert "amount" in entries["wait"]["parameters"]["properties"]
    assert "python" in entries["task"]["aliases"]
    assert "Number of units" in invoke("nodes", "wait").stdout


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_examples_are_valid(invoke: Invoke, file: Path) -> None:
    result = invoke("validate", str(file))
    assert result.exit_code == 0, result.stdout


def test_order_example_runs(invoke: Invoke) -> None:
    (orders,) = [file for file in EXAMPLES if file.stem == "orders"]
    told = json.loads(invoke("run", str(orders), "--store", "memory:", "--json").stdout)
    assert [order["pays"] for order in told["output"]] == [810, 40]


SCHEDULED = """\
name: nightly
input_schema: {type: object, required: [shop]}
nodes:
  - {id: at-two, type: schedule, parameters: {cron: "0 2 * * *"}}
  - {id: one, type: webhook, parameters: {path: /same}}
  - {id: two, type: WebhookTrigger, parameters: {path: same/, method: get}}
  - {id: say, type: log, parameters: {message: hi}}
edges: [{src: at-two, dst: say}, {src: one, dst: say}, {src: two, dst: say}]
"""


def test_validate_finds_what_a_deploy_refuses_of_triggers(invoke: Invoke, folder: Path) -> None:
    write(folder, nightly_yaml=SCHEDULED)
    found = json.loads(invoke("validate", "nightly.yaml", "--json").stdout)
    assert found["valid"] is False
    assert [(each["rule"], each["line"]) for each in found["findings"]] == [
        ("schedule-input", 2),
        ("webhook-method", 3),
        ("webhook-path", 3),
    ]
    assert "'shop' is a required property" in found["findings"][0]["message"]
    refused = invoke("deploy", "nightly.yaml")
    assert refused.exit_code == 2

    write(folder, nightly_yaml=SCHEDULED.replace("required: [shop]", "properties: {}"))
    still = json.loads(invoke("validate", "nightly.yaml", "--json").stdout)["findings"]
    assert [each["rule"] for each in still] == ["webhook-method", "webhook-path"]


BRACES = """\
name: braces
nodes:
  - {id: a, type: log, parameters: {message: "$trigger.x ?? []"}}
  - {id: b, type: log, parameters: {message: "{{ $trigger.x ?? [] }}"}}
  - {id: c, type: log, parameters: {message: "$trigger.x - $trigger.y"}}
  - {id: d, type: log, parameters: {message: "$trigger.x == what?"}}
"""


def test_validate_warns_of_an_expression_without_braces(invoke: Invoke, folder: Path) -> None:
    write(folder, braces_yaml=BRACES)
    found = json.loads(invoke("validate", "braces.yaml", "--json").stdout)
    [warning] = found["findings"]
    assert (warning["rule"], warning["line"], warning["severity"]) == ("missing-braces", 3, "warning")
    assert "write {{ $trigger.x ?? [] }}" in warning["message"]

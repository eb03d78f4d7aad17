"""``deploy``, ``versions``, ``alias``: what changed, which version is which, and what it is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import BAD, HELLO, LONG_WAIT, write

OTHER = HELLO.replace("Hello", "Good day")
LARGER = """\
name: hello
timeout: 1h
nodes:
  - id: greet
    type: edit
    parameters: {assignments: [{name: text, value: "Hello {{ input.name ?? 'you' }}"}]}
  - {id: tell, type: log, parameters: {message: hi}}
edges: [{id: e1, src: greet, dst: tell}]
output: "$greet.text"
"""
SCRIPT = """\
workflow counting(inputs) {
  let total = 0
  for (let n of inputs.numbers) { total += n }
  return total
}
"""


def deploy(invoke: Invoke, folder: Path, text: str, *options: str, file: str = "hello.yaml") -> Any:
    (folder / file).write_text(text)
    result = invoke("deploy", file, "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["definitions"][0]


def told(invoke: Invoke, folder: Path, text: str, *options: str, file: str = "hello.yaml") -> str:
    (folder / file).write_text(text)
    result = invoke("deploy", file, *options)
    assert result.exit_code == 0, result.output
    return result.stdout


# -- deploy ---------------------------------------------------------------------------------------------------


def test_first_version_is_new(invoke: Invoke, folder: Path) -> None:
    assert "hello  version 1 (new)  hello.yaml" in told(invoke, folder, HELLO)


def test_same_content_is_unchanged(invoke: Invoke, folder: Path) -> None:
    told(invoke, folder, HELLO)
    assert "hello  unchanged: still version 1" in told(invoke, folder, HELLO)


def test_old_content_makes_its_version_current_again(invoke: Invoke, folder: Path) -> None:
    for text in (HELLO, OTHER):
        told(invoke, folder, text)
    assert "hello  version 1 again (rolled back from 2)" in told(invoke, folder, HELLO)
    assert deploy(invoke, folder, OTHER)["status"] == "current again"


def test_changed_parameter_is_shown_with_both_values(invoke: Invoke, folder: Path) -> None:
    told(invoke, folder, HELLO)
    said = told(invoke, folder, OTHER)
    assert "hello  version 2 (was 1)" in said
    assert "~ node greet  edit" in said
    assert "~ parameters.assignments[0].value" in said
    assert "Good day" in said


def test_new_nodes_edges_and_fields_are_shown(invoke: Invoke, folder: Path) -> None:
    told(invoke, folder, HELLO)
    said = told(invoke, folder, LARGER)
    assert "+ node tell  log" in said
    assert "+ edge e1  greet -> tell" in said
    assert '+ timeout  "1h"' in said
    assert "- node tell  log" in told(invoke, folder, HELLO)


def test_changes_are_given_as_data(invoke: Invoke, folder: Path) -> None:
    assert deploy(invoke, folder, HELLO)["changes"] is None
    found = deploy(invoke, folder, LARGER)
    assert (found["version"], found["previous"], found["status"]) == (2, 1, "new")
    assert found["changes"]["nodes"] == [{"change": "added", "id": "tell", "about": "log"}]


def test_dry_run_shows_everything_and_stores_nothing(invoke: Invoke, folder: Path) -> None:
    said = told(invoke, folder, HELLO, "--dry-run")
    assert "hello  would be version 1 (new)" in said
    assert "nothing was stored" in said
    assert not (folder / "dalsegno.db").exists()
    told(invoke, folder, HELLO)
    said = told(invoke, folder, LARGER, "--dry-run", "--alias", "stable")
    assert "hello  would be version 2 (was 1)" in said
    assert "+ node tell  log" in said
    assert "stable would mean version 2" in said
    listed = json.loads(invoke("versions", "hello", "--json").stdout)["versions"]
    assert [(each["version"], each["aliases"]) for each in listed] == [(1, [])]


TRIGGERED = """
name: nightly
nodes:
  - {id: at, type: schedule, parameters: {cron: 0 2 * * *}}
  - {id: in, type: webhook, parameters: {path: in}}
  - {id: say, type: log, parameters: {message: hello}}
edges:
  - {src: at, dst: say}
  - {src: in, dst: say}
"""


def test_dry_run_shows_schedules_and_webhooks(invoke: Invoke, folder: Path) -> None:
    added = "schedule 'nightly/at' would be added  0 2 * * * (UTC)"
    said = told(invoke, folder, TRIGGERED, "--dry-run")
    assert added in said
    assert "webhook 'nightly.in' would be added  POST /v1/hooks/in" in said
    told(invoke, folder, HELLO)
    before = sorted(each.name for each in folder.iterdir())
    assert added in told(invoke, folder, TRIGGERED, "--dry-run")
    assert sorted(each.name for each in folder.iterdir()) == before, "no secret key was made"
    assert json.loads(invoke("schedule", "ls", "--json").stdout)["schedules"] == []
    told(invoke, folder, TRIGGERED)
    changed = TRIGGERED.replace("0 2 * * *", "0 3 * * *").replace(
        "  - {id: in, type: webhook, parameters: {path: in}}\n", ""
    )
    said = told(invoke, folder, changed.replace("  - {src: in, dst: say}\n", ""), "--dry-run")
    assert "schedule 'nightly/at' would be changed  0 3 * * * (UTC)" in said
    assert "webhook 'nightly.in' would be removed" in said


def test_dry_run_tells_unchanged_and_rolled_back(invoke: Invoke, folder: Path) -> None:
    for text in (HELLO, OTHER):
        told(invoke, folder, text)
    assert "would be version 1 again (rolled back from 2)" in told(invoke, folder, HELLO, "--dry-run")
    assert "unchanged: still version 2" in told(invoke, folder, OTHER, "--dry-run")


def test_dry_run_as_json_says_that_nothing_was_stored(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    assert json.loads(invoke("deploy", "hello.yaml", "--dry-run", "--json").stdout)["stored"] is False
    assert json.loads(invoke("deploy", "hello.yaml", "--json").stdout)["stored"] is True


def test_dry_run_checks_documents_too(invoke: Invoke, folder: Path) -> None:
    write(folder, bad_yaml=BAD)
    assert invoke("deploy", "bad.yaml", "--dry-run").exit_code == 2


def test_deployed_version_gets_its_alias(invoke: Invoke, folder: Path) -> None:
    assert "stable means version 1" in told(invoke, folder, HELLO, "--alias", "stable")
    assert "stable means version 2 (was 1)" in told(invoke, folder, OTHER, "--alias", "stable")
    assert deploy(invoke, folder, HELLO, "--alias", "stable")["alias"] == "stable"


def test_bad_alias_is_refused_before_anything_is_stored(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    for alias in ("latest", "Stable", "3"):
        result = invoke("deploy", "hello.yaml", "--alias", alias)
        assert result.exit_code == 2
        assert "alias" in result.stderr
    assert not (folder / "dalsegno.db").exists()


def test_scripts_are_deployed_and_compared_by_lines(invoke: Invoke, folder: Path) -> None:
    assert "counting  version 1 (new)" in told(invoke, folder, SCRIPT, file="counting.flow")
    longer = SCRIPT.replace("  return total\n", '  log("done")\n  log(total)\n  return total + 1\n')
    said = told(invoke, folder, longer, file="counting.flow")
    assert "3 lines added, 1 removed" in said
    assert "+  return total + 1" in said
    assert "-  return total" in said
    found = deploy(invoke, folder, SCRIPT, file="counting.flow")
    assert (found["kind"], found["status"], found["changes"]["added"]) == ("script", "current again", 1)


def test_script_with_errors_is_not_deployed(invoke: Invoke, folder: Path) -> None:
    (folder / "bad.flow").write_text("let x = \n")
    result = invoke("deploy", "bad.flow")
    assert result.exit_code == 2
    assert "bad.flow:" in result.stderr
    assert not (folder / "dalsegno.db").exists()


def test_name_that_changes_from_graph_to_script_is_compared_as_text(invoke: Invoke, folder: Path) -> None:
    told(invoke, folder, HELLO)
    said = told(invoke, folder, SCRIPT.replace("counting", "hello"), file="hello.flow")
    assert "hello  version 2 (was 1)" in said
    assert "-name: hello" in said
    assert "+workflow hello(inputs) {" in said


# -- versions and aliases -------------------------------------------------------------------------------------


@pytest.fixture
def versions(invoke: Invoke, folder: Path) -> Invoke:
    """Three versions of `hello`, of which the second is current."""
    for text in (HELLO, OTHER, LARGER, OTHER):
        told(invoke, folder, text)
    return invoke


def test_versions_are_listed_newest_first_with_the_current_one_marked(versions: Invoke) -> None:
    listed = json.loads(versions("versions", "hello", "--json").stdout)["versions"]
    assert [(each["version"], each["current"], each["kind"]) for each in listed] == [
        (3, False, "graph"),
        (2, True, "graph"),
        (1, False, "graph"),
    ]
    rows = versions("versions", "hello").stdout.splitlines()
    assert rows[2].startswith("2 *")
    assert "latest" in rows[2]


def test_versions_show_aliases_and_unfinished_executions(versions: Invoke, folder: Path) -> None:
    told(versions, folder, LONG_WAIT, file="sleeper.yaml")
    versions("start", "sleeper")
    versions("start", "sleeper@1")
    versions("alias", "sleeper", "stable", "1")
    (line,) = json.loads(versions("versions", "sleeper", "--json").stdout)["versions"]
    assert (line["aliases"], line["unfinished"]) == (["stable"], 2)
    assert "latest, stable" in versions("versions", "sleeper").stdout


def test_alias_is_set_moved_and_removed(versions: Invoke) -> None:
    assert versions("alias", "hello", "stable", "1").stdout == "hello@stable means version 1\n"
    assert versions("alias", "hello", "stable", "latest").stdout == "hello@stable means version 2 (was 1)\n"
    assert versions("alias", "hello", "old", "stable").stdout == "hello@old means version 2\n"
    removed = versions("alias", "hello", "stable", "--rm", "--json")
    assert json.loads(removed.stdout) == {"name": "hello", "alias": "stable", "version": None, "before": 2}
    assert versions("alias", "hello", "stable", "--rm").exit_code == 2


def test_start_takes_a_version_or_an_alias_behind_the_name(versions: Invoke) -> None:
    versions("alias", "hello", "stable", "1")

    def version(target: str) -> int:
        return int(json.loads(versions("start", target, "--json").stdout)["version"])

    assert [version(target) for target in ("hello", "hello@3", "hello@stable", "hello@latest")] == [
        2,
        3,
        1,
        2,
    ]


REFUSED = {
    "no such workflow": (("alias", "helo", "stable", "1"), "no workflow is named 'helo'; did you mean 'hello'?"),
    "no such version": (("alias", "hello", "stable", "9"), "workflow 'hello' has no version 9"),
    "no such alias": (("alias", "hello", "stable", "canary"), "workflow 'hello' has no alias 'canary'"),
    "a version that is none": (("alias", "hello", "stable", "1.5"), "neither a version's number nor an alias"),
    "latest": (("alias", "hello", "latest", "1"), "'latest' always means the current version"),
    "an alias that is none": (("alias", "hello", "My Alias", "1"), "cannot be an alias"),
    "no version": (("alias", "hello", "stable"), "an alias needs a version to point at, or --rm"),
    "removing and setting": (("alias", "hello", "stable", "1", "--rm"), "a version to point at, or --rm"),
    "removing what is not there": (("alias", "hello", "stable", "--rm"), "workflow 'hello' has no alias 'stable'"),
    "versions of nothing": (("versions", "nobody"), "no workflow is named 'nobody'"),
    "start of an unknown alias": (("start", "hello@stable"), "workflow 'hello' has no alias 'stable'"),
    "start of an unknown version": (("start", "hello@9"), "workflow 'hello' has no version 9"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_with_a_reason(versions: Invoke, arguments: tuple[str, ...], message: str) -> None:
    result = versions(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())

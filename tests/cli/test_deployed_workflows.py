"""``workflows`` lists what is deployed; ``ls`` and ``why`` take the store of an application; lists show tags."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.test_remote import server, there  # noqa: F401 - fixtures

OTHER = HELLO.replace("Hello", "Good day")
SCRIPT = """\
workflow stages(inputs) {
  set_tags({stage: "documents"})
  const charge = Task.run("charge", 1)
  const both = Promise.all([charge, Task.run("send", 1), Task.run("send", 2)])
  await Signal.next("documents")
  await both
}
"""
SHOP = """
from dalsegno import App, gather, signal, sleep

app = App("sqlite:///shop.db")


@app.task
async def charge(order):
    return order


@app.task
async def send(order):
    return order


@app.workflow
async def checkout(order: int):
    payment = charge(order)
    late = sleep("1h")
    both = gather(charge(1), charge(2))
    await signal("paid")
    return [await payment, await late, await both]
"""
FRAGILE = """\
name: fragile
nodes:
  - {id: each, type: split, parameters: {input_array: [1, 2, 3], on_item_error: collect}}
  - {id: work, type: edit, parameters: {assignments: [{name: n, value: "{{ $item == 2 ? $item.missing.there : 1 }}"}]}}
  - {id: all, type: aggregator}
edges: [{src: each, dst: work}, {src: work, dst: all}]
"""


def _deploy(invoke: Invoke, folder: Path) -> None:
    for text in (HELLO, OTHER):
        write(folder, hello_yaml=text)
        assert invoke("deploy", "hello.yaml").exit_code == 0
    assert invoke("alias", "hello", "stable", "1").exit_code == 0
    write(folder, stages_flow=SCRIPT)
    assert invoke("deploy", "stages.flow").exit_code == 0


def test_workflows_are_listed_with_versions_aliases_and_kind(invoke: Invoke, folder: Path) -> None:
    _deploy(invoke, folder)
    head, hello, stages = invoke("workflows").stdout.splitlines()
    assert head.split() == ["workflow", "kind", "version", "aliases", "versions", "deployed", "age"]
    assert hello.split()[:6] == ["hello", "graph", "2", "stable", "(1)", "2"]
    assert stages.split()[:4] == ["stages", "script", "1", "1"]

    [one, two] = json.loads(invoke("workflows", "--json").stdout)["workflows"]
    assert (one["name"], one["kind"], one["version"], one["versions"]) == ("hello", "graph", 2, [2, 1])
    assert one["aliases"] == {"stable": 1}
    assert one["deployed_at"]
    assert two["name"] == "stages"


def test_a_server_says_the_same(invoke: Invoke, folder: Path, there: Invoke) -> None:  # noqa: F811 - a fixture
    _deploy(invoke, folder)
    here = json.loads(invoke("workflows", "--json").stdout)["workflows"]
    assert [each["name"] for each in here][:1] == ["greets"]
    assert json.loads(there("workflows", "--json").stdout)["workflows"] == here


def test_an_empty_store_says_what_to_do(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    assert invoke("deploy", "hello.yaml", "--dry-run").exit_code == 0
    result = invoke("workflows", "--store", "memory:")
    assert "no workflows" in result.stdout


@pytest.fixture
def shop(invoke: Invoke, folder: Path) -> str:
    """An execution of a Python workflow that waits, in the store of its application."""
    write(folder, shop_py=SHOP)
    result = invoke("run", "shop.py:checkout", "--input", "7", "--timeout", "2s", "--quiet")
    assert result.exit_code == 124, result.output
    return "shop.py"


def test_ls_and_why_find_the_store_of_an_application(invoke: Invoke, shop: str) -> None:
    listed = json.loads(invoke("ls", "--app", shop, "--json").stdout)["executions"]
    assert [each["workflow"] for each in listed] == ["checkout"]
    assert invoke("ls").exit_code != 0  # there is no default store
    told = invoke("why", "last", "--app", shop)
    assert "signal 'paid'" in told.stdout or "paid" in told.stdout
    assert told.exit_code == 0


def test_variables_name_what_is_behind_a_promise(invoke: Invoke, shop: str) -> None:
    shown = json.loads(invoke("show", "last", "--app", shop, "--json").stdout)["variables"]
    assert shown["payment"] == "<task charge>"
    assert shown["late"].startswith("<timer until ")
    assert shown["late"].endswith(" UTC>")
    assert shown["both"] == "<all of 2 × task charge>"


def test_those_of_a_script_too_and_its_tags_are_listed(invoke: Invoke, folder: Path) -> None:
    write(folder, stages_flow=SCRIPT, shop_py=SHOP.replace('App("sqlite:///shop.db")', "App()"))
    result = invoke("run", "stages.flow", "--app", "shop.py", "--timeout", "2s", "--quiet")
    assert result.exit_code == 124, result.output
    shown = json.loads(invoke("show", "last", "--json").stdout)
    assert shown["variables"]["charge"] == "<task charge>"
    assert shown["variables"]["both"] == "<all of task charge, 2 × task send>"
    assert shown["tags"] == {"stage": "documents"}
    assert "stage=documents" in invoke("ls").stdout
    assert "stage=documents" in invoke("show", "last").stdout
    assert "TagsChanged       stage=documents" in invoke("show", "last").stdout
    assert json.loads(invoke("ls", "--tag", "stage=other", "--json").stdout)["executions"] == []
    assert len(json.loads(invoke("ls", "--tag", "stage=documents", "--json").stdout)["executions"]) == 1


def test_failed_runs_are_counted(invoke: Invoke, folder: Path) -> None:
    write(folder, fragile_yaml=FRAGILE)
    result = invoke("run", "fragile.yaml", "--quiet")
    assert result.exit_code == 0, result.output
    assert "1 of 3 runs failed" in invoke("show", "last").stdout

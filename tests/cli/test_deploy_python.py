"""``deploy`` with Python files: versions, what changed, aliases, and what cannot be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import UNFIT, write

SHOP = """
from dalsegno import App, signal
app = App()


@app.workflow
async def shop(x: int):
    return await signal("go")


@app.workflow
async def other():
    return 1
"""


def _changed(folder: Path) -> None:
    write(folder, shop_py=SHOP.replace('signal("go")', 'signal("start")'))
    sys.modules.pop("shop", None)


def test_every_workflow_of_the_file_is_deployed_and_its_changes_are_shown(
    invoke: Invoke, folder: Path
) -> None:
    write(folder, shop_py=SHOP)
    said = invoke("deploy", "shop.py", "--alias", "stable").stdout
    assert "shop  version 1 (new)" in said
    assert "other  version 1 (new)" in said
    _changed(folder)
    would = invoke("deploy", "shop.py", "--dry-run").stdout
    assert "shop  would be version 2 (was 1)" in would
    assert "nothing was stored" in would
    told = json.loads(invoke("deploy", "shop.py", "--json").stdout)["definitions"]
    assert [(each["name"], each["kind"], each["version"], each["status"]) for each in told] == [
        ("shop", "python", 2, "new"),
        ("other", "python", 1, "unchanged"),
    ]
    assert 'signal("start")' in json.dumps(told[0]["changes"]).replace("\\", "")


def test_a_deployed_python_workflow_is_the_one_that_run_uses(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py=SHOP)
    invoke("deploy", "shop.py")
    assert json.loads(invoke("run", "shop.py:other", "--json").stdout)["output"] == 1
    assert "other  unchanged: still version 1" in invoke("deploy", "shop.py").stdout


def test_a_file_that_cannot_be_deployed_says_why_and_stores_nothing(invoke: Invoke, folder: Path) -> None:
    write(folder, unfit_py=UNFIT, empty_py="x = 1\n", shop_py=SHOP)
    for file, said in (("unfit.py", "unfit.py:"), ("empty.py", "empty.py defines no workflows")):
        refused = invoke("deploy", "shop.py", file)
        assert refused.exit_code == 2
        assert said in refused.stderr
    assert not (folder / "dalsegno.db").exists()


def test_a_server_is_not_given_code_that_it_does_not_have(invoke: Invoke, folder: Path) -> None:
    write(folder, shop_py=SHOP)
    refused = invoke("deploy", "shop.py", "--server", "http://127.0.0.1:9")
    assert refused.exit_code == 2
    assert "whose code must be where it runs" in refused.stderr
    assert "--app shop.py" in " ".join(refused.stderr.split())


NIGHT = """
name: other
nodes:
 - {id: nightly, type: schedule, parameters: {cron: "0 2 * * *"}}
 - {id: say, type: log, parameters: {message: hello}}
edges: [{src: nightly, dst: say}]
"""


@pytest.mark.parametrize("command", [["deploy", "shop.py"], ["run", "shop.py:other"], ["run", "other.flow"]])
def test_what_a_graph_of_the_same_name_has_made_is_removed(
    invoke: Invoke, folder: Path, command: list[str]
) -> None:
    write(folder, shop_py=SHOP, other_yaml=NIGHT, other_flow="return 1\n")
    assert invoke("deploy", "other.yaml").exit_code == 0
    assert len(json.loads(invoke("schedule", "ls", "--json").stdout)["schedules"]) == 1
    told = json.loads(invoke(*command, "--json").stdout)
    if command[0] == "deploy":
        triggers = [each["triggers"] for each in told["definitions"] if each["name"] == "other"]
        assert [(each["name"], each["status"]) for each in triggers[0]] == [("other/nightly", "removed")]
    assert json.loads(invoke("schedule", "ls", "--json").stdout)["schedules"] == []

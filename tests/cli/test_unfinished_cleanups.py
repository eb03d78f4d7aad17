"""What the commands say of executions that failed or whose clean-up failed: how to go on without paying twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import write

SHOP = """\
import threading
from pathlib import Path

from dalsegno import App, signal

app = App()


def note(line):
    with Path("done.txt").open("a") as file:
        file.write(line + "\\n")


@app.task
async def charge(order: int) -> int:
    note(f"charge {order}")
    if order > 2:
        raise RuntimeError("the bank says no")
    return order


@app.task
async def refund(order: int) -> None:
    if not Path("bank-is-up").exists():
        raise RuntimeError("the bank is down")
    note(f"refund {order}")


@app.workflow(timeout="1s")
async def late(order: int) -> None:
    await charge(order)
    try:
        await signal("never")
    finally:
        await refund(order)


@app.workflow
async def endless(order: int) -> None:
    await charge(order)
    try:
        await charge(order)
        held = threading.Lock()
        await signal("never")
        held.release()
    finally:
        await refund(order)


@app.workflow
async def three(orders: int) -> None:
    for order in range(1, orders + 1):
        await charge(order)
"""
APP = ("--app", "shop.py")


@pytest.fixture(autouse=True)
def shop(folder: Path) -> None:
    write(folder, shop_py=SHOP)


def done(folder: Path) -> list[str]:
    return (folder / "done.txt").read_text().splitlines()


def listed(invoke: Invoke) -> list[str]:
    """The newest first."""
    return [each["id"] for each in json.loads(invoke("ls", "--json").stdout)["executions"]]


def test_a_failed_clean_up_is_gone_on_with_rather_than_started_over(invoke: Invoke, folder: Path) -> None:
    said = invoke("run", "shop.py:late", "--input", "1").stdout
    execution = listed(invoke)[0]
    way_on = f"dalsegno dead retry cleanup:{execution}"
    assert way_on in said
    assert "dalsegno retry" not in said
    assert way_on in invoke("show", execution, *APP).stdout
    assert way_on in invoke("why", execution, *APP).stdout

    (folder / "bank-is-up").touch()
    assert invoke("dead", "retry", f"cleanup:{execution}", *APP).exit_code == 0
    again = listed(invoke)[0]
    assert "late v1 (clean-up)" in invoke("ls").stdout
    refused = invoke("retry", again, *APP, "--yes")
    assert refused.exit_code != 0
    assert f"dalsegno dead retry cleanup:{again}" in " ".join(refused.stderr.split())
    said = invoke("resume", again, *APP).stdout
    assert "dalsegno retry" not in said
    assert "dead retry" not in said
    assert done(folder) == ["charge 1", "refund 1"]
    assert "dead retry" not in invoke("show", execution, *APP).stdout


def test_a_task_that_both_completed_and_failed_is_asked_about(invoke: Invoke, folder: Path) -> None:
    assert invoke("run", "shop.py:three", "--input", "3").exit_code == 1
    refused = invoke("retry", "last", *APP, "--from-start")
    assert refused.exit_code == 2
    assert "It runs again: 'charge' (3 times, 1 failed)." in " ".join(refused.stderr.split())
    assert done(folder) == ["charge 1", "charge 2", "charge 3"]


def test_a_letter_about_a_failed_execution_is_asked_about(invoke: Invoke, folder: Path) -> None:
    source = 'await Task.run("charge", 1)\nawait Task.run(inputs, 2)\n'
    write(folder, lost_flow=source)
    assert invoke("run", "lost.flow", "--input", '"nowhere"', *APP).exit_code == 1
    (letter,) = json.loads(invoke("dead", "ls", "--json").stdout)["dead"]
    listing = invoke("dead", "ls", *APP).stdout
    assert re.search(
        r"^  lost, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, [\d.]+ m?s ago, TASK_NOT_FOUND$",
        listing,
        re.MULTILINE,
    )
    assert f"  dalsegno dead retry {letter['id']} --store sqlite:///dalsegno.db --app shop.py\n" in listing
    assert "`dalsegno dead drop ID` gives one up" in listing
    assert invoke("dead", "retry", letter["id"], *APP).exit_code == 0  # it goes on from its failure
    assert len(listed(invoke)) == 2


def test_a_workflow_that_cannot_be_stored_says_how_to_clean_up(invoke: Invoke, folder: Path) -> None:
    said = invoke("run", "shop.py:endless", "--input", "1").stdout
    execution = listed(invoke)[0]
    way_on = f"dalsegno dead retry cleanup:{execution}"
    assert way_on in said
    assert "it would fail the same way: change the workflow, its input or the limit first" in said
    assert way_on in invoke("why", execution, *APP).stdout
    assert "the execution failed and did not clean up: variable 'held'" in invoke("dead", "ls", *APP).stdout
    (folder / "bank-is-up").touch()
    assert invoke("dead", "retry", f"cleanup:{execution}", *APP).exit_code == 0
    invoke("resume", listed(invoke)[0], *APP)
    assert done(folder) == ["charge 1", "charge 1", "refund 1"]

"""``--json`` names executions as the HTTP API does: ``id`` and ``state``, ``execution`` where something refers to one.
The earlier names are there beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno import App
from tests.cli.conftest import Invoke
from tests.cli.documents import BROKEN, HELLO, LONG_WAIT, write
from tests.server.conftest import LiveServer
from tests.waiting import until

ASKING = "name: asking\nnodes:\n  - {id: gate, type: approval, parameters: {message: Pay?}}\n"
CALLING = 'const child = await Workflow.run("sleeper", {})\nreturn child\n'

Told = Callable[..., dict[str, Any]]


@pytest.fixture(params=["store", "server"])
def told(request: pytest.FixtureRequest, invoke: Invoke, folder: Path) -> Iterator[Told]:
    """What a command prints with ``--json``, about a store and about a server. Somebody else runs what is started."""
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        place = ("--server", live.url) if request.param == "server" else ()

        def run(*arguments: str) -> dict[str, Any]:
            result = invoke(*arguments, "--json", *place)
            assert result.exit_code in (0, 1), result.output
            return dict(json.loads(result.stdout))

        run.server = live.url  # type: ignore[attr-defined]
        yield run


def is_execution(found: dict[str, Any], id: str | None = None) -> bool:
    assert found["id"] == found["execution_id"]
    assert found["state"] == found["status"]
    assert found["state"] in ("PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED")
    return id is None or found["id"] == id


def refers(found: dict[str, Any], id: str, prefix: str = "") -> bool:
    return found[f"{prefix}execution"] == found[f"{prefix}execution_id"] == id


def test_every_command_names_an_execution_alike(told: Told, folder: Path) -> None:
    write(folder, hello_yaml=HELLO, sleeper_yaml=LONG_WAIT, failing_yaml=BROKEN)
    assert is_execution(told("run", "hello.yaml"))
    told("deploy", "hello.yaml", "sleeper.yaml")
    started = told("start", "sleeper")
    made = started["id"]
    assert is_execution(started)
    assert is_execution(told("submit", "hello"))
    assert is_execution(told("trigger", "last"))
    for command in (("show", made), ("why", made), ("pause", made), ("signal", made, "go"), ("cancel", made)):
        assert is_execution(told(*command), made), command
    assert is_execution(told("watch", made), made)
    assert is_execution(told("resume", made), made)
    assert [is_execution(each) for each in told("ls")["executions"]] == [True] * 3
    again = told("retry", made, "--detach")
    assert is_execution(again)
    assert again["parent"] == made
    assert is_execution(told("rerun", made, "nap", "--detach"))
    assert is_execution(told("run", "failing.yaml"))


def test_the_same_names_as_over_http(told: Told, folder: Path) -> None:
    write(folder, hello_yaml=HELLO)
    told("run", "hello.yaml")
    [listed] = told("ls")["executions"]
    [served] = httpx.get(f"{told.server}/v1/executions").json()["items"]  # type: ignore[attr-defined]
    for name in (
        "id",
        "state",
        "workflow",
        "version",
        "kind",
        "tags",
        "idempotency_key",
        "parent",
        "relation",
    ):
        assert listed[name] == served[name]


def test_what_refers_to_an_execution_says_execution(told: Told, folder: Path) -> None:
    write(folder, asking_yaml=ASKING, hello_yaml=HELLO)
    told("deploy", "asking.yaml", "hello.yaml")
    asked = told("start", "asking")["id"]
    until(lambda: told("approvals")["approvals"], "the question")
    assert refers(told("approvals")["approvals"][0], asked)
    assert refers(told("approve", asked), asked)
    made = told("schedule", "add", "nightly", "--workflow", "hello", "--cron", "0 2 * * *")
    assert refers(made, made["execution"])
    assert refers(made, None, "last_")  # type: ignore[arg-type]
    fired = told("schedule", "trigger", "nightly")
    assert refers(fired, fired["execution"])
    shown = until(lambda: told("schedule", "show", "nightly")["runs"], "its run")
    assert is_execution(shown[0], fired["execution"])


def test_a_script_names_the_child_it_waits_for(told: Told, folder: Path) -> None:
    write(folder, sleeper_yaml=LONG_WAIT, calling_flow=CALLING)
    told("deploy", "sleeper.yaml", "calling.flow")
    parent = told("start", "calling")["id"]
    children = until(lambda: told("show", parent)["children"], "the child")
    assert is_execution(children[0])
    [pending] = told("show", parent)["pending"]
    assert refers(pending, children[0]["id"])

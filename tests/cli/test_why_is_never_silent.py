"""``why`` has an answer for whatever has not ended: also where no worker has the code, and while it is paused."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from dalsegno import App
from dalsegno.core.diagnosis import with_fallback
from dalsegno.model.inspection import Inspection
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.test_tree import execution as an_execution
from tests.server.conftest import LiveServer
from tests.waiting import until

SHOP = """
from dalsegno import App, signal
app = App()


@app.workflow
async def order(x):
    return await signal("approved")
"""
ASKS = 'return await Signal.next("approved")\n'
ASKS_TWICE = 'return await Promise.all([Signal.next("approved"), Signal.next("approved")])\n'
ASKING_GRAPH = """\
name: asking
nodes:
  - {id: gate, type: wait, parameters: {resume: signal, signal: approved}}
"""
WITHOUT_CODE = "no worker that took it has the code of this version; it is tried again"


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """On the store that is the default one here; its worker has no Python workflow."""
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        yield live.url


@pytest.fixture
def three_ways(server: str, invoke: Invoke) -> Callable[[str], list[list[dict[str, Any]]]]:
    """What the command says of the store and of the server, and what HTTP says."""

    def ask(execution: str) -> list[list[dict[str, Any]]]:
        here = json.loads(invoke("why", execution, "--json").stdout)["waits"]
        there = json.loads(invoke("why", execution, "--server", server, "--json").stdout)["waits"]
        return [here, there, httpx.get(f"{server}/v1/executions/{execution}/why").json()["reasons"]]

    return ask


def started(invoke: Invoke, file: str, workflow: str) -> str:
    assert invoke("deploy", file).exit_code == 0
    sys.modules.pop("shop", None)  # a process of its own would not have it
    return invoke("start", workflow).stdout.strip()


def waits_for_a_signal(invoke: Invoke, execution: str) -> bool:
    waits = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    return "signal" in {wait["kind"] for wait in waits}


def test_a_program_that_no_worker_has_the_code_of(
    folder: Path, invoke: Invoke, server: str, three_ways: Any
) -> None:
    write(folder, shop_py=SHOP)
    execution = started(invoke, "shop.py", "order")

    def put_off() -> list[list[dict[str, Any]]] | None:
        told: list[list[dict[str, Any]]] = three_ways(execution)
        said = [[wait["sentence"] for wait in waits] for waits in told]
        return told if said == [[WITHOUT_CODE]] * 3 else None

    here, there, _ = until(put_off, "it is put off, whoever is asked")
    for [wait] in (here, there):
        assert (wait["kind"], wait["due"] is not None) == ("queued", True)
        assert wait["hint"] == "start a worker that has it, with `dalsegno worker --app shop.py`"
    assert until(lambda: WITHOUT_CODE in invoke("why", execution).stdout, "it is said to people")


def test_where_nobody_is_left_that_is_said_as_well(folder: Path, invoke: Invoke) -> None:
    write(folder, shop_py=SHOP)
    execution = started(invoke, "shop.py", "order")
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")):
        until(lambda: WITHOUT_CODE in invoke("why", execution).stdout, "it is put off")
    told = invoke("why", execution).stdout
    assert "no live worker runs on this store" in told
    assert (
        f"continue here with `dalsegno resume {execution} --store sqlite:///dalsegno.db --app shop.py`"
        in told
    )
    assert "or start `dalsegno worker --app shop.py`" in told


@pytest.mark.parametrize(
    ("file", "text"), [("asks.flow", ASKS), ("asking.yaml", ASKING_GRAPH)], ids=["script", "graph"]
)
def test_a_signal_that_came_during_a_pause_is_not_asked_for_again(
    folder: Path, invoke: Invoke, three_ways: Any, file: str, text: str
) -> None:
    (folder / file).write_text(text, encoding="utf-8")
    execution = started(invoke, file, file.partition(".")[0])
    until(lambda: waits_for_a_signal(invoke, execution), "it waits")
    invoke("pause", execution)
    invoke("signal", execution, "approved")

    for waits in three_ways(execution):
        told = json.dumps(waits)
        assert waits[0]["kind"] == "paused"
        assert "has arrived" in told
        assert "resumed" in told
        assert "has not arrived" not in told
        assert "send it with" not in told
        assert "no worker serves" not in told


def test_of_two_awaited_signals_only_one_has_come(
    folder: Path, invoke: Invoke, server: str, three_ways: Any
) -> None:
    write(folder, twice_flow=ASKS_TWICE)
    execution = started(invoke, "twice.flow", "twice")
    until(lambda: waits_for_a_signal(invoke, execution), "it waits")
    invoke("pause", execution)
    invoke("signal", execution, "approved")
    for waits in three_ways(execution)[:2]:
        counts = {wait["kind"]: wait["count"] for wait in waits}
        assert (counts["kept"], counts["signal"]) == (1, 1)


def test_a_schedule_tells_its_next_time(folder: Path, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("deploy", "hello.yaml")
    assert invoke("schedule", "add", "nightly", "-w", "hello", "--cron", "0 3 * * *").exit_code == 0
    [schedule] = json.loads(invoke("ls", "--kind", "schedule", "--json").stdout)["executions"]
    told = invoke("why", schedule["execution_id"])
    assert "the schedule starts its workflow when it is next due: in " in told.stdout, told.output


@pytest.mark.parametrize("kind", ["graph", "python"])
def test_where_no_row_tells_a_reason_that_is_the_answer(kind: Any) -> None:
    view = replace(an_execution("RUNNING"), kind=kind)
    [wait] = with_fallback(Inspection(view, (), ()), [])
    assert wait.kind == "stuck"
    assert wait.sentence
    ended = replace(view, state="COMPLETED")
    assert with_fallback(Inspection(ended, (), ()), []) == []


def test_a_program_whose_process_died_is_not_said_to_run(folder: Path, invoke: Invoke) -> None:
    write(folder, asks_flow=ASKS)
    execution = started(invoke, "asks.flow", "asks")
    asyncio.run(_taken_by_the_dead(f"sqlite:///{folder / 'dalsegno.db'}"))
    [wait] = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    assert wait["kind"] == "lost"
    assert wait["sentence"].startswith("the program was running; its worker elsewhere is dead")


async def _taken_by_the_dead(store: str) -> None:
    app = App(store)
    ledger = app.client.stack.ledger
    await asyncio.to_thread(ledger.heartbeat, "elsewhere", 60.0)
    assert await ledger.claim("elsewhere", ["system"], 1)
    await asyncio.to_thread(ledger.heartbeat, "elsewhere", -1.0)
    await app.aclose()

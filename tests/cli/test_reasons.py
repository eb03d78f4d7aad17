"""``why``: timers one by one, and whether anybody is there to go on."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import ANY

from dalsegno import App
from tests.cli.conftest import Invoke
from tests.cli.documents import CUSTOM_TYPES, HELLO, write
from tests.server.conftest import LiveServer

TIMERS = "const ends = await Promise.all([3, 1, 2, 3].map(h => Timer.delay(`${h}h`)))\nreturn ends.length\n"
MANY_TIMERS = "await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(h => Timer.delay(`${h}h`)))\n"
ONE_OF_TWO = 'const later = Timer.delay("2h")\nawait Timer.delay("1h")\nawait later\n'
SHORT = 'await Timer.delay("400ms")\n'
NAPS = """\
name: naps
nodes:
  - {id: each, type: split, parameters: {input_array: $trigger.hours}}
  - {id: nap, type: wait, parameters: {amount: $item, unit: hours}}
  - {id: all, type: aggregator}
edges:
  - {src: each, dst: nap}
  - {src: nap, dst: all}
"""


JOIN = """\
name: meets
nodes:
  - {id: early, type: log, parameters: {message: here}}
  - {id: late, type: wait, parameters: {amount: 1, unit: hours}}
  - {id: both, type: merge}
edges:
  - {src: early, dst: both}
  - {src: late, dst: both}
"""


def left(invoke: Invoke, file: str, *arguments: str, after: str = "1s") -> str:
    told = json.loads(invoke("run", file, *arguments, "--timeout", after, "--json").stdout)
    assert told["status"] == "RUNNING", told
    return str(told["execution_id"])


def timers(invoke: Invoke, execution: str) -> list[tuple[int, int]]:
    """Hours left and count of each."""
    waits: list[dict[str, Any]] = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    return [(round(wait["seconds_left"] / 3600), wait["count"]) for wait in waits if wait["kind"] == "timer"]


def test_timers_of_a_script_are_told_apart_soonest_first(invoke: Invoke, folder: Path) -> None:
    write(folder, timers_flow=TIMERS)
    execution = left(invoke, "timers.flow")
    assert timers(invoke, execution) == [(1, 1), (2, 1), (3, 2)]
    assert "2 × a timer has not fired yet: in 2:59:" in invoke("why", execution).stdout


def test_timers_that_are_not_awaited_are_no_reason(invoke: Invoke, folder: Path) -> None:
    write(folder, one_flow=ONE_OF_TWO)
    assert timers(invoke, left(invoke, "one.flow")) == [(1, 1)]


def test_many_timers_are_counted_at_the_end(invoke: Invoke, folder: Path) -> None:
    write(folder, many_flow=MANY_TIMERS)
    execution = left(invoke, "many.flow")
    assert timers(invoke, execution) == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (8, 3)]
    assert "3 × further timers, the last of them: in 7:59:" in invoke("why", execution).stdout


def test_items_that_sleep_for_different_times_are_told_apart(invoke: Invoke, folder: Path) -> None:
    write(folder, naps_yaml=NAPS)
    execution = left(invoke, "naps.yaml", "--input", '{"hours": [2, 1, 4, 3, 5, 6, 7]}')
    assert timers(invoke, execution) == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (7, 2)]
    assert "2 × further timers at node 'nap'" in invoke("why", execution).stdout


def test_a_join_names_what_has_not_arrived(invoke: Invoke, folder: Path) -> None:
    write(folder, meets_yaml=JOIN)
    execution = left(invoke, "meets.yaml")
    waits = json.loads(invoke("why", execution, "--json").stdout)["waits"]
    assert [wait["open"] for wait in waits if wait["kind"] == "barrier"] == [["'late'"]]
    assert "node 'both' waits for 1 more of 2 branches: 'late'" in invoke("why", execution).stdout

    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as server:
        assert json.loads(invoke("why", execution, "--server", server.url, "--json").stdout)["waits"] == [
            {**wait, "seconds_left": ANY} for wait in waits
        ]


def test_a_join_is_counted_where_a_node_type_is_missing(invoke: Invoke, folder: Path) -> None:
    own = JOIN.replace(
        "{id: early, type: log, parameters: {message: here}}",
        "{id: early, type: twice, parameters: {number: 4}}",
    )
    write(folder, meets_yaml=own, why_types_py=CUSTOM_TYPES)
    execution = left(invoke, "meets.yaml", "--app", "why_types")
    told = invoke("why", execution)
    assert told.exit_code == 0, told.output
    assert "node 'both' waits for 1 more of 2 branches" in told.stdout
    assert "'late'" not in told.stdout.replace("node 'late'", "")


def test_what_is_ready_says_plainly_that_nobody_runs(invoke: Invoke, folder: Path) -> None:
    write(folder, hello_yaml=HELLO, short_flow=SHORT)
    invoke("deploy", "hello.yaml")
    ready = invoke("start", "hello").stdout.strip()
    due = left(invoke, "short.flow", after="100ms")
    time.sleep(0.5)  # the clock of a store is the machine's
    for execution, said in ((ready, "it is ready to run"), (due, "it is due")):
        told = invoke("why", execution).stdout
        assert f"{said}, but no live worker runs on this store" in told
        assert f"`dalsegno resume {execution} --store" in told
        assert "or start `dalsegno worker`" in told


async def _claimed_by_the_dead(store: str) -> str:
    """Something that a worker of another machine took before it fell silent."""
    app = App(store)
    await app.adeploy("{name: digs, nodes: [{id: it, type: task, queue: moon, parameters: {task: dig}}]}")
    execution = await app.client.start("digs")
    ledger = app.client.stack.ledger
    await asyncio.to_thread(ledger.heartbeat, "elsewhere", 60.0)
    assert await ledger.claim("elsewhere", ["moon"], 1)
    await asyncio.to_thread(ledger.heartbeat, "elsewhere", -1.0)
    await app.aclose()
    return execution


def test_a_worker_that_fell_silent_elsewhere_is_told(invoke: Invoke, folder: Path) -> None:
    store = f"sqlite:///{folder / 'dead.db'}"
    execution = asyncio.run(_claimed_by_the_dead(store))
    [wait] = json.loads(invoke("why", execution, "--store", store, "--json").stdout)["waits"]
    assert wait["kind"] == "lost"
    assert wait["sentence"].startswith("node 'it' was running (attempt 1); its worker elsewhere is dead")
    [task] = json.loads(invoke("task", "ls", execution, "--store", store, "--json").stdout)["tasks"]
    assert task["lost"].startswith("its worker elsewhere is dead")
    for command in (("task", "ls"), ("task", "show", task["id"])):
        listed = invoke(*command, "--store", store).stdout
        assert "task 'dig' at node 'it' of digs: its worker elsewhere is dead; its lease expired at" in listed

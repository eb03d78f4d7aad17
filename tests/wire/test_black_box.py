"""The stack as a master of another program sees it, which knows only WIRE: pika, queues, messages, and keys of Redis.

One program sends all graphs at once, as masters do, and then looks at each. What holds for every execution is asked of
every one: `PikaMaster.problems`.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import redis

from dalsegno import App
from dalsegno.core.wire.execution_message import message_schema
from dalsegno.engine.settings import EngineSettings
from dalsegno.graph.json_schema.shape import check_input
from dalsegno.ports.node import NodeError
from tests.cli.programs import Programs
from tests.effort import first
from tests.scenarios.documents import (
    aggregator,
    conditional,
    echo,
    fail,
    graph,
    merge,
    split,
    switch,
    task,
    wait,
)
from tests.servers.sqlite import empty_sqlite
from tests.wire.master import message
from tests.wire.pika_master import EXECUTION, PikaMaster

TRIGGER = {"type": "ManualTrigger", "trigger": True}
TIMERS = 300


@pytest.fixture(params=first(1, ("postgres", "sqlite")))
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_sqlite(tmp_path / "store.db")
    found: str = request.getfixturevalue("empty_postgres")()
    return found


@pytest.fixture
def app(store_url: str, rabbitmq_url: str, redis_url: str) -> Iterator[App]:
    settings = EngineSettings(heavy_processes=0, grace=1.0)
    app = App(store_url, broker=rabbitmq_url, redis=redis_url, settings=settings)

    @app.task(name="echo")
    async def put_out(value: Any) -> Any:
        return value

    @app.task(name="fail")
    async def break_down(problem: Any) -> None:
        raise NodeError(problem["message"], code=problem["code"])

    @app.task(name="linger")
    async def linger(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    with app.running():
        yield app


@pytest.fixture
def master(app: App, rabbitmq_url: str) -> Iterator[PikaMaster]:
    connected = PikaMaster(rabbitmq_url)
    yield connected
    connected.close()


@pytest.fixture
def keys(redis_url: str) -> Iterator[redis.Redis]:
    with redis.from_url(redis_url) as client:
        yield client


def frames(*of: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [
        {"split_node_id": name, "branch_id": f"{name}-{index}", "item_index": index, "total_items": total}
        for name, index, total in of
    ]


# -- graphs that one message starts -------------------------------------------------------------------------------

NESTED = graph(
    "start > outer > inner > w > g1 > g2",
    {
        "start": TRIGGER,
        "outer": split("$trigger.rows"),
        "inner": split("$item"),
        "w": echo("{{ $item * 10 }}"),
        "g1": aggregator(),
        "g2": aggregator(),
    },
)
CHOICE = graph("start > c > yes, c > no", {"start": TRIGGER, "c": conditional("$trigger.n > 1")}, output=None)
SWITCH = graph(
    "start > s > a, s > b, s > rest",
    {"start": TRIGGER, "s": switch("$trigger.n", 1, 2)},
)
WAITING = graph("start > w > after", {"start": TRIGGER, "w": wait(1)})
SHORT = graph(
    "start > a > m, start > slow > m, m > after",
    {"start": TRIGGER, "slow": task("linger", 40), "m": merge(timeout=2)},
)
LONG = graph("a > m, b > m, m > after", {"m": merge(timeout=300)})
HALTED = graph("start > f > never", {"start": TRIGGER, "f": fail()})
IGNORED = graph("start > f > after", {"start": TRIGGER, "f": fail(error={"type": "ignore"})})
BRANCHED = graph(
    "start > f > never, f !> mended",
    {"start": TRIGGER, "f": fail(error={"type": "branch", "error_edge": "f-mended"})},
)
RETRIED = graph(
    "start > f > never", {"start": TRIGGER, "f": fail(retry={"max_attempts": 2, "initial_delay": 0.05})}
)
TIMED = graph("start > slow > never", {"start": TRIGGER, "slow": task("linger", 30, timeout="300ms")})
FORKED = graph("start > a > m, start > b > m", {"start": TRIGGER, "m": merge()})

STARTED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "linear": (graph("start > a > b", {"start": TRIGGER, "b": echo("{{ $a }}")}), {}, "completed"),
    "yes": (CHOICE, {"n": 2}, "completed"),
    "no": (CHOICE, {"n": 1}, "completed"),
    "second": (SWITCH, {"n": 2}, "completed"),
    "rest": (SWITCH, {"n": 7}, "completed"),
    "nested": (NESTED, {"rows": [[1, 2], [3], []]}, "completed"),
    "waiting": (WAITING, {}, "completed"),
    "short": (SHORT, {}, "halted"),
    "halted": (HALTED, {}, "halted"),
    "ignored": (IGNORED, {}, "completed"),
    "branched": (BRANCHED, {}, "completed"),
    "retried": (RETRIED, {}, "halted"),
    "timed": (TIMED, {}, "halted"),
    "forked": (FORKED, {}, "completed"),
    **{f"one-of-five-{number}": (NESTED, {"rows": [[number], [7]]}, "completed") for number in range(5)},
}


def test_masters_graphs_are_told_as_the_wire_says(master: PikaMaster, app: App, keys: redis.Redis) -> None:
    master.send(message("long", "m", LONG, from_node="a"))  # its 300 s begin before the others' 2 s
    for number in range(3):  # the first messages of each, one after the other, thrice
        for name, (definition, payload, _) in STARTED.items():
            node = "start" if number == 0 else definition["edges"][0]["dst"]
            sent = message(name, node, definition, accumulated_context={"$trigger": payload})
            master.send(sent, message_id=f"{name}-{number}", exchange="workflows" if number else "")
    send_arrivals(master)
    plant(keys)

    done = {name: master.completion(name) for name in (*STARTED, *ARRIVING)}
    master.until("all planted timers", lambda: all(master.completions[name] for name in PLANTED))

    wrong = {name: found for name in (*done, *PLANTED) if (found := master.problems(name))}
    assert wrong == {}
    assert {name: each["status"] for name, each in done.items()} == {
        **{name: status for name, (_, _, status) in STARTED.items()},
        **dict.fromkeys(ARRIVING, "completed"),
    }
    expect_paths(master, done)
    expect_arrivals(master, done)
    expect_announcements(master)
    for name in PLANTED:
        assert master.told(name) == [
            ("pause", "running"),
            ("pause", "success"),
            ("after", "running"),
            ("after", "success"),
        ], name
    assert master.dead == []
    assert app.engine.stack.broker.delivered > 500  # the nodes came as messages
    master.until("no key of theirs in Redis", lambda: is_clean(keys, (*STARTED, *ARRIVING, "planted")))

    assert not master.completions["long"]  # its deadline is far away, and it is still there
    master.send(message("long", "m", LONG, from_node="b"))
    assert master.completion("long")["status"] == "completed"
    assert master.problems("long") == []


def expect_paths(master: PikaMaster, done: dict[str, dict[str, Any]]) -> None:
    run = {name: {node for node, status in master.told(name) if status == "success"} for name in done}
    skipped = {name: {node for node, status in master.told(name) if status == "skipped"} for name in done}
    assert (run["yes"], skipped["yes"]) == ({"c", "yes"}, {"no"})
    assert (run["no"], skipped["no"]) == ({"c", "no"}, {"yes"})
    assert (run["second"], skipped["second"]) == ({"s", "b"}, {"a", "rest"})
    assert (run["rest"], skipped["rest"]) == ({"s", "rest"}, {"a", "b"})
    assert done["nested"]["final_context"]["$g2"] == [[10, 20], [30], []]
    for number in range(5):
        assert done[f"one-of-five-{number}"]["final_context"]["$g2"] == [[number * 10], [70]]
    [pause] = [body for body in master.statuses["waiting"] if body["status"] == "waiting"]
    assert pause["details"]["resume_at"] == pause["metadata"]["resume_at"]
    assert 1000 <= done["waiting"]["total_duration_ms"] < 40_000
    assert 2000 <= done["short"]["total_duration_ms"] < 40_000
    assert done["short"]["error"]["code"] == "MERGE_TIMEOUT"
    assert {name: done[name]["error"]["code"] for name in ("halted", "retried", "timed")} == {
        "halted": "BROKEN",
        "retried": "BROKEN",
        "timed": "TIMEOUT",
    }
    assert [status for node, status in master.told("retried") if node == "f"] == [
        "running",
        "waiting",
        "running",
        "failed",
    ]
    assert "mended" in run["branched"]
    assert "after" in run["ignored"]
    assert ("slow", "cancelled") in master.told("short")


def expect_nodes(master: PikaMaster) -> None:
    """Every message names its node, also one of a token that a timer has woken."""
    for name, (definition, _, _) in STARTED.items():
        nodes = {node["id"] for node in definition["nodes"]}
        named = {body["current_node"] for body in master.announced[name]}
        assert named - {"none"} <= nodes, name  # none: tokens that end the execution
    woken = [body for body in master.announced["waiting"] if body["current_node"] == "w"]
    assert [body["from_node"] for body in woken] == ["start", None]
    assert [body["current_node"] for body in master.announced["retried"]].count("f") == 2


def expect_announcements(master: PikaMaster) -> None:
    """Messages to workers fit the same schema as those of masters, and say what is known of their tokens."""
    schema = message_schema("node-execution")
    for bodies in master.announced.values():
        for body in bodies:
            assert check_input(schema, body) == [], body
    [after] = [body for body in master.announced["linear"] if body["current_node"] == "b"]
    assert (after["from_node"], after["edge_id"], after["attempt"]) == ("a", "a-b", 1)
    assert after["workflow_id"] == "scenario"
    [chosen] = [body for body in master.announced["yes"] if body["current_node"] == "yes"]
    assert (chosen["from_node"], chosen["edge_id"]) == (
        "c",
        "c-yes",
    )  # it brings what the node before c has left
    expect_nodes(master)
    assert after["accumulated_context"] == {"$trigger": {}, "$a": "a"}
    assert after["workflow_definition"]["$ref"].startswith("adopted-")
    told = [
        body["lineage_stack"]
        for body in master.statuses["nested"]
        if (body["node_id"], body["status"]) == ("w", "running")
    ]
    announced = [body["lineage_stack"] for body in master.announced["nested"] if body["current_node"] == "w"]
    assert sorted(announced, key=str) == sorted(told, key=str)


# -- arrivals ------------------------------------------------------------------------------------------------------

MERGED = graph("x > m, y > m, m > z", {"m": merge(), "z": echo("{{ $m }}")})
FIRST = graph("x > m, y > m, m > z", {"m": merge(wait_mode="wait_for_any"), "z": echo("{{ $m }}")})
SCOPED = graph(
    "start > s > w > g > z",
    {
        "start": TRIGGER,
        "s": split("$trigger.items"),
        "w": echo("{{ $item }}"),
        "g": aggregator(),
    },
)
ARRIVING = ("merge-all", "merge-any", "in-scopes", "at-aggregator")


def send_arrivals(master: PikaMaster) -> None:
    """First what one sender sends, and half a second later the rest."""
    halves: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for half, (sender, value) in enumerate((("x", 1), ("y", 2))):
        for name, definition in (("merge-all", MERGED), ("merge-any", FIRST)):
            context = {f"${sender}": value}
            halves[half].append(message(name, "m", definition, from_node=sender, accumulated_context=context))
    for index in (2, 0, 1):
        lineage = frames(("s", index, 3))
        half = int(index != 2)
        for name, node, sender, context in (
            ("in-scopes", "w", "s", {"$item": f"item {index}"}),
            ("at-aggregator", "g", "w", {"$w": f"item {index}"}),
        ):
            given = {"from_node": sender, "lineage_stack": lineage, "accumulated_context": context}
            halves[half].append(message(name, node, SCOPED, **given))
    for sent in halves[0]:
        master.send(sent)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        master.receive()
    for sent in (*halves[1], *halves[0]):  # the first ones again: duplicates
        master.send(sent)


def expect_arrivals(master: PikaMaster, done: dict[str, dict[str, Any]]) -> None:
    context = {name: done[name]["final_context"] for name in ARRIVING}
    assert context["merge-all"]["$m"] == [1, 2]
    assert context["merge-any"]["$m"] == [1]
    assert context["in-scopes"]["$g"] == context["at-aggregator"]["$g"] == [f"item {n}" for n in range(3)]
    assert master.statuses["merge-all"][0]["details"] == {"arrived": 1, "expected": 2}
    told = [status for node, status in master.told("merge-all") if node == "m"]
    assert told == ["waiting", "running", "success"]


# -- planted timers ------------------------------------------------------------------------------------------------

PAUSE = graph("start > pause > after", {"start": TRIGGER, "pause": wait(3600)})
PLANTED = [f"planted-{number}" for number in range(TIMERS)]


def plant(keys: redis.Redis) -> None:
    """Three hundred timers that come due within one second, as RFC 006 has it: the payload first."""
    due = int(time.time() * 1000)
    with keys.pipeline() as pipeline:
        for number, name in enumerate(PLANTED):
            pipeline.hset("scheduler:payloads", name, json.dumps(message(name, "pause", PAUSE)))
            pipeline.zadd("scheduler:timers", {name: due + number * 1000 // TIMERS})
        pipeline.execute()


def is_clean(keys: redis.Redis, executions: Iterable[str]) -> bool:
    """Return True if no key, timer or payload of these executions is there."""
    if keys.exists("scheduler:timers", "scheduler:payloads", "scheduler:processing"):
        return False
    names = [key.decode() for key in keys.scan_iter()]
    return not [key for key in names if any(name in key for name in executions)]


# -- started otherwise ---------------------------------------------------------------------------------------------

ALIKE = ("linear", "yes", "second", "nested", "ignored", "retried", "branched")


def test_graphs_started_by_api_and_by_command_make_the_same_messages(
    master: PikaMaster, app: App, store_url: str, rabbitmq_url: str, tmp_path: Path
) -> None:
    programs = Programs(tmp_path, dict(os.environ), [])
    places = ("--store", store_url, "--broker", rabbitmq_url)
    names: dict[str, tuple[str, str, str]] = {}
    for name in ALIKE:
        definition, payload, _ = STARTED[name]
        deployed = app.deploy(definition | {"name": f"graph-{name}"})
        master.send(message(name, "start", definition, accumulated_context={"$trigger": payload}))
        handle = app.start(deployed.name, payload)
        started = programs.begin("start", deployed.name, "--input", json.dumps(payload), "--json", *places)
        names[name] = (name, handle.id, started.result()["id"])
    for name, executions in names.items():
        first, *others = [told_without_times(master, execution) for execution in executions]
        assert len(first) > 2
        for each in others:
            assert each == first, name
        assert [problem for each in executions for problem in master.problems(each)] == []
        workflows = [master.completions[each][0]["workflow_id"] for each in executions]
        assert workflows == ["wf-1", f"graph-{name}", f"graph-{name}"]


def told_without_times(master: PikaMaster, execution: str) -> list[dict[str, Any]]:
    """Return all messages of an execution without what differs from one to the next: ids and times."""
    done = master.completion(execution)
    own = (
        "workflow_id",
        "execution_id",
        "executed_at",
        "duration_ms",
        "completed_at",
        "total_duration_ms",
        "id",
    )
    told = [
        {key: value for key, value in body.items() if key not in own}
        for body in (*master.statuses[execution], done)
    ]
    for body in told:
        if body.get("details") and "retry_at" in body["details"]:
            body["details"] = {**body["details"], "retry_at": 0}
    return sorted(told, key=json.dumps)  # parallel branches may come in either order


# -- bad input -----------------------------------------------------------------------------------------------------


def bad_messages() -> dict[str, tuple[bytes, str, str]]:
    """Bodies, with the code and a part of the reason of their dead letters."""
    linear = STARTED["linear"][0]
    good = message("bad", "start", linear)
    changed = graph("x > m, y > m, m > other", {"m": merge()})
    lineage = {"from_node": "s", "lineage_stack": frames(("s", 5, 3))}
    found: dict[str, tuple[Any, str, str]] = {
        "no JSON": (b"\xff nonsense", "NOT_JSON", "not JSON"),
        "no object": (b"[1]", "INVALID_MESSAGE", "/"),
        **{
            f"no {field}": ({key: good[key] for key in good if key != field}, "INVALID_MESSAGE", field)
            for field in ("workflow_id", "execution_id", "current_node", "workflow_definition")
        },
        "wrong fields": (good | {"execution_id": "a b"}, "INVALID_MESSAGE", "/execution_id"),
        "unknown node": (good | {"current_node": "nobody"}, "UNKNOWN_NODE", "nobody"),
        "foreign edge": (good | {"current_node": "b", "from_node": "start"}, "NOT_A_PARENT", "/from_node"),
        "wrong lineage": (
            message("bad", "w", SCOPED, **lineage),
            "WRONG_LINEAGE",
            "/lineage_stack/0/item_index",
        ),
        "changed definition": (message("open", "m", changed, from_node="y"), "DEFINITION_DIFFERS", "open"),
        "invalid definition": (
            message("bad", "a", graph("a > b > a, b > nobody", {"b": {"type": "none"}})),
            "INVALID_DEFINITION",
            "/workflow_definition/nodes/1/type",
        ),
        "11 MiB": (b" " * (11 * 1024 * 1024), "TOO_LARGE", "11,534,336 bytes"),
    }
    return {
        name: (body if isinstance(body, bytes) else json.dumps(body).encode(), code, reason)
        for name, (body, code, reason) in found.items()
    }


def test_bad_input_is_dead_byte_for_byte_with_a_reason_and_the_next_message_runs(
    master: PikaMaster, app: App, keys: redis.Redis
) -> None:
    master.send(message("open", "m", MERGED, from_node="x", accumulated_context=None))  # null is {}
    master.until("the open merge", lambda: master.told("open"))
    seconds = []
    for number, (name, (body, code, reason)) in enumerate(bad_messages().items()):
        before = time.monotonic()
        master.send(body, message_id=f"bad-{number}", headers={"mine": "kept"})
        master.send(message(f"good-{number}", "start", STARTED["linear"][0]))
        assert master.completion(f"good-{number}")["status"] == "completed", name
        seconds.append(time.monotonic() - before)
        master.until(f"the dead letter for {name}", lambda: master.dead)
        [letter] = master.dead
        master.dead.clear()
        headers = letter.properties.headers
        assert (letter.raw == body, headers["x-dalsegno-code"]) == (True, code), name
        assert reason in headers["x-dalsegno-reason"], (name, headers)
        assert (letter.properties.message_id, headers["mine"]) == (f"bad-{number}", "kept")
        assert headers["x-dalsegno-at"].startswith("20")
    assert statistics.quantiles(seconds)[0] < 1.0, seconds
    expect_bad_timer(master, app, keys)
    expect_result_for_nothing(master)
    assert {name for name in master.statuses if not name.startswith(("good", "open"))} == set()
    assert (master.told("open"), master.completions["open"]) == ([("m", "waiting")], [])
    for queue in ("", ".retry.5s", ".retry.25s", ".retry.125s"):  # nothing is on its way again
        declared = master.channel.queue_declare(EXECUTION + queue, passive=True)
        assert declared.method.message_count == 0, queue


def expect_bad_timer(master: PikaMaster, app: App, keys: redis.Redis) -> None:
    keys.hset("scheduler:payloads", "broken", b"\xff no JSON")
    keys.zadd("scheduler:timers", {"broken": int(time.time() * 1000)})
    master.until("the broken timer", lambda: keys.xlen("wf:stream:dead"))
    [(_, letter)] = keys.xrange("wf:stream:dead")
    assert (letter[b"body"], letter[b"code"], letter[b"source"]) == (
        b"\xff no JSON",
        b"NOT_JSON",
        b"scheduler:payloads",
    )
    assert letter[b"reason"]
    master.until("nothing of it", lambda: is_clean(keys, ("broken",)))


def expect_result_for_nothing(master: PikaMaster) -> None:
    body = b'{"id": "no.thing", "fence": 1, "success": true}'
    kept = pika.BasicProperties(message_id="result")
    master.channel.basic_publish("workflows", "workflow.results", body, kept, mandatory=True)
    master.until("the result for nothing", lambda: master.dead)
    [letter] = master.dead
    assert (letter.raw, letter.properties.headers["x-dalsegno-code"]) == (body, "UNKNOWN_TASK")

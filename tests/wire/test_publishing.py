"""Statuses and completions leave in the order of the history, once, whatever the broker and the processes do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dalsegno.app import App
from dalsegno.core.wire.statuses import INLINE
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.wire import publishing
from dalsegno.ports.messages import Claims
from dalsegno.ports.node import NodeError
from tests.servers.sqlite import empty_sqlite
from tests.waiting import come_about
from tests.wire.documents import LINEAR, MERGE, SPLIT, edit, graph
from tests.wire.master import Master, RecordingPublisher, message


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    found = await Master.open()
    yield found
    await found.close()


def failing(**settings: Any) -> dict[str, Any]:
    """A node that fails, one beside it, and one behind it."""
    bad = {"id": "bad", "type": "split", "parameters": {"input_array": "{{ $trigger.n }}"}} | settings
    return graph([edit("a"), bad, edit("z")], "a->bad", "bad->z")


async def test_executions_started_otherwise_are_told_the_same(master: Master) -> None:
    await master.send(message("e1", "start", LINEAR))
    await master.completion("e1")
    await master.engine.client.deploy(LINEAR | {"name": "checkout"})
    execution = await master.engine.client.start("checkout", {"n": 1})
    done = await master.completion(execution)

    assert master.told(execution) == master.told("e1")
    assert done["workflow_id"] == "checkout"
    assert done["final_context"] == {"$trigger": {"n": 1}, "$a": {"a": 1}, "$b": {"b": 1}}


async def test_scripts_are_not_told(master: Master) -> None:
    await master.engine.client.deploy_script(_compiled("workflow quiet() { return 1 }"))
    execution = await master.engine.client.start("quiet", {})
    await master.engine.client.wait(execution, 5)
    await master.send(message("e1", "start", LINEAR))
    await master.completion("e1")
    assert master.bodies(execution) == []


def _compiled(source: str) -> Any:
    from dalsegno.lang import compile

    return compile(source, "quiet")


async def test_ids_name_the_event_and_every_field_is_there(master: Master) -> None:
    await master.send(message("e1", "start", LINEAR))
    done = await master.completion("e1")
    running, success = master.statuses("e1")[:2]
    assert [running["id"], success["id"]] == ["e1:2:running", "e1:2:success"]
    assert done["id"] == "e1:4:completed"
    assert running["output"] is None
    assert (running["duration_ms"], running["error"], running["attempt"]) == (0, None, 1)
    assert success["output"] == {"a": 1}
    assert success["node_name"] == "A"
    assert success["executed_at"].endswith("Z")
    assert success["executed_at"] >= running["executed_at"]
    assert done["total_duration_ms"] >= 0


async def test_halt_ends_as_halted(master: Master) -> None:
    await master.send(message("e1", "a", failing()))
    done = await master.completion("e1")
    assert (done["status"], done["error"]["code"]) == ("halted", "NOT_A_LIST")
    assert master.told("e1") == [
        ("a", "running"),
        ("a", "success"),
        ("bad", "running"),
        ("bad", "failed"),
        ("", "halted"),
    ]
    failed = master.statuses("e1")[-1]
    assert (failed["output"], failed["error"]["code"]) == (None, "NOT_A_LIST")
    assert set(failed["error"]) == {"message", "code", "details"}
    assert done["final_context"]["$a"] == {"a": 1}


async def test_an_ignored_failure_is_failed_and_the_rest_goes_on(master: Master) -> None:
    await master.send(message("e1", "a", failing(error={"type": "ignore"})))
    done = await master.completion("e1")
    assert done["status"] == "completed"
    assert master.told("e1")[-3:] == [("z", "running"), ("z", "success"), ("", "completed")] or (
        "bad",
        "failed",
    ) in master.told("e1")


async def test_an_output_that_fails_is_failed(master: Master) -> None:
    await master.send(message("e1", "start", LINEAR | {"output": "$a.nothing.more"}))
    done = await master.completion("e1")
    assert (done["status"], done["error"]["code"]) == ("failed", "OUTPUT_FAILED")


async def test_dead_paths_are_skipped(master: Master) -> None:
    gate = {
        "id": "gate",
        "type": "conditional",
        "parameters": {"expression": "1 == 1", "true_edge_id": "gate->yes", "false_edge_id": "gate->no"},
    }
    await master.send(message("e1", "gate", graph([gate, edit("yes"), edit("no")], "gate->yes", "gate->no")))
    await master.completion("e1")
    assert ("no", "skipped") in master.told("e1")


async def test_attempts_are_waiting_and_then_running_again() -> None:
    app = App("memory:")
    tries: list[int] = []

    @app.task(name="flaky")
    async def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise NodeError("not yet", code="BUSY")
        return "done"

    master = await Master.open(app=app)
    node = {
        "id": "t",
        "type": "task",
        "parameters": {"task": "flaky"},
        "retry": {"max_attempts": 3, "initial_delay": 0.01},
    }
    await master.send(message("e1", "t", graph([node])))
    await master.completion("e1")

    assert [body["status"] for body in master.statuses("e1")] == [
        "running",
        "waiting",
        "running",
        "waiting",
        "running",
        "success",
    ]
    assert [body["attempt"] for body in master.statuses("e1")] == [1, 1, 2, 2, 3, 3]
    details = master.statuses("e1")[1]["details"]
    assert (details["attempt"], details["error"]["code"]) == (1, "BUSY")
    assert details["retry_at"] > 1e12
    await master.close()


async def test_a_long_run_is_told_while_it_runs_and_cancelled_with_its_execution() -> None:
    app = App("memory:")
    hold = asyncio.Event()

    @app.task(name="long")
    async def long() -> None:
        await hold.wait()

    master = await Master.open(app=app)
    node = {"id": "t", "type": "task", "parameters": {"task": "long"}}
    bad = {"id": "bad", "type": "split", "parameters": {"input_array": "{{ $t }}"}}
    await master.send(message("e1", "t", graph([node, bad, edit("z")], "t->bad", "bad->z")))
    await master.until(lambda: master.told("e1") == [("t", "running")])
    await master.engine.client.cancel("e1", "enough")
    done = await master.completion("e1")

    assert master.told("e1") == [("t", "running"), ("t", "cancelled"), ("", "failed")]
    assert master.statuses("e1")[-1]["executed_at"] == done["completed_at"]
    assert "enough" in done["error"]["message"]
    await master.close()


async def test_what_the_broker_does_not_confirm_is_published_again(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "AGAIN_AFTER", 0.05)
    master.publisher.confirms = 1
    await master.send(message("e1", "start", LINEAR))
    await master.completion("e1")
    ids = [sent.message_id for sent in master.publisher.messages]
    assert list(dict.fromkeys(ids)) == [
        "e1:2:running",
        "e1:2:success",
        "e1:3:running",
        "e1:3:success",
        "e1:4:completed",
    ]
    assert len(ids) > 5
    bodies = {(sent.message_id, sent.body) for sent in master.publisher.messages}
    assert len(bodies) == 5


async def test_nothing_is_lost_while_the_broker_is_away(master: Master) -> None:
    master.publisher.is_ready = False
    await master.send(message("e1", "start", LINEAR))
    await master.engine.client.wait("e1", 5)
    assert master.publisher.messages == []
    master.publisher.recover()
    await master.completion("e1")
    assert len(master.publisher.messages) == 5


async def test_another_process_goes_on_from_the_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "CLAIM_SECONDS", 0.2)
    monkeypatch.setattr(publishing, "SCAN_EVERY", 0.1)
    url = empty_sqlite(tmp_path / "store.db")
    first = await Master.open(url, EngineSettings(grace=0.0, heavy_processes=0))
    await first.send(message("e1", "m", MERGE, from_node="x"))
    await first.until(lambda: first.told("e1") == [("m", "waiting")])
    first.publisher.is_ready = False  # as if it were dead
    await first.send(message("e1", "m", MERGE, from_node="y"))
    await first.engine.client.wait("e1", 5)

    second = await Master.open(url, EngineSettings(heavy_processes=0))
    await second.completion("e1")
    assert second.told("e1") == [
        ("m", "running"),
        ("m", "success"),
        ("z", "running"),
        ("z", "success"),
        ("", "completed"),
    ]
    await first.close()
    await second.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_order_and_number_hold_for_several_processes(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    is_sqlite = store == "sqlite"
    url = empty_sqlite(tmp_path / "store.db") if is_sqlite else request.getfixturevalue("empty_postgres")()
    broker = RecordingPublisher()
    masters = [await Master.open(url, publisher=broker) for _ in range(3)]
    items = {"$trigger": {"items": list(range(12))}}
    names = [f"e{number}" for number in range(12)]
    for number, name in enumerate(names):
        await masters[number % 3].send(message(name, "start", SPLIT, accumulated_context=items))
    for name in names:
        done = await masters[0].completion(name)
        assert len(done["final_context"]["$g"]) == 12
        ids = [sent.message_id for sent in broker.messages if sent.message_id.startswith(f"{name}:")]
        assert len(ids) == len(set(ids)), "something was published twice"
        numbers = [int(sent.split(":")[1]) for sent in ids]
        assert numbers == sorted(numbers)
    for each in masters:
        await each.close()


async def test_large_values_are_references(master: Master) -> None:
    await master.send(message("e1", "a", graph([edit("a", "{{ 'x'.repeat(1100000) }}")])))
    done = await master.completion("e1")
    success = master.statuses("e1")[-1]
    assert set(success["output"]) == set(done["final_context"]["$a"]) == {"$ref", "url"}
    assert success["output"]["url"] == "/v1/executions/e1/results"
    assert all(len(sent.body) < INLINE for sent in master.publisher.messages)


async def test_order_and_number_hold_for_many_at_once(master: Master) -> None:
    names = [f"e{number}" for number in range(40)]
    await asyncio.gather(*(master.send(message(name, "start", LINEAR)) for name in names))
    for name in names:
        await master.completion(name)
        assert len(master.told(name)) == 5
    assert len(master.publisher.messages) == 200


async def test_trace_context_is_continued(master: Master) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await master.send(message("e1", "start", LINEAR), headers={"traceparent": parent})
    await master.completion("e1")
    view = await master.engine.client.outline("e1")
    assert ("traceparent", parent) in view.tags
    assert ("workflow_id", "wf-1") in view.tags
    assert all(sent.traceparent.startswith("00-") for sent in master.publisher.messages)
    assert json.loads(master.publisher.messages[0].body)["execution_id"] == "e1"


async def test_a_process_that_works_alone_publishes_a_commit_before_its_successors_are_announced(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[tuple[str, str]]] = []
    nodes = [edit(f"n{number}") for number in range(30)]
    edges = [f"n{number}->n{number + 1}" for number in range(29)]
    announce = master.engine.stack.broker.announce
    worker = master.engine.worker
    assert worker is not None
    monkeypatch.setattr(worker, "_continues", False)  # each token is announced

    async def announced(tokens: Any) -> None:
        told.append(master.told("e1"))
        await asyncio.sleep(0.01)
        await announce(tokens)

    monkeypatch.setattr(master.engine.committer.broker, "announce", announced)
    await master.send(message("e1", "n0", graph(nodes, *edges)))
    await master.completion("e1")
    assert ("n20", "success") in told[21]
    assert len(master.publisher.messages) == 61


async def test_what_a_process_that_works_alone_starts_is_claimed_with_its_start(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing_of = master.engine.publishing
    assert publishing_of is not None
    await come_about(lambda: publishing_of._may_keep, "it works alone")
    claimed: list[str] = []
    claim = publishing_of.publications.claim

    async def note(owner: str, executions: Sequence[str], seconds: float) -> Claims:
        claimed.extend(executions)
        return await claim(owner, executions, seconds)

    monkeypatch.setattr(publishing_of.publications, "claim", note)
    await master.engine.client.deploy(LINEAR | {"name": "checkout"})
    names = [await master.engine.client.start("checkout", {"n": 1}) for _ in range(3)]
    await master.send(message("adopted", "start", LINEAR))
    for name in (*names, "adopted"):
        done = await master.completion(name)
        assert [body["workflow_id"] for body in (*master.statuses(name), done)] == [done["workflow_id"]] * 5
        assert [node for node, _ in master.told(name)] == ["a", "a", "b", "b", ""]
    assert claimed == []
    marks = publishing_of.publications

    async def are_gone() -> bool:
        return (await marks.claim("another", [*names, "adopted"], 1)).held == set()

    await come_about(are_gone, "the marks are removed")


async def test_what_others_change_is_found_while_an_execution_is_kept(tmp_path: Path) -> None:
    """A process that publishes at once what it commits hears of no other commit."""
    url = empty_sqlite(tmp_path / "store.db")
    worker = await Master.open(url)
    await worker.send(message("e1", "m", MERGE, from_node="x"))
    await worker.until(lambda: worker.told("e1") == [("m", "waiting")])
    publishing_of = worker.engine.publishing
    assert publishing_of is not None
    await come_about(lambda: "e1" in publishing_of._kept, "the execution is kept")
    other = await Master.open(url, publisher=worker.publisher)
    began = asyncio.get_running_loop().time()
    await other.engine.client.cancel("e1", "enough")
    await worker.completion("e1")
    assert asyncio.get_running_loop().time() - began < 20
    await other.close()
    await worker.close()

"""Messages of other programs start executions and arrive in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.ports.archive import ExecutionFilter
from tests.servers.sqlite import empty_sqlite
from tests.wire.documents import ANY, JOIN, LINEAR, MERGE, SPLIT, WAIT, edit, graph
from tests.wire.master import Master, message


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def master(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Master]:
    match request.param:
        case "memory":
            url = "memory:"
        case "sqlite":
            url = empty_sqlite(tmp_path / "store.db")
        case _:
            url = request.getfixturevalue("empty_postgres")()
    found = await Master.open(url)
    yield found
    await found.close()


async def test_a_message_at_a_trigger_starts_its_successors(master: Master) -> None:
    taken = await master.send(message("e1", "start", LINEAR))
    assert (taken.outcome, taken.execution) == ("applied", "e1")

    done = await master.completion("e1")

    assert master.told("e1") == [
        ("a", "running"),
        ("a", "success"),
        ("b", "running"),
        ("b", "success"),
        ("", "completed"),
    ]
    assert done["workflow_id"] == "wf-1"
    assert done["final_context"] == {"$trigger": {"n": 1}, "$a": {"a": 1}, "$b": {"b": 1}}
    assert done["error"] is None


async def test_further_messages_for_the_trigger_are_duplicates(master: Master) -> None:
    first = message("e1", "start", LINEAR)
    outcomes = await asyncio.gather(
        master.send(first), master.send(first), master.send(message("e1", "a", LINEAR), identity="other")
    )
    await master.completion("e1")

    assert sorted(taken.outcome for taken in outcomes) == ["applied", "duplicate", "duplicate"]
    assert (await master.send(first)).outcome == "duplicate"
    assert len(master.statuses("e1")) == 4


async def test_an_execution_that_begins_with_an_arrival_starts_nothing_else(master: Master) -> None:
    context = {"$trigger": {"n": 5}, "$a": {"a": 7}, "seen": True}
    taken = await master.send(message("e1", "b", LINEAR, from_node="a", accumulated_context=context))
    done = await master.completion("e1")

    assert taken.outcome == "applied"
    assert master.told("e1") == [("b", "running"), ("b", "success"), ("", "completed")]
    assert done["final_context"] == {**context, "$b": {"b": 7}}


async def test_null_context_is_empty(master: Master) -> None:
    await master.send(message("e1", "b", LINEAR, from_node="a", accumulated_context=None))
    done = await master.completion("e1")
    assert done["final_context"]["$trigger"] == {}


async def test_arrivals_fill_the_slots_of_a_merge(master: Master) -> None:
    first = message("e1", "m", MERGE, from_node="x", accumulated_context={"$x": {"v": 1}})
    assert (await master.send(first)).outcome == "applied"
    again = message("e1", "m", MERGE, from_node="x", accumulated_context={"$x": {"v": 2}})
    assert (await master.send(again)).outcome == "applied"  # into a slot that is taken
    await master.until(lambda: ("m", "waiting") in master.told("e1"))

    await master.send(message("e1", "m", MERGE, from_node="y", accumulated_context={"$y": {"v": 3}}))
    done = await master.completion("e1")

    assert master.statuses("e1")[0]["details"] == {"arrived": 1, "expected": 2}
    assert done["final_context"]["$m"] == [{"v": 1}, {"v": 3}]
    assert [status for node, status in master.told("e1") if node == "m"] == ["waiting", "running", "success"]


async def test_the_first_arrival_at_an_any_merge_wins(master: Master) -> None:
    await master.send(message("e1", "m", ANY, from_node="y", accumulated_context={"$y": 3}))
    done = await master.completion("e1")
    assert done["final_context"]["$m"] == [3]
    late = await master.send(message("e1", "m", ANY, from_node="x", accumulated_context={"$x": 3}))
    assert late.outcome == "duplicate"


async def test_an_arrival_gives_an_implicit_join_a_deadline(master: Master) -> None:
    await master.send(message("e1", "z", JOIN, from_node="x"))
    inspection = await master.engine.stack.ledger.inspect("e1")
    assert inspection is not None
    [barrier] = inspection.barriers
    assert barrier.deadline is not None
    assert barrier.deadline - inspection.execution.created_at == pytest.approx(300, abs=1)

    await master.send(message("e1", "z", JOIN, from_node="y"))
    await master.completion("e1")


def in_item(index: int, total: int = 2, split: str = "s") -> list[dict[str, Any]]:
    return [{"split_node_id": split, "branch_id": "x", "item_index": index, "total_items": total}]


async def test_a_scope_is_opened_from_the_stack(master: Master) -> None:
    for index in (1, 0):
        context = {"$item": f"item {index}", "$trigger": {}}
        sent = message(
            "e1", "w", SPLIT, from_node="s", lineage_stack=in_item(index), accumulated_context=context
        )
        assert (await master.send(sent)).outcome == "applied"
    done = await master.completion("e1")

    assert done["final_context"]["$g"] == [{"w": "item 0"}, {"w": "item 1"}]
    assert done["final_context"]["$s"] == {"total": 2, "failed": 0}
    assert master.statuses("e1")[0] | {"executed_at": ""} == {
        "workflow_id": "wf-1",
        "execution_id": "e1",
        "node_id": "g",
        "node_name": "g",
        "status": "waiting",
        "output": None,
        "error": None,
        "executed_at": "",
        "duration_ms": 0,
        "from_node": "w",
        "details": {"processed": 0, "total": 2},
        "id": "e1:2:waiting",
    }
    items = [body for body in master.statuses("e1") if body["node_id"] == "w" and body["status"] == "success"]
    assert {body["lineage_stack"][0]["item_index"] for body in items} == {0, 1}
    assert items[0]["lineage_stack"][0]["split_node_id"] == "s"
    assert items[0]["lineage_stack"][0]["total_items"] == 2


async def test_an_arrival_at_an_aggregator_ends_its_item(master: Master) -> None:
    for index in range(3):
        context = {"$w": {"n": index}}
        sent = message(
            "e1", "g", SPLIT, from_node="w", lineage_stack=in_item(index, 3), accumulated_context=context
        )
        assert (await master.send(sent)).outcome == "applied"
        assert (await master.send(sent)).outcome == "duplicate"
    done = await master.completion("e1")
    assert done["final_context"]["$g"] == [{"n": 0}, {"n": 1}, {"n": 2}]
    late = message("e1", "g", SPLIT, from_node="w", lineage_stack=in_item(0, 3))
    assert (await master.send(late)).outcome == "duplicate"


async def test_statuses_of_a_split_of_our_own(master: Master) -> None:
    await master.send(message("e1", "start", SPLIT, accumulated_context={"$trigger": {"items": ["p", "q"]}}))
    done = await master.completion("e1")

    assert done["final_context"]["$g"] == [{"w": "p"}, {"w": "q"}]
    frames = [body["lineage_stack"][0] for body in master.statuses("e1") if body["node_id"] == "w"]
    assert {(frame["split_node_id"], frame["item_index"], frame["total_items"]) for frame in frames} == {
        ("s", 0, 2),
        ("s", 1, 2),
    }
    waiting = [body["details"] for body in master.statuses("e1") if body["status"] == "waiting"]
    assert waiting == [{"processed": 1, "total": 2}]


async def test_a_planted_timer_counts_as_the_run_of_its_wait_node(master: Master) -> None:
    sent = message("e1", "pause", WAIT)
    assert (await master.send(sent, timer=True, identity="t1")).outcome == "applied"
    assert (await master.send(sent, timer=True, identity="t1")).outcome == "duplicate"
    await master.completion("e1")
    assert master.told("e1") == [
        ("pause", "running"),
        ("pause", "success"),
        ("z", "running"),
        ("z", "success"),
        ("", "completed"),
    ]


async def test_a_planted_timer_runs_another_node_itself(master: Master) -> None:
    await master.send(message("e1", "z", WAIT), timer=True, identity="t1")
    await master.completion("e1")
    assert master.told("e1")[:2] == [("z", "running"), ("z", "success")]


async def test_a_wait_says_when_it_resumes(master: Master) -> None:
    await master.send(message("e1", "start", WAIT))
    await master.until(lambda: master.told("e1") == [("pause", "waiting")])
    [waiting] = master.statuses("e1")
    assert waiting["details"] == waiting["metadata"]
    assert waiting["details"]["resume_at"] > 1e12
    await master.engine.client.cancel("e1")
    done = await master.completion("e1")
    assert (done["status"], done["error"]["code"]) == ("failed", "CANCELLED")
    assert master.told("e1") == [("pause", "waiting"), ("pause", "cancelled"), ("", "failed")]
    cancelled = master.statuses("e1")[-1]
    assert cancelled["executed_at"] <= done["completed_at"]


async def test_a_limit_of_the_workflow_holds_for_messages(master: Master) -> None:
    limited = WAIT | {"concurrency": {"key": "one", "limit": 1}}
    for name in ("e1", "e2"):
        assert (await master.send(message(name, "start", limited))).outcome == "applied"
        assert (await master.send(message(name, "pause", limited))).outcome == "duplicate"
    await master.until(lambda: ("pause", "waiting") in master.told("e1"))
    assert (await master.engine.client.outline("e2")).state == "PENDING"
    await master.engine.client.cancel("e1")
    await master.until(lambda: ("pause", "waiting") in master.told("e2"))
    assert {body["workflow_id"] for body in master.bodies("e2")} == {"wf-1"}
    await master.engine.client.cancel("e2")
    await master.completion("e2")


async def test_keys_of_the_context_are_roots(master: Master) -> None:
    """Those of values that no node here makes, and those of nodes that do not run before."""
    definition = graph(
        [edit("a", "{{ $earlier.total }}"), edit("b", "{{ $a.a + $z.n }}"), edit("z")], "a->b", "b->z"
    )
    context = {"$trigger": {}, "$earlier": {"total": 5}, "$z": {"n": 2}}
    taken = await master.send(message("e1", "a", definition, accumulated_context=context))
    assert taken.outcome == "applied", taken
    done = await master.completion("e1")
    assert done["final_context"] == context | {"$a": {"a": 5}, "$b": {"b": 7}, "$z": {"z": 1}}

    view = await master.engine.client.outline("e1")
    again = await master.engine.definitions.by_hash(view.definition)
    stored = await master.engine.stack.archive.definition_by_hash(view.definition)
    assert stored is not None
    assert master.engine.definitions.add(stored).plan.entries == again.plan.entries
    foreign = LINEAR | {"context_keys": 5}
    await master.send(message("e3", "b", foreign, from_node="a", accumulated_context={"$a": {"a": 1}}))
    await master.completion("e3")
    plain = (await master.engine.client.outline("e3")).definition
    assert len(plain) == len("adopted-") + 64
    refused = await master.send(message("e2", "a", definition))
    assert (refused.outcome, refused.code) == ("refused", "INVALID_DEFINITION")


async def test_scripts_inside_adopted_definitions_run(master: Master) -> None:
    script = {
        "id": "s",
        "type": "script",
        "parameters": {"source": "workflow s(inputs) { return inputs.n + 1 }", "input": {"n": 41}},
    }
    definition = graph([script]) | {"name": "checkout"}
    await master.send(message("e1", "s", definition))
    done = await master.completion("e1")
    assert done["final_context"]["$s"] == 42
    [child] = await master.engine.client.executions(ExecutionFilter(parent="e1"))
    assert (child.workflow, child.definition.startswith("adopted-")) == ("@checkout/s", True)
    assert master.bodies(child.id) == []

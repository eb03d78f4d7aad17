"""Random messages and results, right and wrong: each is taken in or refused with a reason, and the next one runs."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from dalsegno.core.wire.execution_message import message_schema
from dalsegno.engine.remote.foreign_results import ForeignResults
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.settings import EngineSettings
from dalsegno.ports.stack import Stack
from dalsegno.ports.task_transport import ForeignResult
from tests.adapters.broker_app import GRAPH, BrokerApp, ended
from tests.effort import first
from tests.wire.documents import ANY, JOIN, LINEAR, MERGE, SPLIT, WAIT
from tests.wire.master import Master, message
from tests.wire.schema_values import changed, value_of

DOCUMENTS = (ANY, JOIN, LINEAR, MERGE, SPLIT, WAIT)
NODES = ("start", "a", "b", "x", "y", "m", "z", "s", "w", "g", "pause", "", "nobody", "$", "ä")
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**70, 1.5, 1e300, "", "x", "\u0000", "😀", [], {}, [[]], {"$ref": "x"}, "a" * 300,
)  # fmt: skip


def random_frame(chance: random.Random) -> Any:
    frame: dict[str, Any] = {
        "split_node_id": chance.choice(NODES),
        "branch_id": chance.choice(VALUES),
        "item_index": chance.choice((0, 1, 5, -1, "0", None)),
        "total_items": chance.choice((1, 2, 6, 0, 10**9, None)),
    }
    return chance.choice((frame, {"split_node_id": "s", "item_index": 0, "total_items": 2}))


def random_message(chance: random.Random, execution: str) -> bytes:
    """A message that is right in most parts, and wrong in some."""
    sent = message(execution, chance.choice(NODES), chance.choice(DOCUMENTS))
    if chance.random() < 0.5:
        sent["from_node"] = chance.choice((*NODES, None))
    if chance.random() < 0.3:
        sent["edge_id"] = chance.choice(("x->m", "a->b", "w->g", None))
    if chance.random() < 0.5:
        sent["lineage_stack"] = [random_frame(chance) for _ in range(chance.randint(0, 2))]
    if chance.random() < 0.4:
        keys = ("$trigger", "$a", "$x", "$item", "$json", "", "plain", "$s", "\u0000")
        sent["accumulated_context"] = {chance.choice(keys): chance.choice(VALUES) for _ in range(3)}
    for _ in range(chance.choice((0, 0, 0, 1, 2))):
        field = chance.choice((*sent, "token_id", "attempt", "unknown"))
        if chance.random() < 0.3:
            sent.pop(field, None)
        else:
            sent[field] = chance.choice(VALUES)
    raw = json.dumps(sent).encode()
    if chance.random() < 0.05:
        place = chance.randrange(len(raw))
        raw = raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :]
    return raw


KNOWN: dict[str, list[Any]] = {
    "current_node": list(NODES),
    "from_node": list(NODES),
    "execution_id": [f"e{number}" for number in range(20)],
    "workflow_definition": list(DOCUMENTS),
    "split_node_id": ["s"],
    "token_id": [None],
}


def message_of_schema(chance: random.Random) -> bytes:
    sent = value_of(message_schema("node-execution"), chance, KNOWN)
    return as_json(changed(sent, chance) if chance.random() < 0.5 else sent)


def as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("seed", first(2, range(60)))
async def test_random_results_are_taken_or_dead_letters(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    app = BrokerApp("memory:", no_broker)
    async with app.running(worker=False):
        await app.adeploy(GRAPH)
        orchestrator = Orchestrator(app.engine)
        results = foreign_results(app, orchestrator)
        names, tasks = [await app.begin(f"{number}.png") for number in range(10)], []
        while len(tasks) < len(names):
            tasks += await orchestrator.claim("w1", ("images",), 10, 5.0)
        known = {
            "id": [task.id for task in tasks],
            "fence": [1],
            "workflow_execution_id": names,
            "node_id": ["resize"],
        }
        verdicts = set()
        for _ in range(200):
            sent = value_of(message_schema("result"), chance, known)
            body = as_json(changed(sent, chance) if chance.random() < 0.5 else sent)
            settlement = await results.settle(ForeignResult(body, "results"))
            assert bool(settlement.reason) == bool(settlement.code) == (settlement.verdict == "unknown"), body
            assert settlement.code != "INTERNAL", (body, settlement)
            verdicts.add(settlement.verdict)
        assert verdicts == {"taken", "late", "unknown"}
        for task in tasks:
            await results.settle(
                ForeignResult(as_json({"id": task.id, "fence": 1, "success": True}), "results")
            )
        for name in names:
            assert await ended(app, name) in ("COMPLETED", "FAILED")
    complaints = [found.message for found in caplog.records if found.levelname in ("ERROR", "CRITICAL")]
    assert complaints == []


async def no_broker(stack: Stack) -> Stack:
    return stack


def foreign_results(app: BrokerApp, orchestrator: Orchestrator) -> ForeignResults:
    stack, answers = app.engine.stack, orchestrator._answers
    leases = orchestrator._claims.remote_leases
    return ForeignResults(stack.ledger, stack.archive, answers, leases, lambda _: None, lambda _: None)


@pytest.mark.parametrize("seed", first(2, range(60)))
async def test_random_messages_are_taken_or_refused(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    master = await Master.open(settings=EngineSettings(heavy_processes=0, grace=0.2))
    names = [f"e{number}" for number in range(20)]
    outcomes = set()
    for _ in range(150):
        of_schema = chance.random() < 0.5
        body = message_of_schema(chance) if of_schema else random_message(chance, chance.choice(names))
        taken = await master.send(body, timer=chance.random() < 0.2)
        assert bool(taken.reason) == bool(taken.code) == (taken.outcome == "refused"), (body, taken)
        assert "Traceback" not in taken.reason
        outcomes.add(taken.outcome)
    assert outcomes >= {"applied", "refused"}

    async with asyncio.timeout(60):
        await master.send(message("after", "start", LINEAR))
        await master.completion("after")
    for name in names:
        master.expect_schemas(name)
        completions = [body for body in master.bodies(name) if "final_context" in body]
        assert len(completions) <= 1
        assert not completions or master.bodies(name)[-1] == completions[0]
    await master.close()
    complaints = [found.message for found in caplog.records if found.levelname in ("ERROR", "CRITICAL")]
    assert complaints == []

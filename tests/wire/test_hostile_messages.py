"""What anybody who may write to the queue can send: nothing holds up the event loop, and all is taken in or refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.loop_gaps import LoopGaps
from tests.wire.documents import LINEAR, TRIGGER, graph
from tests.wire.master import Master, message

LONGEST_GAP = 0.4
"""Seconds of processor time, of which a quiet machine takes 0.05; other tests share this one."""


@pytest.fixture
async def master() -> AsyncIterator[Master]:
    found = await Master.open()
    yield found
    await found.close()


def keys(count: int) -> dict[str, Any]:
    return {"$trigger": {"n": 1}, **{f"k{number}": 1 for number in range(count)}}


def script(lines: int) -> dict[str, Any]:
    text = "".join(f"  let a{n} = [{n}, {{x: {n} + inputs.n}}, `t${{inputs.q}}`]\n" for n in range(lines))
    source = f"workflow s(inputs) {{\n{text}  return 1\n}}\n"
    return graph([TRIGGER, {"id": "s", "type": "script", "parameters": {"source": source}}], "start->s")


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "many keys in a small message": (message("e1", "b", LINEAR, from_node="a"), "applied"),
    "more keys than are taken": (message("e1", "a", LINEAR, accumulated_context=keys(60_000)), "refused"),
    "a large value of small parts": (
        message("e1", "a", LINEAR, accumulated_context={"$trigger": {}, "x": [[]] * 200_000}),
        "applied",
    ),
    "a script that compiles slowly": (message("e1", "start", script(120)), "applied"),
}
CASES["many keys in a small message"][0]["accumulated_context"] = keys(6_000) | {"$a": {"a": 1}}


@pytest.mark.parametrize("name", CASES)
async def test_no_message_holds_up_the_event_loop(master: Master, name: str) -> None:
    sent, outcome = CASES[name]
    body = json.dumps(sent, separators=(",", ":")).encode()
    async with LoopGaps() as gaps:
        taken = await master.send(body)
        if outcome == "applied":
            await master.until(lambda: any("final_context" in told for told in master.bodies("e1")))
    assert taken.outcome == outcome, taken
    assert gaps.longest < LONGEST_GAP


async def test_all_keys_of_a_large_context_are_told_at_the_end(master: Master) -> None:
    context = keys(5_000) | {"$a": {"a": 7}, "long": "x" * 300_000}
    await master.send(message("e1", "b", LINEAR, from_node="a", accumulated_context=context))
    done = await master.completion("e1")
    told = done["final_context"]
    assert told["$b"] == {"b": 7}
    assert {key for key in context if key not in told} == set()


async def test_identity_that_no_store_can_hold_is_hashed(master: Master) -> None:
    sent = message("e1", "b", LINEAR, from_node="a", accumulated_context={"$a": {"a": 1}})
    for identity in ("x" * 100_000, "with\0nul"):
        assert (await master.send(sent, identity=identity)).outcome in ("applied", "duplicate")
    assert (await master.send(sent, identity="x" * 100_000)).outcome == "duplicate"
    stack = master.engine.stack
    assert "x" * 1_000 not in repr(await stack.ledger.inspect("e1"))

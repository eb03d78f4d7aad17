"""Who goes first where one execution or workflow has very much to do."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from dalsegno.adapters import excluding_claims
from dalsegno.adapters.excluding_claims import ExcludingClaims
from dalsegno.engine.batches import BYTES_PER_WEIGHT, SMALL_BATCH, Entry, Gathering, bytes_of, weight_of
from dalsegno.engine.worker.slot_shares import CROWDING_SECONDS, HeldSlot, SlotShares
from dalsegno.engine.worker.tokens import MAX_HOPS, Continuation
from dalsegno.model.effect import (
    BeginExecution,
    DeliverToToken,
    EndIfLast,
    EndScope,
    FinishExecution,
    LeaveContext,
    PostSignal,
    SettlePromise,
    SpawnToken,
    StoreOutput,
    WriteOutbox,
)
from dalsegno.model.machine import Completion
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition
from dalsegno.testing.contract.builders import event, token


def lease(workflow: str) -> Lease:
    return Lease(workflow, workflow, 1, "", "node", workflow, b"", "default", 0, 1, 0, "", 0.0, "", 0)


def shares(**held: int) -> SlotShares:
    found = SlotShares(100, 0.8, cast(Any, None))
    for workflow, count in held.items():
        for _ in range(count):
            found.take(lease(workflow))
    return found


@pytest.mark.parametrize(
    ("held", "crowding"),
    [
        ({}, []),
        ({"a": 40}, []),
        ({"a": 60}, []),
        ({"a": 80}, ["a"]),
        ({"a": 45, "b": 45}, ["a", "b"]),
        ({"a": 60, "b": 3}, ["a"]),
        ({"a": 20, "b": 20, "c": 20, "d": 20, "e": 4}, ["a", "b", "c", "d"]),
        ({f"w{number}": 3 for number in range(30)}, []),
    ],
)
def test_workflows_with_more_than_an_equal_part_of_busy_slots_let_others_go_first(
    held: dict[str, int], crowding: list[str]
) -> None:
    assert shares(**held).crowding(0.0) == crowding


def test_a_workflow_stays_among_them_for_a_while() -> None:
    found = shares(a=79)
    slot = found.take(lease("a"))
    assert found.crowding(0.0) == ["a"]
    found.free(slot)
    assert found.crowding(CROWDING_SECONDS / 2) == ["a"]
    assert found.crowding(CROWDING_SECONDS + 0.1) == []


async def gathered(*executions: str, largest: int) -> Gathering:
    """``workflow/execution``, or an execution alone."""
    gathering = Gathering(largest, 1)
    for each in executions:
        workflow, _, execution = each.rpartition("/")
        future = asyncio.get_running_loop().create_future()
        gathering.add((Transition(execution, ()), future, True, None, workflow, 1))
    return gathering


OUTPUT = b"x" * 1024 * 1024


def add(gathering: Gathering, execution: str, effects: tuple[Any, ...]) -> None:
    transition, future = Transition(execution, effects), asyncio.get_running_loop().create_future()
    gathering.add((transition, future, True, None, execution, weight_of(effects, bytes_of(effects))))


def batches_of(gathering: Gathering) -> list[list[str]]:
    sent = []
    while batch := gathering.take():
        sent.append(names(batch))
        gathering.finished(batch)
    return sent


def names(batch: list[Entry]) -> list[str]:
    return [entry[0].execution for entry in batch]


async def test_an_execution_with_many_transitions_does_not_hold_up_others() -> None:
    gathering = await gathered("old", *["many"] * 80, "one", "two", "two", largest=25)
    batch = gathering.take()
    assert names(batch)[0] == "old"
    assert {"one", "two"} <= set(names(batch))
    assert len(batch) <= 25


async def test_what_has_waited_longest_goes_however_many_others_come() -> None:
    gathering = await gathered(*["many"] * 80, *[f"e{number}" for number in range(100)], largest=25)
    batch = names(gathering.take())
    assert batch.count("many") == 12
    assert len(batch) == 25


async def test_workflows_take_turns_where_many_wait() -> None:
    crowd = [f"crowd/{number}" for number in range(200)]
    gathering = await gathered(*crowd, "few/a", "few/b", "single/c", largest=25)
    batch = names(gathering.take())
    assert batch[:3] == ["0", "a", "c"]
    assert "b" in batch
    assert len(batch) == 25


async def test_the_first_of_every_workflow_fits_however_many_transitions_it_has() -> None:
    gathering = await gathered(*["a/x"] * 50, *["b/y"] * 50, *["c/z"] * 50, "d/w", largest=24)
    batch = names(gathering.take())
    assert {name: batch.count(name) for name in "xyzw"} == {"x": 6, "y": 6, "z": 6, "w": 1}


def test_a_workflow_with_few_slots_goes_on_beside_a_crowd() -> None:
    found = shares(crowd=70)
    few = found.take(lease("few"))
    continuation = Continuation(["default"])
    continuation.announced([ReadyToken("t", "e", "default", 0)])

    def may_continue(slot: HeldSlot | None, hops: int = 2, priority: int = 0) -> bool:
        return continuation.may_continue(hops, 10.0, priority, partial(found.holds_few, slot))

    assert may_continue(few)
    assert not may_continue(found.take(lease("crowd")))
    assert not may_continue(few, hops=MAX_HOPS), "others come after some steps"
    assert not may_continue(few, priority=-1), "a token of higher priority comes at once"


async def test_transitions_with_very_many_effects_do_not_go_together() -> None:
    gathering = Gathering(25, 1)
    large = (EndScope("s", b""),) * 400
    for name, effects in (("a", large), ("b", large), ("c", ())):
        add(gathering, name, effects)
    assert batches_of(gathering) == [["a"], ["c"], ["b"]]


async def test_small_transitions_wait_for_no_large_one_in_their_batch() -> None:
    gathering = Gathering(500, 1)
    many_bytes = (EndScope("s", b"x" * (SMALL_BATCH << BYTES_PER_WEIGHT)),)
    for name, effects in (("x", ()), ("a", many_bytes), ("y", ()), ("b", many_bytes), ("z", ())):
        add(gathering, name, effects)
    assert batches_of(gathering) == [["a"], ["x", "y", "z"], ["b"]]


async def test_large_transitions_and_small_ones_take_turns() -> None:
    gathering = Gathering(500, 1)
    many_bytes = (EndScope("s", b"x" * (SMALL_BATCH << BYTES_PER_WEIGHT)),)
    for number in range(3):
        add(gathering, f"large-{number}", many_bytes)
    sent = []
    for number in range(4):
        add(gathering, f"small-{number}", ())
        batch = gathering.take()
        sent.append(names(batch))
        gathering.finished(batch)
    assert sent == [["large-0"], ["small-0", "small-1"], ["large-1"], ["small-2", "small-3"]]


async def test_what_follows_a_large_transition_of_the_same_execution_goes_after_it() -> None:
    gathering = Gathering(500, 1)
    many_bytes = (EndScope("s", b"x" * (SMALL_BATCH << BYTES_PER_WEIGHT)),)
    for name, effects in (("a", ()), ("a", many_bytes), ("a", ()), ("b", ())):
        add(gathering, name, effects)
    sent = []
    while batch := gathering.take():
        sent.append([(entry[0].execution, entry[5] >= SMALL_BATCH) for entry in batch])
        gathering.finished(batch)
    of_a = [is_large for batch in sent for execution, is_large in batch if execution == "a"]
    assert of_a == [False, True, False]
    assert [("a", True)] in sent


FINISH = FinishExecution("COMPLETED", event("ExecutionCompleted"), OUTPUT, OUTPUT, OUTPUT)


@pytest.mark.parametrize(
    ("effect", "megabytes"),
    [
        (BeginExecution(input=OUTPUT), 1),
        (DeliverToToken("t", "signal:s", OUTPUT), 1),
        (EndIfLast("", token("f"), left=OUTPUT, finish=FINISH, slot_data=OUTPUT), 5),
        (EndScope("s", OUTPUT), 1),
        (FINISH, 3),
        (LeaveContext("", "k", OUTPUT), 1),
        (PostSignal("i", "s", OUTPUT, event("SignalReceived")), 1),
        (SettlePromise(Completion(1, True, OUTPUT)), 1),
        (SpawnToken(token("t", data=OUTPUT)), 1),
        (StoreOutput("o", OUTPUT), 1),
        (WriteOutbox("o", "topic", OUTPUT), 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_the_bytes_of_every_kind_of_effect_count(effect: Any, megabytes: int) -> None:
    assert weight_of((effect,), bytes_of((effect,))) == 1 + megabytes * 64


async def test_transitions_of_one_execution_keep_their_order_whatever_they_count_for() -> None:
    crowd = [f"wf/{number}" for number in range(50)]
    gathering = await gathered("/first", "/x", "wf/x", *crowd, largest=25)
    batch = gathering.take()
    assert [entry[4] for entry in batch if entry[0].execution == "x"] == ["", "wf"]


async def test_two_questions_in_turn_do_not_walk_through_everything_each_time() -> None:
    looks: list[float] = []

    async def look(*asked: Any) -> tuple[list[Any], list[Any]]:
        looks.append(asked[-1])
        return [], []

    claims = ExcludingClaims(look, cast(Any, None), lambda: 100.0)
    for _ in range(3):
        await claims.claim("w", ["default"], 5, ["a"], only_long=True)
        await claims.claim("w", ["default"], 5, ["a", "b"], only_long=False)
    assert [since == 0.0 for since in looks] == [True, True, False, False, False, False]


async def test_a_store_is_asked_again_when_it_has_news_or_a_moment_has_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    news, looks = [0], list[int]()

    async def look(*_: Any) -> tuple[list[Any], list[Any]]:
        looks.append(news[0])
        return [], []

    async def ask() -> int:
        await claims.claim("w", ["default"], 5, ["a"], only_long=True)
        return len(looks)

    claims = ExcludingClaims(look, cast(Any, None), lambda: 100.0, lambda: news[0])
    monkeypatch.setattr(excluding_claims, "QUIET", 3600.0)
    assert [await ask(), await ask()] == [1, 1]
    news[0] += 1
    assert [await ask(), await ask()] == [2, 2]
    await claims.claim("w", ["default"], 5, ["b"], only_long=True)
    assert len(looks) == 3
    monkeypatch.setattr(excluding_claims, "QUIET", 0.0)
    news[0] += 1
    assert [await ask(), await ask()] == [4, 5]

"""Bugs that the simulator has found, each in the smallest form that shows it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dalsegno.core.commands import pause, resume
from dalsegno.core.diagnosis import diagnose
from dalsegno.core.graph.fail import MAX_LOSSES
from dalsegno.engine.committer import Committer
from dalsegno.errors import Unavailable
from dalsegno.model.token import NewToken
from dalsegno.testing.contract.builders import RUN, start
from dalsegno.testing.simulation.environment.faults import Fault
from dalsegno.testing.simulation.run_graph import Observation, observe
from tests.simulation.graphs import graph, node, scenario
from tests.simulation.memory import memory_stack


def calm(document: dict[str, object], **fields: object) -> Observation:
    run = observe(scenario(document, **fields))
    assert run.findings == []
    return run


def test_a_merge_of_large_payloads_runs_before_they_are_stored() -> None:
    """What a join unites is stored by its own commit, but its node wants to read it before."""
    nodes = [
        node("a", pad=3000),
        node("b", pad=3000),
        node("m", "merge", timeout="30d"),
        node("z", note="$a.v"),
    ]
    run = calm(graph(nodes, "a>m", "b>m", "m>z"))
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    assert len(run.context["$m"]) == 2


@pytest.mark.parametrize("kind", ["fail", "lose-reply"])
def test_a_store_out_of_reach_is_no_failure_of_a_node(kind: str) -> None:
    """Loading a node's context failed, and the node was blamed for it."""
    document = graph([node("a", pad=5000), node("b", note="$a.v", error={"type": "ignore"})], "a>b")
    for at in range(1, 40):
        run = observe(scenario(document), [Fault(kind, at)])  # type: ignore[arg-type]
        assert run.findings == []
        assert run.nodes["b"].failed == 0, f"{kind} at call {at}"


@pytest.mark.parametrize("news", [False, True])
def test_tokens_leased_by_a_claim_whose_answer_was_lost_are_found_again(news: bool) -> None:
    """Its heartbeat kept alive what the worker did not know it had: nobody ever ran it."""
    document = graph([node("a"), node("b"), node("c")], "a>b", "b>c")
    for at in range(1, 50):
        assert observe(scenario(document, news=news), [Fault("lose-reply", at)]).findings == [], (
            f"at call {at}"
        )


def test_a_token_taken_twice_by_the_same_worker_loses_nothing() -> None:
    """The lease expired while the step ran, the same worker took the token again; what it then kept was forgotten."""
    nodes = [node("a", seconds=2.0), node("b"), node("c")]
    for at in range(20, 200, 3):
        schedule = [Fault("jump", at, 90.0), Fault("jump", at + 40, 90.0)]
        assert observe(scenario(graph(nodes, "a>b", "b>c")), schedule, order=at).findings == [], (
            f"at step {at}"
        )


def test_a_node_that_kills_its_worker_fails_after_five_deaths() -> None:
    document = graph([node("a", kills=100, error={"type": "ignore"}), node("b")], "a>b")
    run = calm(document, concurrency=1)
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    assert run.context["$a"]["error"]["code"] == "WORKER_LOST"
    assert run.nodes["a"].failed == 1


def test_a_node_that_kills_its_worker_less_often_succeeds() -> None:
    run = calm(graph([node("a", kills=MAX_LOSSES - 1), node("b")], "a>b"), concurrency=1)
    assert run.nodes["a"].failed == 0


def test_a_rerun_gives_a_node_what_a_passing_node_had_passed_on() -> None:
    """Conditionals, switches, waits and logs pass on what they received; a rerun gave their own output instead."""
    nodes = [
        node("a"),
        node("c", "conditional", expression="true", true_edge_id="c>w"),
        node("w", "wait", amount=1, unit="seconds"),
        node("z"),
    ]
    document = graph(nodes, "a>c", "c>w", "w>z")
    run = calm(document, rerun=3)
    assert run.again is not None
    assert run.view is not None
    assert run.again.starts == ("z",)
    assert msgspec.json.decode(run.again.view.output or b"") == msgspec.json.decode(run.view.output or b"")


def test_a_rerun_prefills_a_merge_with_what_its_branches_had_carried() -> None:
    nodes = [
        node("a"),
        node("l", "log", message="passing"),
        node("b"),
        node("m", "merge", timeout="30d"),
    ]
    run = calm(graph(nodes, "a>l", "a>b", "l>m", "b>m"), rerun=2)
    assert run.again is not None
    assert run.view is not None
    assert run.again.starts == ("b",)
    assert run.again.view.output == run.view.output


def test_an_ended_split_that_was_swept_breaks_no_step() -> None:
    """A join step reads the slots of an execution that ends and is swept meanwhile."""
    nodes = [
        node("a"),
        node("f", fails=100, seconds=1.0),
        node("s", "split", input_array=[1, 2], on_item_error="halt"),
        node("i", fails=100),
        node("g", "aggregator"),
    ]
    document = graph(nodes, "a>f", "a>s", "s>i", "i>g")
    for at in range(10, 60):
        assert observe(scenario(document), [Fault("slow", at, 30.0)]).findings == [], f"at call {at}"


def test_losing_branches_that_had_run_stay_completed() -> None:
    """A gate's closing token was dropped with the losers, and marked its node as cancelled."""
    nodes = [
        node("a"),
        node("b"),
        node("c"),
        node("x"),
        node("d", seconds=9.0),
        node("m", "merge", wait_mode="wait_for_any", losers="cancel"),
    ]
    document = graph(nodes, "a>b", "a>c", "a>d", "b>x", "c>x", "x>m", "d>m")
    for order in range(40):
        run = observe(scenario(document), (), order)
        assert run.findings == []
        if run.nodes["x"].runs == 2:
            assert run.nodes["x"].state == "COMPLETED"


def test_who_has_not_lost_waits_for_no_loser() -> None:
    """A race was won and `slow` cancelled; then `c`, which may lead elsewhere and so goes on, came to the join where
    both should have met, and waited there for ever."""
    nodes = [
        node("a"),
        node("fast", seconds=1.0),
        node("slow", seconds=5.0),
        node("w", "wait", amount=3, unit="seconds"),
        node("c", "conditional", expression="true", true_edge_id="c>j", false_edge_id="c>o"),
        node("o"),
        node("j", "merge", timeout="30d"),
        node("m", "merge", wait_mode="wait_for_any", losers="cancel"),
    ]
    edges = ("a>fast", "a>slow", "a>w", "w>c", "c>j", "c>o", "slow>j", "fast>m", "j>m")
    run = calm(graph(nodes, *edges))
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    assert run.nodes["slow"].state == "CANCELLED"
    assert run.nodes["m"].runs == 1


def test_a_split_that_leads_nowhere_ends_its_items_at_once() -> None:
    """Their scopes were opened with nothing in them, and so nothing ever ended them."""
    run = calm(graph([node("s", "split", input_array=[1, 2, 3], max_concurrency=1), node("z")]))
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    assert run.context["$s"] == {"total": 3, "failed": 0}


async def test_a_pause_across_a_clock_that_moves_back_leaves_the_deadline_alone() -> None:
    """The time spent paused was negative, and taken off the execution's own timeout."""
    stack = memory_stack()
    due = stack.clock.now() + 40
    await stack.ledger.commit([start(RUN, NewToken("d", "", "deadline", "", b"", live=False, due=due))])
    await stack.ledger.commit([pause(RUN, stack.clock.now())])
    stack.clock.advance(-5)
    await stack.ledger.commit([resume(RUN, stack.clock.now())])
    assert (await stack.tokens())["d"].due == due


async def test_an_execution_whose_split_still_opens_items_is_not_reported_as_stuck() -> None:
    """Only live tokens were asked whether they can move; a split's advance is not live."""
    stack = memory_stack()
    advance = NewToken("advance", "", "advance", "s", b"", live=False)
    held = NewToken("held", "", "node", "n", b"", queue="elsewhere", due=None)
    await stack.ledger.commit([start(RUN, held, advance)])
    for token in await stack.ledger.claim("w", ["elsewhere"], 1):
        assert token.token == "held"
    inspection = await stack.ledger.inspect(RUN)
    assert inspection is not None
    parked = [
        msgspec.structs.replace(each, state="parked") if each.live else each for each in inspection.tokens
    ]
    assert diagnose(msgspec.structs.replace(inspection, tokens=tuple(parked))) is None


async def test_a_broker_that_cannot_be_reached_stops_no_commit() -> None:
    """An announcement is only a hint, but its failure ended the flight and left the next batch waiting."""
    stack = memory_stack()

    class Deaf:
        async def announce(self, tokens: object) -> None:
            await asyncio.sleep(0)
            raise Unavailable("nobody listens")

    committer = Committer(stack.ledger, Deaf(), lambda transition, applied: None)  # type: ignore[arg-type]
    await committer.commit(start("one", NewToken("t1", "", "node", "n", b"")))
    second = committer.commit(start("two", NewToken("t2", "", "node", "n", b"")))
    async with asyncio.timeout(60):
        await second
        await committer.drain()

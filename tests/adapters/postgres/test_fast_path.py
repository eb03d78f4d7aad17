"""Commits in one statement: taken where everything is known, never where another process came between, and with the
same result as the long way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dalsegno.adapters.postgres import PostgresLedger
from dalsegno.model.effect import PauseExecution, SpawnToken, StoreOutput, WriteOutbox
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Park, Stale, Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import RUN, event, last, new_execution, start, token
from tests.adapters.postgres.commit_comparison import come_to_the_same, rows
from tests.adapters.postgres.conftest import OpenLedger
from tests.applied import applied


async def begin(ledger: PostgresLedger, *names: str, run: str = RUN) -> dict[str, Lease]:
    await ledger.commit([start(run, *(token(name) for name in names))])
    return {lease.token: lease for lease in await ledger.claim("w1", ["default"], 99)}


def hop(token_id: str, following: str, run: str = RUN) -> Transition:
    effects = (SpawnToken(token(following)), StoreOutput(token_id, b"1"))
    return Transition(run, effects, (event(data=b"{}"),), token_id, 1, keep=(following,), worker="w1")


async def test_chain_goes_the_short_way_from_its_claim_on(ledger: PostgresLedger) -> None:
    await begin(ledger, "t0")

    for number in range(10):
        [outcome] = await ledger.commit([hop(f"t{number}", f"t{number + 1}")])
        assert outcome == applied(kept=(f"t{number + 1}",))

    assert ledger.commits.known.hits == 10
    assert ledger.commits.reloads == 0
    found = await ledger.inspect(RUN)
    assert found is not None
    assert (found.execution.seq, found.execution.live) == (11, 1)
    assert [(view.id, view.state, view.fence) for view in found.tokens] == [("t10", "leased", 1)]


async def test_what_was_applied_is_recognised_when_it_comes_again(ledger: PostgresLedger) -> None:
    await begin(ledger, "t0")
    await ledger.commit([hop("t0", "t1")])

    assert await ledger.commit([hop("t0", "t1")]) == [AlreadyApplied()]
    assert await ledger.commit([hop("t0", "other")]) == [Stale("fence")]


async def test_pause_by_another_process_is_noticed(ledger: PostgresLedger, open_ledger: OpenLedger) -> None:
    await begin(ledger, "t0")
    other = await open_ledger()
    await other.commit([Transition(RUN, (PauseExecution(event("ExecutionPaused")),))])

    [outcome] = await ledger.commit([hop("t0", "t1")])

    assert outcome == applied()  # applied, but the new token is held
    found = await ledger.inspect(RUN)
    assert found is not None
    assert [(view.id, view.state) for view in found.tokens] == [("t1", "held")]
    assert ledger.commits.known.hits == 0


async def test_version_that_came_twice_is_noticed(ledger: PostgresLedger) -> None:
    """As after a failover to a standby that lacked the last commits: others have made new ones."""
    await begin(ledger, "t0")
    await rows(ledger, "UPDATE flight SET touched_at = touched_at + 0.001")

    [outcome] = await ledger.commit([hop("t0", "t1")])

    assert (outcome, ledger.commits.known.hits) == (applied(kept=("t1",)), 0)


async def test_lease_lost_to_another_process_is_stale(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    await begin(ledger, "t0")
    other = await open_ledger()
    await other.expire(dead=["w1"])

    assert await ledger.commit([hop("t0", "t1")]) == [Stale("fence")]


async def test_of_a_batch_only_those_go_the_long_way_that_must(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    for run in ("run-a", "run-b", "run-c"):
        await begin(ledger, f"{run}-0", run=run)
    other = await open_ledger()
    await other.commit([Transition("run-b", (PauseExecution(event("ExecutionPaused")),))])
    batch = [hop(f"{run}-0", f"{run}-1", run) for run in ("run-a", "run-b", "run-c")]

    outcomes = await ledger.commit(batch)

    assert [outcome.kept for outcome in outcomes if isinstance(outcome, Applied)] == [
        ("run-a-1",),
        (),
        ("run-c-1",),
    ]
    assert ledger.commits.known.hits == 2


async def test_two_batches_at_once_go_the_short_way(ledger: PostgresLedger) -> None:
    """As a process sends them: the second while the first is under way."""
    runs = [f"run-{number}" for number in range(6)]
    for run in runs:
        await begin(ledger, f"{run}-0", run=run)

    for number in range(5):
        halves = [
            [hop(f"{run}-{number}", f"{run}-{number + 1}", run) for run in runs[at::2]] for at in (0, 1)
        ]
        for outcomes in await asyncio.gather(*(ledger.commit(half) for half in halves)):
            assert [type(outcome) for outcome in outcomes] == [Applied] * 3

    assert ledger.commits.known.hits == 30


async def test_spawn_of_a_token_that_exists_changes_nothing(ledger: PostgresLedger) -> None:
    await begin(ledger, "t0", "t1")

    [outcome] = await ledger.commit([hop("t0", "t1")])

    assert outcome == applied()
    found = await ledger.inspect(RUN)
    assert found is not None
    assert [(view.id, view.fence) for view in found.tokens] == [("t1", 1)]
    assert found.execution.live == 1


async def test_an_ending_goes_the_short_way_and_leaves_a_complete_record(ledger: PostgresLedger) -> None:
    await begin(ledger, "t0")

    [outcome] = await ledger.commit([Transition(RUN, (last(output=b'"all"'),), (event(),), "t0", 1)])

    assert outcome == applied(ended="COMPLETED")
    assert ledger.commits.known.hits == 1
    found = await ledger.inspect(RUN)
    assert found is not None
    assert (found.execution.state, found.execution.output) == ("COMPLETED", b'"all"')
    assert found.execution.ended_at == ledger.now()
    [(state, ended_at)] = await rows(ledger, "SELECT state, ended_at FROM flight")
    assert (state, ended_at) == ("COMPLETED", ledger.now())


@pytest.mark.parametrize("way", ["short", "long"])
async def test_sweep_leaves_the_record_as_the_ending_wrote_it(ledger: PostgresLedger, way: str) -> None:
    """Each version of a record costs an entry in all its indexes."""
    await begin(ledger, "t0")
    more = (WriteOutbox("m", "topic", b"owed"),) if way == "long" else ()
    await ledger.commit([Transition(RUN, (*more, last()), (event(),), "t0", 1)])
    assert ledger.commits.known.hits == (way == "short")
    record = "SELECT xmin::text, epoch, seq, live, touched_at FROM execution"
    [written] = await rows(ledger, record)
    assert tuple(written)[1:] == (0, 3, 0, ledger.now())

    while await ledger.sweep():
        pass

    assert await rows(ledger, "SELECT FROM flight") == []
    assert await rows(ledger, record) == [written]


def rest(token_id: str, due: float | None, run: str = RUN, **more: Any) -> Transition:
    return Transition(run, (), (event("NodeWaiting"),), token_id, 1, park=Park(due, b"then", 2, **more))


async def test_sleep_goes_the_short_way_and_is_woken_in_time(
    ledger: PostgresLedger, clock: FakeClock
) -> None:
    await begin(ledger, "t0")
    due = ledger.now() + 60

    [outcome] = await ledger.commit([rest("t0", due)])

    assert outcome == applied(next_due=due)
    assert ledger.commits.known.hits == 1
    assert await ledger.commit([rest("t0", due)]) == [AlreadyApplied()]
    assert (await ledger.wake(9)).next_due == due
    clock.advance(61)
    [ready] = (await ledger.wake(9)).ready
    assert ready.token == "t0"
    [lease] = await ledger.claim("w1", ["default"], 9)
    assert (lease.data, lease.attempt, lease.fence, lease.reason) == (b"then", 2, 2, "timer")
    found = await ledger.inspect(RUN)
    assert found is not None
    assert (found.execution.seq, found.execution.live) == (2, 1)


async def test_sleeps_steps_and_endings_go_together(ledger: PostgresLedger) -> None:
    for run in ("run-a", "run-b", "run-c"):
        await begin(ledger, f"{run}-0", run=run)
    due = ledger.now() + 60

    outcomes = await ledger.commit(
        [
            hop("run-a-0", "run-a-1", "run-a"),
            rest("run-b-0", due, "run-b"),
            Transition("run-c", (last(),), (event(),), "run-c-0", 1),
        ]
    )

    assert outcomes == [
        applied(kept=("run-a-1",)),
        applied(next_due=due),
        applied(ended="COMPLETED"),
    ]
    assert ledger.commits.known.hits == 3
    states = await rows(ledger, "SELECT id, state FROM token ORDER BY id")
    assert [tuple(row) for row in states] == [
        ("run-a-0", "consumed"),
        ("run-a-1", "leased"),
        ("run-b-0", "parked"),
        ("run-c-0", "consumed"),
    ]


async def test_sleep_of_a_lease_that_was_lost_changes_nothing(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    await begin(ledger, "t0")
    other = await open_ledger()
    await other.expire(dead=["w1"])

    assert await ledger.commit([rest("t0", ledger.now() + 60)]) == [Stale("fence")]
    assert [tuple(row) for row in await rows(ledger, "SELECT state, due FROM token")] == [("ready", None)]


@pytest.mark.parametrize("more", [{"awaits": "signal:go"}, {"queue": "other"}], ids=["signal", "queue"])
async def test_sleep_that_is_more_than_that_goes_the_long_way(
    ledger: PostgresLedger, more: dict[str, str]
) -> None:
    await begin(ledger, "t0")
    due = ledger.now() + 60

    assert await ledger.commit([rest("t0", due, **more)]) == [applied(next_due=due)]

    assert ledger.commits.known.hits == 0
    [row] = await rows(ledger, "SELECT state, due, awaits, queue FROM token")
    assert tuple(row) == ("parked", due, more.get("awaits"), more.get("queue", "default"))


async def test_an_ending_beside_steps_of_others_goes_with_them(ledger: PostgresLedger) -> None:
    await begin(ledger, "a0", run="run-a")
    await begin(ledger, "b0", run="run-b")

    outcomes = await ledger.commit(
        [hop("a0", "a1", "run-a"), Transition("run-b", (last(),), (event(),), "b0", 1)]
    )

    assert outcomes == [applied(kept=("a1",)), applied(ended="COMPLETED")]
    assert ledger.commits.known.hits == 2
    states = await rows(ledger, "SELECT id, state, ended_at IS NULL FROM execution ORDER BY id")
    assert [tuple(row) for row in states] == [("run-a", "RUNNING", True), ("run-b", "COMPLETED", False)]


async def test_an_ending_with_something_left_at_the_root_goes_the_long_way(ledger: PostgresLedger) -> None:
    await begin(ledger, "t0", "t1")
    await ledger.commit([Transition(RUN, (last("early"),), (event(),), "t0", 1)])

    [outcome] = await ledger.commit([Transition(RUN, (last("late"),), (event(),), "t1", 1)])

    assert ledger.commits.known.hits == 0
    assert isinstance(outcome, Applied)
    assert outcome.ended is None  # a finisher puts together what the branches left
    found = await ledger.inspect(RUN)
    assert found is not None
    assert [view.kind for view in found.tokens if view.state == "ready"] == ["finish"]


async def test_an_ending_that_holds_a_slot_gives_it_up(ledger: PostgresLedger) -> None:
    await begin(ledger, "t0")
    await rows(ledger, "INSERT INTO slot_holder (key, execution) SELECT 'mail', number FROM flight")

    [outcome] = await ledger.commit([Transition(RUN, (last(),), (event(),), "t0", 1)])

    assert outcome == applied(ended="COMPLETED")
    assert ledger.commits.known.hits == 0
    assert await rows(ledger, "SELECT 1 FROM slot_holder") == []


async def test_an_ending_that_somebody_is_told_of_goes_the_long_way(ledger: PostgresLedger) -> None:
    told = start(new_execution(notify=b"parent"), token("t0"))
    await ledger.commit([told])
    await ledger.claim("w1", ["default"], 9)

    [outcome] = await ledger.commit([Transition(RUN, (last(),), (event(),), "t0", 1)])

    assert outcome == applied(ended="COMPLETED", owes=True)
    assert [entry.data for entry in await ledger.outbox()] == [b"parent"]


async def test_token_that_is_not_leased_any_more_does_not_go_the_short_way(
    ledger: PostgresLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """The fence alone does not tell; nor does the version, if somebody changed the row by hand."""
    await begin(ledger, "t0")
    await rows(ledger, "UPDATE token SET state = 'ready', owner = NULL")

    for _ in range(3):
        assert await ledger.commit([hop("t0", "t1")]) == [Stale("fence")]

    assert ledger.commits.known.hits == 0
    assert ledger.commits.fast_path_failures == 1
    [told] = [record for record in caplog.records if "fast path" in record.message]
    assert told.exc_info is not None


RECORDS = "SELECT id, state, ended_at, paused_at, output, context, error FROM execution ORDER BY id"


def batches() -> list[list[Transition]]:
    """Everything that may go the short way, and what must not among it."""
    effects = (SpawnToken(token("b1")), StoreOutput("o", b"1"), WriteOutbox("m", "topic", b"owed"))
    first = Transition(RUN, effects, (event(), event("NodeStarted")), "a1", 1, keep=("b1",), worker="w1")
    twice = (SpawnToken(token("b2")), SpawnToken(token("b2")), SpawnToken(token("late", due=9e9)))
    parks = Transition(RUN, (), (event("NodeRetrying"),), "a3", 1, park=Park(9e9, b"again", 2))
    ending = Transition("run-2", (last(),), (event(),), "z", 1)
    plain = [hop(f"c{number}", f"d{number}", "run-3") for number in range(4)]
    names = [SpawnToken(token(name)) for name in ('"', "\\", "{a,b}", " ", "NULL", "ü")]
    odd = Transition("run-3", tuple(names), (event(node='"\\'),), "c4", 1)
    return [
        [start(RUN, token("a1"), token("a2"), token("a3")), start("run-2", token("z"))],
        [start("run-3", *(token(f"c{number}") for number in range(5)))],
        [first, Transition(RUN, twice, (event(),), "a2", 1), parks, ending, *plain],
        [first, ending, Transition(RUN, (last(),), (event(),), "b1", 1), odd],
        [Transition(RUN, (), (), "b1", 7), Transition("nowhere", (), (), "b1", 1), *plain],
        [Transition(RUN, (last(),), (event(),), "b2", 1), parks],
    ]


async def play(ledger: PostgresLedger) -> list[object]:
    """All answers, and everything visible after each batch."""
    seen: list[object] = []
    for batch in batches():
        seen.append(await ledger.commit(batch))
        seen.append([lease.token for lease in await ledger.claim("w1", ["default"], 99)])
        for run in (RUN, "run-2", "run-3"):
            found = await ledger.inspect(run)
            if found is not None:
                seen += [found.execution, sorted(found.tokens, key=lambda view: view.id), found.barriers]
                seen += [await ledger.outputs(run, ["o", "c1"]), await ledger.left(run, "")]
        seen.append(await ledger.outbox())
        seen += [tuple(row) for row in await rows(ledger, RECORDS)]
    return seen


async def test_the_short_way_and_the_long_way_come_to_the_same(
    open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await come_to_the_same(play, open_ledger, monkeypatch)

"""Runs of scripts in one statement: as those of graphs, together with their machines and inboxes."""

from __future__ import annotations

import msgspec
import pytest

from dalsegno.adapters.postgres import PostgresLedger
from dalsegno.adapters.postgres.commit import flight
from dalsegno.model.effect import SpawnToken
from dalsegno.model.machine import Completion
from dalsegno.model.token import RESUME_NODE, RESUME_PRIORITY, SYSTEM_QUEUE
from dalsegno.model.transition import AlreadyApplied, Applied, ReadyToken, Stale, Transition
from dalsegno.testing.contract.builders import RUN, event, finish, start, token
from dalsegno.testing.contract.script_builders import (
    ask_to_end,
    done,
    failed,
    resume_id,
    save,
    signal,
    start_script,
    task,
)
from tests.adapters.postgres.commit_comparison import come_to_the_same, rows
from tests.adapters.postgres.conftest import OpenLedger
from tests.applied import applied

ENDING = msgspec.structs.replace(finish(), hand_over=True)
STATES = "SELECT id, state FROM token ORDER BY id"


def first_run(*names: str, need: int = 1) -> Transition:
    """Starts tasks, which this worker keeps, and awaits them."""
    spawned = [SpawnToken(task(name)) for name in names]
    saved = save(0, need=need, awaited=((1, len(names) + 1),))
    return Transition(RUN, (*spawned, saved), (event("Suspended"),), resume_id(0), 1, keep=names, worker="w1")


def fused(done_by: str, following: str, turn: int) -> Transition:
    """The worker that ran a task has gone on with the script, up to the next one. It is the ``turn``-th."""
    brought = Completion(turn, True, b"1")
    saved = save(
        turn, turn - 1, settled=brought, snapshot=b"after %d" % turn, reachable=((turn + 1, turn + 2),)
    )
    effects = (SpawnToken(task(following)), saved)
    return Transition(RUN, effects, (event("TaskCompleted"),), done_by, 1, keep=(following,), worker="w1")


def completed(done_by: str, promise: int) -> Transition:
    """By a worker that does not have the script at hand."""
    return Transition(RUN, (done(promise),), (event("TaskCompleted"),), done_by, 1, worker="w1")


def returned(done_by: str, turn: int) -> Transition:
    ended = (save(turn, turn - 1, settled=Completion(turn, True, b"1"), reachable=()), ENDING)
    return Transition(RUN, ended, (event("TaskCompleted"),), done_by, 1, worker="w1")


async def begin(ledger: PostgresLedger, *names: str, need: int = 1) -> None:
    """The first run reads the machine, which is known from then on."""
    await ledger.commit([start_script()])
    await ledger.claim("w1", [SYSTEM_QUEUE], 9)
    [outcome] = await ledger.commit([first_run(*names, need=need)])
    assert outcome == applied(kept=names)
    assert ledger.commits.known.hits == 0


async def test_script_goes_the_short_way_to_its_end(ledger: PostgresLedger) -> None:
    await begin(ledger, "t1")

    for turn in range(1, 6):
        [outcome] = await ledger.commit([fused(f"t{turn}", f"t{turn + 1}", turn)])
        assert outcome == applied(kept=(f"t{turn + 1}",))
        machine = await ledger.machine(RUN)
        assert machine is not None
        assert (machine.version, machine.inbox, machine.snapshot) == (turn + 1, turn, b"after %d" % turn)
    [outcome] = await ledger.commit([returned("t6", 6)])

    assert outcome == applied(ended="COMPLETED")
    assert ledger.commits.known.hits == 6
    assert ledger.commits.fast_path_failures == 0
    found = await ledger.inspect(RUN)
    assert found is not None
    assert (found.execution.state, found.execution.live) == ("COMPLETED", 0)


async def test_completions_go_the_short_way_and_the_last_one_resumes(ledger: PostgresLedger) -> None:
    await begin(ledger, "t1", "t2", "t3", need=3)

    first, second = await ledger.commit([completed("t1", 1), completed("t2", 2)])
    [third] = await ledger.commit([completed("t3", 3)])

    assert (first, second) == (applied(), applied())
    assert third == applied(
        ready=(ReadyToken(resume_id(1), RUN, SYSTEM_QUEUE, RESUME_PRIORITY, RESUME_NODE),)
    ), third
    assert ledger.commits.known.hits == 3
    box = await rows(ledger, "SELECT number, promise, ok, data FROM inbox ORDER BY number")
    assert [tuple(row) for row in box] == [(number, number, True, b"1") for number in (1, 2, 3)]
    assert await ledger.commit([completed("t1", 1)]) == [AlreadyApplied()]


async def test_what_the_script_cannot_ask_for_any_more_leaves_its_inbox(ledger: PostgresLedger) -> None:
    await begin(ledger, "t1", "t2", need=2)
    await ledger.commit([completed("t1", 1)])

    forgets = save(1, 1, settled=Completion(2, True, b"2"), reachable=((2, 3),))
    [outcome] = await ledger.commit([Transition(RUN, (forgets,), (event("TaskCompleted"),), "t2", 1)])

    assert outcome == applied()
    assert ledger.commits.known.hits == 2
    assert [tuple(row) for row in await rows(ledger, "SELECT number, promise FROM inbox")] == [(2, 2)]


@pytest.mark.parametrize(
    ("command", "inbox", "cancel"),
    [(signal(), 1, ""), (ask_to_end(), 0, "cancel")],
    ids=["signal", "request to end"],
)
async def test_what_came_through_another_process_is_noticed(
    ledger: PostgresLedger, open_ledger: OpenLedger, command: Transition, inbox: int, cancel: str
) -> None:
    """A run that has not seen it must not count as up to date."""
    await begin(ledger, "t1")
    other = await open_ledger()
    await other.commit([command])

    assert await ledger.commit([fused("t1", "t2", 1)]) == [Stale("version")]

    machine = await ledger.machine(RUN)
    assert machine is not None
    assert (machine.version, machine.inbox, machine.cancel) == (1, inbox, cancel)
    assert ("t1", "leased") in [tuple(row) for row in await rows(ledger, STATES)]
    assert ledger.commits.known.hits == 0


async def test_script_that_waits_for_signals_goes_the_long_way(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    """They are not remembered: one may have come long before."""
    await begin(ledger, "t1")
    other = await open_ledger()
    await other.commit([signal("s1", "approved")])
    await ledger.commit([completed("t1", 1)])
    await ledger.claim("w1", [SYSTEM_QUEUE], 9)
    hits = ledger.commits.known.hits

    waits = Transition(RUN, (save(1, 2, signals=("approved",)),), (event("Suspended"),), resume_id(1), 1)
    [outcome] = await ledger.commit([waits])

    assert outcome == applied(
        ready=(ReadyToken(resume_id(2), RUN, SYSTEM_QUEUE, RESUME_PRIORITY, RESUME_NODE),)
    )
    assert ledger.commits.known.hits == hits


async def test_tasks_of_a_script_that_ends_go_on_without_it(ledger: PostgresLedger) -> None:
    await begin(ledger, "t1", "t2")

    [outcome] = await ledger.commit([returned("t1", 1)])

    assert isinstance(outcome, Applied)
    assert outcome.ended == "COMPLETED"
    assert ledger.commits.known.hits == 0
    ended, alone = await rows(ledger, "SELECT kind, state FROM execution ORDER BY number")
    assert (tuple(ended), tuple(alone)) == (("script", "COMPLETED"), ("task", "RUNNING"))


def hop(run: str) -> Transition:
    effects = (SpawnToken(token(f"{run}-1")),)
    return Transition(run, effects, (event(),), f"{run}-0", 1, keep=(f"{run}-1",), worker="w1")


@pytest.mark.parametrize("what", ["overtaken", "outdated", "loser still runs"])
async def test_script_that_does_not_fit_takes_no_others_along(ledger: PostgresLedger, what: str) -> None:
    await begin(ledger, "t1", "t2", need=2 if what == "overtaken" else 1)
    await ledger.commit([start("graph", token("graph-0"))])
    await ledger.claim("w1", ["default"], 9)
    misfits = {
        "overtaken": [completed("t1", 1), fused("t2", "t3", 1)],
        "outdated": [fused("t1", "t3", 2)],
        "loser still runs": [returned("t1", 1)],
    }

    outcomes = await ledger.commit([*misfits[what], hop("graph")])

    assert outcomes[-1] == applied(kept=("graph-1",))
    assert Stale("version") in outcomes or what == "loser still runs"
    assert ledger.commits.known.hits == 1


async def test_resume_that_ends_a_script_while_a_task_runs_takes_no_others_along(
    ledger: PostgresLedger,
) -> None:
    """Its token does not count as live, the task's does."""
    await begin(ledger, "t1", "t2")
    await ledger.commit([completed("t1", 1)])
    await ledger.commit([start("graph", token("graph-0"))])
    await ledger.claim("w1", ["default", SYSTEM_QUEUE], 9)
    hits = ledger.commits.known.hits
    ends = Transition(RUN, (save(1, 1, reachable=()), ENDING), (), resume_id(1), 1, worker="w1")

    ended, _ = await ledger.commit([ends, hop("graph")])

    assert isinstance(ended, Applied)
    assert (ended.ended, ledger.commits.known.hits) == ("COMPLETED", hits + 1)
    kinds = await rows(ledger, "SELECT kind FROM execution ORDER BY kind")
    assert [kind for (kind,) in kinds] == ["graph", "script", "task"]


async def test_large_inbox_is_not_remembered(ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "MOST_COMPLETIONS", 1)
    await begin(ledger, "t1", "t2", "t3", need=3)

    outcomes = [await ledger.commit([completed(f"t{number}", number)]) for number in (1, 2, 3)]

    assert [type(outcome) for [outcome] in outcomes] == [Applied] * 3
    assert ledger.commits.known.hits == 2  # with the third the inbox was not known any more
    assert [tuple(row) for row in await rows(ledger, "SELECT count(*) FROM inbox")] == [(3,)]


# -- both ways ------------------------------------------------------------------------------------------------


def batches() -> list[list[Transition]]:
    late = Transition(RUN, (failed(3),), (event("TaskFailed"),), "t3", 1, worker="w1")
    goes_on = save(1, 3, need=1, reachable=((2, 9),), awaited=((4, 5),))
    again = Transition(
        RUN,
        (SpawnToken(task("t4")), goes_on),
        (event("Suspended"),),
        resume_id(1),
        1,
        keep=("t4",),
        worker="w1",
    )
    last = save(2, 3, settled=Completion(4, True, b"4"), reachable=())
    return [
        [start_script()],
        [first_run("t1", "t2", "t3", need=3)],
        [completed("t1", 1), completed("t2", 2)],
        [completed("t1", 1), late],
        [again],
        [again, fused("t4", "t5", 1)],
        [Transition(RUN, (last, ENDING), (event("TaskCompleted"),), "t4", 1)],
        [completed("t4", 4)],
    ]


async def play(ledger: PostgresLedger) -> list[object]:
    seen: list[object] = []
    for batch in batches():
        seen.append(await ledger.commit(batch))
        seen.append([lease.token for lease in await ledger.claim("w1", [SYSTEM_QUEUE], 99)])
        found = await ledger.inspect(RUN)
        assert found is not None
        seen += [found.execution, sorted(found.tokens, key=lambda view: view.id), await ledger.machine(RUN)]
        seen += [tuple(row) for row in await rows(ledger, "SELECT number, promise, ok, data FROM inbox")]
    return seen


async def test_the_short_way_and_the_long_way_come_to_the_same(
    open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await come_to_the_same(play, open_ledger, monkeypatch)

"""The committer: what goes into a batch, how many are under way, and in which order an execution's transitions go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from dalsegno.adapters.memory import MemoryBroker, MemoryLedger
from dalsegno.engine.batches import SMALL_BATCH, SMALL_WEIGHT
from dalsegno.engine.committer import (
    LONGEST_OVERDUE,
    MAX_BATCH,
    OVERDUE,
    Committer,
)
from dalsegno.errors import Unavailable
from dalsegno.model.effect import EndScope
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Applied, Deferred, Outcome, Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import event, start


class SlowLedger(MemoryLedger):
    """Answers a batch when the test says so."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.batches: list[Sequence[Transition]] = []
        self.gates: list[asyncio.Future[None]] = []
        self.prompt = False
        self.deferred: set[str] = set()
        """Executions that somebody else holds when they come for the first time."""

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        gate = asyncio.get_running_loop().create_future()
        self.batches.append(batch)
        self.gates.append(gate)
        if not self.prompt:
            await gate
        held = {step.execution for step in batch} & self.deferred
        self.deferred -= held
        outcomes = iter(await super().commit([step for step in batch if step.execution not in held]))
        return [Deferred() if step.execution in held else next(outcomes) for step in batch]

    def answer(self, number: int) -> None:
        self.gates[number].set_result(None)

    def answer_all(self) -> None:
        self.prompt = True
        for gate in self.gates:
            if not gate.done():
                gate.set_result(None)

    def sizes(self) -> list[int]:
        return [len(batch) for batch in self.batches]

    def names(self, number: int) -> list[str]:
        return [step.execution for step in self.batches[number]]


@pytest.fixture
async def ledger() -> AsyncIterator[SlowLedger]:
    ledger = SlowLedger()
    yield ledger
    ledger.answer_all()
    await settle_down()


class WorkClock:
    """What the committer measures the store's work with; it moves when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def work_clock(monkeypatch: pytest.MonkeyPatch) -> WorkClock:
    clock = WorkClock()
    monkeypatch.setattr("dalsegno.engine.committer.perf_counter", clock)
    return clock


def committer_on(ledger: SlowLedger, at_once: int = 2) -> Committer:
    return Committer(ledger, MemoryBroker(ledger), lambda transition, applied: None, at_once)


def begin(execution: str) -> Transition:
    return start(execution, NewToken(f"{execution}-t", "", "node", "n", b""))


def note(execution: str, node: str) -> Transition:
    return Transition(execution, (), (event("NodeStarted", node),))


def commit_many(committer: Committer, name: str, count: int) -> list[asyncio.Future[Outcome]]:
    return [committer.commit(begin(f"{name}-{number}")) for number in range(count)]


async def settle_down() -> None:
    """All that can go on without an answer has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_batch_is_under_way_where_the_store_takes_one(ledger: SlowLedger) -> None:
    committer = committer_on(ledger, at_once=1)
    committer.commit(begin("a"))
    await settle_down()
    committer.commit(begin("b"))
    committer.commit(begin("c"))
    await settle_down()
    assert ledger.sizes() == [1]

    ledger.answer(0)
    await settle_down()

    assert [ledger.names(number) for number in range(2)] == [["a"], ["b", "c"]]


async def test_second_batch_does_not_wait_for_the_first(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    committer.commit(begin("a"))
    await settle_down()
    second = commit_many(committer, "b", SMALL_BATCH)
    await settle_down()
    commit_many(committer, "c", SMALL_BATCH)
    await settle_down()
    assert ledger.sizes() == [1, SMALL_BATCH]

    ledger.answer(1)
    await settle_down()

    assert isinstance(second[0].result(), Applied)
    assert ledger.names(2)[0] == "c-0"


async def test_what_is_there_is_shared_between_batches(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    commit_many(committer, "run", 100)
    await settle_down()

    assert ledger.sizes() == [50, 50]


async def test_few_go_together(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    commit_many(committer, "run", 2 * SMALL_BATCH - 1)
    await settle_down()

    assert ledger.sizes() == [2 * SMALL_BATCH - 1]


async def test_few_wait_for_the_batch_that_is_under_way(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    committer.commit(begin("a"))
    await settle_down()
    commit_many(committer, "b", SMALL_BATCH - 1)
    await settle_down()
    assert ledger.sizes() == [1]

    ledger.answer(0)
    await settle_down()

    assert ledger.sizes() == [1, SMALL_BATCH - 1]


async def test_few_do_not_wait_for_a_batch_that_takes_long(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    committer.commit(begin("long"))
    await settle_down()
    few = [committer.commit(begin(name)) for name in ("a", "b")]
    committer.commit(note("long", "later"))
    await settle_down()
    assert ledger.sizes() == [1]

    await asyncio.sleep(2 * OVERDUE)
    assert [ledger.names(number) for number in range(2)] == [["long"], ["a", "b"]]
    ledger.answer(1)
    await asyncio.gather(*few)
    await settle_down()
    assert ledger.sizes() == [1, 2], "what belongs to the first batch waits for it"


async def test_batches_that_follow_each_other_get_no_third_beside_them(
    ledger: SlowLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now)
    committer = committer_on(ledger)
    commit_many(committer, "first", 2 * MAX_BATCH)
    await settle_down()
    commit_many(committer, "next", 4 * MAX_BATCH)
    for number in range(3):
        now += 0.6 * OVERDUE
        await settle_down()
        assert len(ledger.batches) == number + 2
        ledger.answer(number)
        await settle_down()

    now += 1.1 * LONGEST_OVERDUE
    await settle_down()
    assert len(ledger.batches) == 6, "one more goes beside those that take long"


async def test_no_batch_is_larger_than_the_largest(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    commit_many(committer, "run", 3 * MAX_BATCH)
    for number in range(MAX_BATCH):
        committer.commit(note("run-0", f"n{number}"))
    await settle_down()
    assert set(ledger.sizes()) == {MAX_BATCH}


async def test_steps_of_one_execution_are_never_in_two_batches_at_once(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    committer.commit(begin("a"))
    await settle_down()
    nodes = [f"n{number}" for number in range(SMALL_BATCH)]
    last = [committer.commit(note("a", node)) for node in nodes][-1]
    commit_many(committer, "b", SMALL_BATCH)
    await settle_down()
    assert ledger.sizes() == [1, SMALL_BATCH]
    assert "a" not in ledger.names(1)

    ledger.answer(1)
    await settle_down()
    assert ledger.sizes() == [1, SMALL_BATCH], "they wait for the batch before, though another could go"
    ledger.answer(0)
    await settle_down()
    assert ledger.names(2) == ["a"] * SMALL_BATCH
    ledger.answer(2)
    await last

    recorded = [found.node for found in ledger.store.executions["a"].events]
    assert recorded[-SMALL_BATCH:] == nodes


async def test_siblings_go_along_with_the_first_of_them(ledger: SlowLedger) -> None:
    """Half of a wide fan-out would only wait for the other half."""
    committer = committer_on(ledger)
    for number in range(100):
        committer.commit(note("wide", f"n{number}"))
    await settle_down()

    assert ledger.sizes() == [100]


async def test_what_was_put_off_goes_with_the_next_batch_before_what_came_later(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    ledger.deferred = {"a"}
    first = committer.commit(begin("a"))
    committer.commit(begin("b"))
    await settle_down()
    committer.commit(note("a", "later"))
    committer.commit(note("b", "later"))
    await settle_down()
    assert ledger.sizes() == [2]

    ledger.answer(0)
    await settle_down()

    assert not first.done()
    assert [(step.execution, step.events[0].kind) for step in ledger.batches[1]] == [
        ("a", "ExecutionStarted"),
        ("a", "NodeStarted"),
        ("b", "NodeStarted"),
    ]
    ledger.answer(1)
    assert isinstance(await first, Applied)


async def test_drain_waits_for_every_batch(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    committer.commit(begin("a"))
    await settle_down()
    commit_many(committer, "b", SMALL_BATCH)
    committer.commit(note("a", "later"))
    await settle_down()
    drained = asyncio.create_task(committer.drain())

    for number in range(3):
        await settle_down()
        assert not drained.done()
        ledger.answer(number)
    await drained

    assert ledger.sizes() == [1, SMALL_BATCH, 1]


async def test_batch_that_the_store_refuses_holds_up_only_its_executions(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    refused = committer.commit(begin("a"))
    await settle_down()
    ledger.gates[0].set_exception(Unavailable("not now"))
    await settle_down()
    others = commit_many(committer, "b", SMALL_BATCH)
    await settle_down()
    ledger.answer(1)

    assert isinstance(await others[0], Applied)
    assert not refused.done()
    ledger.answer_all()
    assert isinstance(await refused, Applied)


async def test_executions_of_a_batch_that_failed_can_go_again(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    refused = committer.commit(begin("a"), wait_for_store=False)
    await settle_down()
    ledger.gates[0].set_exception(Unavailable("not now"))
    with pytest.raises(Unavailable, match="not now"):
        await refused

    again = committer.commit(begin("a"))
    await settle_down()
    ledger.answer(1)

    assert isinstance(await again, Applied)


async def test_one_batch_at_a_time_while_the_store_is_slow_for_several_workflows(
    ledger: SlowLedger, work_clock: WorkClock
) -> None:
    committer = committer_on(ledger)
    commit_of(committer, "a", SMALL_BATCH)
    commit_of(committer, "b", SMALL_BATCH)
    await settle_down()
    assert len(ledger.batches) == 2
    commit_of(committer, "c", 4 * SMALL_BATCH)
    work_clock.now += 5.0
    ledger.answer(0)
    ledger.answer(1)
    await settle_down()
    assert len(ledger.batches) == 3

    for number in range(2, 30):
        commit_of(committer, f"more-{number}", 4 * SMALL_BATCH)
        await settle_down()
        ledger.answer(number)
        await settle_down()
    assert [gate.done() for gate in ledger.gates].count(False) == 2, "the store is quick again"


@pytest.mark.parametrize(("others", "most"), [((), MAX_BATCH), (("other",), 100)])
async def test_batches_are_short_only_while_other_workflows_wait_for_them(
    ledger: SlowLedger, work_clock: WorkClock, others: tuple[str, ...], most: int
) -> None:
    seconds_per_transition = 0.0005
    committer = committer_on(ledger, at_once=1)
    commit_of(committer, "busy", 1)
    await settle_down()
    for number in range(40):
        for workflow in ("busy", *others):
            commit_many_of(committer, workflow, number, MAX_BATCH)
        work_clock.now += len(ledger.batches[number]) * seconds_per_transition
        ledger.answer(number)
        await settle_down()

    assert ledger.sizes()[-1] <= most
    assert ledger.sizes()[-1] > most // 3


def commit_many_of(committer: Committer, workflow: str, round: int, count: int) -> None:
    for number in range(count):
        committer.commit(begin(f"{workflow}-{round}-{number}"), workflow=workflow)


async def after_one_batch(ledger: SlowLedger, *workflows: str) -> Committer:
    """A committer that has begun one execution of each workflow."""
    committer = committer_on(ledger)
    for workflow in workflows:
        commit_of(committer, workflow, 1)
    await settle_down()
    ledger.answer(0)
    await settle_down()
    return committer


async def test_large_commit_of_one_workflow_does_not_delay_those_of_others(ledger: SlowLedger) -> None:
    committer = await after_one_batch(ledger, "hostile", "honest")
    output = b"x" * 14 * 1024 * 1024
    committer.commit(Transition("hostile-0", (EndScope("s", output),)), workflow="hostile")
    committer.commit(note("honest-0", "first"), workflow="honest")
    await settle_down()
    assert [ledger.names(number) for number in range(1, len(ledger.batches))] == [["hostile-0"], ["honest-0"]]

    ledger.answer(2)
    await settle_down()
    later = committer.commit(note("honest-0", "second"), workflow="honest")
    await settle_down()
    ledger.answer(3)
    assert isinstance(await later, Applied), "it waits neither for the large one nor for the clock"


async def test_large_commits_do_not_make_the_batches_of_others_smaller(
    ledger: SlowLedger, work_clock: WorkClock
) -> None:
    committer = await after_one_batch(ledger, "hostile", "honest")
    output = b"x" * 4 * 1024 * 1024
    for number in range(1, 10):
        committer.commit(Transition("hostile-0", (EndScope("s", output),)), workflow="hostile")
        await settle_down()
        work_clock.now += 0.05
        ledger.answer(number)
        await settle_down()

    commit_of(committer, "honest", 3 * SMALL_BATCH)
    await settle_down()
    assert ledger.sizes()[-1] > SMALL_BATCH


async def test_slow_store_takes_another_batch_beside_a_large_transition(
    ledger: SlowLedger, work_clock: WorkClock
) -> None:
    committer = committer_on(ledger)
    commit_of(committer, "a", 1)
    commit_of(committer, "b", 1)
    await settle_down()
    work_clock.now += 5.0
    ledger.answer(0)
    await settle_down()
    large = Transition("a-0", (EndScope("s", b""),) * 1_000)
    committer.commit(large, workflow="a")
    await settle_down()
    commit_of(committer, "c", SMALL_BATCH)
    commit_of(committer, "d", SMALL_BATCH)
    await settle_down()
    assert len(ledger.batches) == 3


def commit_of(committer: Committer, workflow: str, count: int) -> list[asyncio.Future[Outcome]]:
    names = [f"{workflow}-{number}" for number in range(count)]
    return [committer.commit(begin(name), workflow=workflow) for name in names]


async def test_workflow_with_little_to_do_does_not_wait_for_batches_of_one_with_much(
    ledger: SlowLedger,
) -> None:
    committer = committer_on(ledger)
    commit_of(committer, "much", 2 * MAX_BATCH)
    await settle_down()
    commit_of(committer, "much", 500)
    little = commit_of(committer, "little", 2)
    await settle_down()
    assert ledger.sizes() == [MAX_BATCH, MAX_BATCH, 2]

    ledger.answer(2)
    assert [type(await each) for each in little] == [Applied, Applied]
    later = committer.commit(note("little-0", "later"), workflow="little")
    await settle_down()
    ledger.answer(3)
    assert ledger.names(3) == ["little-0"]
    assert isinstance(await later, Applied)


async def test_one_batch_at_a_time_goes_ahead_of_the_others(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    commit_of(committer, "much", 2 * MAX_BATCH)
    await settle_down()
    commit_of(committer, "a", 1)
    await settle_down()
    commit_of(committer, "b", 1)
    commit_of(committer, "c", 1)
    commit_of(committer, "a", 1)
    await settle_down()
    assert ledger.sizes() == [MAX_BATCH, MAX_BATCH, 1]

    ledger.answer(2)
    await settle_down()
    assert ledger.names(3)[:2] == ["b-0", "c-0"]
    drained = asyncio.create_task(committer.drain())
    ledger.answer(0)
    ledger.answer(1)
    await settle_down()
    assert not drained.done()
    ledger.answer_all()
    await drained


async def test_much_of_one_workflow_goes_ahead_of_nothing(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    commit_of(committer, "much", 2 * MAX_BATCH)
    await settle_down()
    commit_of(committer, "other", SMALL_WEIGHT + 1)
    await settle_down()
    assert ledger.sizes() == [MAX_BATCH, MAX_BATCH]


async def test_many_workflows_that_have_little_share_their_batches(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    for number in range(2 * SMALL_BATCH):
        commit_of(committer, f"workflow-{number}", 1)
    await settle_down()
    commit_of(committer, "one-more", 1)
    await settle_down()
    assert ledger.sizes() == [SMALL_BATCH, SMALL_BATCH]


async def test_what_waits_for_a_batch_that_went_ahead_goes_when_it_has_landed(ledger: SlowLedger) -> None:
    committer = committer_on(ledger)
    commit_of(committer, "much", 2 * MAX_BATCH)
    await settle_down()
    commit_of(committer, "little", 1)
    await settle_down()
    ledger.answer(0)
    ledger.answer(1)
    await settle_down()
    last = committer.commit(note("little-0", "later"))
    await settle_down()
    assert ledger.sizes() == [MAX_BATCH, MAX_BATCH, 1]

    ledger.answer(2)
    await settle_down()
    ledger.answer(3)
    assert isinstance(await last, Applied)

"""Pausing stops claims, not clocks; nothing that came due meanwhile is stuck after it (L6)."""

from __future__ import annotations

from dalsegno.model.transition import AlreadyApplied, Stale
from dalsegno.testing.contract.build import (
    RUN,
    arrive,
    barrier,
    cancel,
    deadline,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

JOIN = "join-merge"


class LedgerPause(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "pausing"))

    async def test_l6_pause_stops_claims_until_resume(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        await stack.apply(pause())
        assert await stack.take() == {}
        assert (await stack.execution()).state == "PAUSED"
        assert (await stack.execution()).paused_at == stack.clock.now()

        await stack.apply(resume())

        assert set(await stack.take()) == {"a"}
        assert (await stack.execution()).state == "RUNNING"
        assert (await stack.execution()).paused_at is None
        assert await stack.kinds() == ["ExecutionStarted", "ExecutionPaused", "ExecutionResumed"]

    async def test_l6_pause_running_steps_commit_and_what_they_spawn_is_held(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(pause())

        [applied] = await stack.apply(step(lease, token("b")))
        assert applied.ready == ()
        assert await stack.take() == {}
        assert (await stack.tokens())["b"].state == "held"

        [resumed] = await stack.apply(resume())
        assert [ready.token for ready in resumed.ready] == ["b"]
        assert set(await stack.take()) == {"b"}

    async def test_l6_pause_keeps_nothing_for_the_worker(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(pause())

        [applied] = await stack.apply(step(lease, token("b"), keep=["b"], worker="w1"))

        assert applied.kept == ()
        assert (await stack.tokens())["b"].state == "held"

    async def test_l6_pause_holds_a_barrier_that_opens(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(pause())
        await stack.apply(step(leases["a"], arrive(barrier(), 0)), step(leases["b"], arrive(barrier(), 1)))
        assert await stack.take() == {}

        await stack.apply(resume())

        assert (await stack.take())[JOIN].reason == "open"

    async def test_l6_pause_of_one_execution_leaves_others_alone(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")), start("run-2", token("b")))
        await stack.apply(pause())

        assert set(await stack.take()) == {"b"}

    async def test_l6_pause_twice_is_already_applied(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        await stack.apply(pause())
        stack.clock.advance(5)
        before = await stack.picture()

        assert await stack.commit(pause()) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l6_resume_of_what_runs_is_already_applied(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        before = await stack.picture()

        assert await stack.commit(resume()) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l6_pause_and_resume_of_what_is_not_there(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        await stack.apply(cancel())

        outcomes = await stack.commit(pause("nowhere"), resume("nowhere"), pause(), resume())

        assert outcomes == [Stale("unknown"), Stale("unknown"), Stale("finished"), Stale("finished")]

    async def test_l6_paused_execution_can_be_cancelled(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        await stack.apply(pause())

        [applied] = await stack.apply(cancel())

        assert applied.ended == "CANCELLED"
        assert await stack.take() == {}


class LedgerPauseAndTime(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "pausing", "time"))

    async def test_l6_pause_what_comes_due_is_held(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", due=stack.clock.now() + 1)))
        await stack.apply(pause())
        stack.clock.advance(2)

        assert (await stack.ledger.wake()).ready == ()
        assert await stack.take() == {}

        [resumed] = await stack.apply(resume())
        assert [ready.token for ready in resumed.ready] == ["a"]
        assert (await stack.take())["a"].reason == "timer"

    async def test_l6_resume_announces_in_due_order(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        sleepers = [token("third", due=now + 3), token("second", due=now + 2), token("later", due=now + 99)]
        leases = await stack.begin(token("a"), *sleepers)
        await stack.apply(pause())
        stack.clock.set(now + 1)
        await stack.apply(step(leases["a"], token("first")))
        stack.clock.set(now + 10)
        await stack.ledger.wake()

        [resumed] = await stack.apply(resume())

        assert [ready.token for ready in resumed.ready] == ["first", "second", "third"]
        assert [lease.token for lease in await stack.claim()] == ["first", "second", "third"]

    async def test_l6_resume_counts_an_opened_barrier_from_its_opening(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        leases = await stack.begin(token("a"), token("b"), token("sleeper", due=now + 2))
        await stack.apply(step(leases["a"], arrive(barrier(timeout=99), 0)))
        await stack.apply(pause())
        stack.clock.set(now + 1)
        await stack.apply(step(leases["b"], arrive(barrier(timeout=99), 1)))
        stack.clock.set(now + 3)
        await stack.ledger.wake()

        [resumed] = await stack.apply(resume())

        assert [ready.token for ready in resumed.ready] == [JOIN, "sleeper"]

    async def test_l6_resume_what_was_not_due_sleeps_on(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 50
        await stack.apply(start(RUN, token("a", due=due)))
        await stack.apply(pause())
        stack.clock.advance(20)

        [resumed] = await stack.apply(resume())

        assert resumed.ready == ()
        assert (await stack.tokens())["a"].due == due
        stack.clock.set(due)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["a"]

    async def test_l6_pause_does_not_stop_a_barriers_deadline(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], arrive(barrier(timeout=10), 0)))
        await stack.apply(pause())
        stack.clock.advance(10)
        assert (await stack.ledger.wake()).ready == ()
        assert (await stack.barriers())["merge"].state == "timeout"

        await stack.apply(resume())

        assert (await stack.take())[JOIN].reason == "timeout"

    async def test_l6_executions_deadline_does_not_count_paused_time(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        await stack.apply(start(RUN, token("a"), deadline("timeout", now + 100)))
        stack.clock.set(now + 10)
        await stack.apply(pause())
        stack.clock.set(now + 60)

        [resumed] = await stack.apply(resume())

        assert resumed.next_due == now + 150
        assert (await stack.tokens())["timeout"].due == now + 150
        stack.clock.set(now + 149)
        assert (await stack.ledger.wake()).ready == ()
        stack.clock.set(now + 150)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["timeout"]

    async def test_l6_executions_deadline_that_passes_in_a_pause_waits(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        await stack.apply(start(RUN, token("a"), deadline("timeout", now + 100)))
        stack.clock.set(now + 90)
        await stack.apply(pause())
        stack.clock.set(now + 1000)
        assert (await stack.ledger.wake()).ready == ()

        [resumed] = await stack.apply(resume())

        assert {ready.token for ready in resumed.ready} <= {"a"}
        assert (await stack.tokens())["timeout"].due == now + 1010
        assert (await stack.ledger.wake()).ready == ()
        stack.clock.set(now + 1010)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["timeout"]

    async def test_l6_executions_deadline_is_moved_by_every_pause(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        await stack.apply(start(RUN, token("a"), deadline("timeout", now + 100)))
        for _ in range(3):
            await stack.apply(pause())
            stack.clock.advance(20)
            await stack.apply(resume())
            stack.clock.advance(1)

        assert (await stack.tokens())["timeout"].due == now + 160


class LedgerPauseAndLeases(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "pausing", "leases"))

    async def test_l6_pause_lease_lost_meanwhile_comes_back_after_resume(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(pause())
        await stack.ledger.expire(dead=["w1"])
        assert await stack.take("w2") == {}

        await stack.apply(resume())

        assert (await stack.take("w2"))["a"].losses == 1

    async def test_l6_pause_passes_over_named_tokens(self, stack: ContractStack) -> None:
        [applied] = await stack.apply(start(RUN, token("a")))
        await stack.apply(pause())
        assert await stack.ledger.lease("w1", applied.ready) == []

        await stack.apply(resume())

        assert set(await stack.take()) == {"a"}

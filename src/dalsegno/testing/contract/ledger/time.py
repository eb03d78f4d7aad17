"""Time in the ledger: parked tokens, retries, and deadlines of barriers. Only ``wake`` decides what is due.

Pausing stops claims, not clocks; nothing that came due during a pause is stuck after it (L6).
"""

from __future__ import annotations

from dalsegno.model.effect import EndScope, HurryToken
from dalsegno.model.transition import AlreadyApplied, Park, ReadyToken, Stale, Transition
from dalsegno.testing.contract.builders import (
    RUN,
    aggregator,
    arrive,
    barrier,
    cancel,
    command,
    deadline,
    event,
    last_of_item,
    pause,
    resume,
    skip,
    start,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import item, open_split
from dalsegno.testing.contract.stack import ContractStack, Topic

JOIN = "join-merge"


class LedgerTimers(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "time"))

    async def test_l6_timer_parked_token_wakes_when_due_and_not_before(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 10
        [applied] = await stack.apply(start(RUN, token("a", due=due)))
        assert applied.ready == ()
        assert applied.next_due == due

        stack.clock.advance(9.5)
        woken = await stack.ledger.wake()
        assert (woken.ready, woken.next_due) == ((), due)
        assert await stack.take() == {}

        stack.clock.advance(0.5)
        woken = await stack.ledger.wake()
        assert woken.ready == (ReadyToken("a", RUN, "default", 0, "a"),)
        assert woken.next_due is None
        assert (await stack.take())["a"].reason == "timer"

    async def test_l6_timer_wakes_once(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", due=stack.clock.now() + 1)))
        stack.clock.advance(2)

        assert len((await stack.ledger.wake()).ready) == 1
        assert (await stack.ledger.wake()).ready == ()

    async def test_l6_timer_tokens_wake_in_due_order_up_to_the_limit(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        await stack.apply(start(RUN, *(token(f"t{index}", due=now + 10 - index) for index in range(6))))
        stack.clock.advance(8)

        first = await stack.ledger.wake(2)
        assert [ready.token for ready in first.ready] == ["t5", "t4"]
        second = await stack.ledger.wake(2)
        assert [ready.token for ready in second.ready] == ["t3", "t2"]
        assert second.next_due == now + 9
        assert (await stack.ledger.wake(2)).ready == ()

    async def test_l6_timer_limit_leaves_the_rest_due(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 1
        await stack.apply(start(RUN, *(token(f"t{index}", due=due) for index in range(5))))
        stack.clock.advance(1)

        seen: list[str] = []
        while ready := (await stack.ledger.wake(2)).ready:
            assert len(ready) <= 2
            seen += [found.token for found in ready]

        assert sorted(seen) == ["t0", "t1", "t2", "t3", "t4"]

    async def test_l6_timer_next_due_is_the_earliest_of_a_commit(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        now = stack.clock.now()

        [applied] = await stack.apply(step(lease, token("b", due=now + 9), token("c", due=now + 3)))

        assert applied.next_due == now + 3
        assert (await stack.ledger.wake()).next_due == now + 3

    async def test_l6_timer_of_the_past_wakes_at_once(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", due=stack.clock.now() - 100)))

        await stack.ledger.wake()

        assert set(await stack.take()) == {"a"}

    async def test_l6_timer_park_keeps_the_token_and_brings_its_attempt(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a", data=b"one")))["a"]
        park = Park(stack.clock.now() + 5, b"two", attempt=2)
        [applied] = await stack.apply(step(lease, events=[event("NodeRetrying")], park=park))
        assert applied.next_due == park.due
        assert (await stack.execution()).live == 1

        stack.clock.advance(5)
        await stack.ledger.wake()

        again = (await stack.take())["a"]
        assert (again.attempt, again.data, again.reason) == (2, b"two", "timer")
        assert again.fence > lease.fence

    async def test_l6_timer_stale_commit_of_the_attempt_before_changes_nothing(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, b"", attempt=2)))
        stack.clock.advance(5)
        await stack.ledger.wake()
        again = (await stack.take())["a"]

        assert await stack.commit(step(lease, token("b"))) == [Stale("fence")]
        await stack.apply(step(again, token("c")))
        assert set(await stack.tokens()) == {"c"}

    async def test_l6_timer_parked_again_wakes_at_the_new_time_only(self, stack: ContractStack) -> None:
        now = stack.clock.now()
        await stack.apply(start(RUN, token("a", due=now + 1)))
        stack.clock.advance(1)
        await stack.ledger.wake()
        await stack.apply(step((await stack.take())["a"], park=Park(now + 50, b"", attempt=2)))
        assert (await stack.tokens())["a"].reason == ""

        stack.clock.advance(1)
        assert (await stack.ledger.wake()).ready == ()
        stack.clock.set(now + 50)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["a"]

    async def test_l6_timer_parked_without_a_time_sleeps_on(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        [applied] = await stack.apply(step(lease, park=Park(None, b"", attempt=1)))
        assert applied.next_due is None

        stack.clock.advance(1e6)

        assert (await stack.ledger.wake()).ready == ()
        assert (await stack.tokens())["a"].state == "parked"


class LedgerLateTimers(Topic):
    guarantees = frozenset(("L5",))
    needs = frozenset(("commit", "time"))

    async def test_l5_timer_of_an_ended_execution_wakes_nothing(self, stack: ContractStack) -> None:
        await stack.apply(
            start(RUN, token("a", due=stack.clock.now() + 1), deadline("d", stack.clock.now() + 1))
        )
        await stack.apply(cancel())
        events = await stack.events()
        stack.clock.advance(2)

        assert (await stack.ledger.wake()).ready == ()
        assert await stack.take() == {}
        assert await stack.events() == events

    async def test_l5_timer_in_an_ended_item_wakes_nothing(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        sleeper = token("sleeper", item(0), due=stack.clock.now() + 1)
        await stack.apply(step(items[0], sleeper, token("halting", item(0))))
        await stack.apply(step((await stack.take())["halting"], EndScope(item(0), b"halted")))
        stack.clock.advance(2)

        assert (await stack.ledger.wake()).ready == ()
        assert await stack.take() == {}

    async def test_l5_timer_of_items_after_their_barrier_timed_out(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2, within=5)
        await stack.apply(step(items[0], park=Park(stack.clock.now() + 60, b"", 2)))
        stack.clock.advance(5)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["join-collect"]

        stack.clock.advance(60)
        assert (await stack.ledger.wake()).ready == ()
        assert await stack.commit(step(items[1], last_of_item(item(1)))) == [Stale("scope")]


class LedgerDeadlines(Topic):
    """A barrier's deadline against its last arrival: the first one wins."""

    guarantees = frozenset(("L7",))
    needs = frozenset(("commit", "time"))

    async def test_l7_deadline_counts_from_the_first_live_arrival(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        spec = barrier(expected=3, timeout=10)
        await stack.apply(step(leases["a"], skip(spec, 0)))
        stack.clock.advance(100)

        [applied] = await stack.apply(step(leases["b"], arrive(spec, 1)))

        assert applied.next_due == stack.clock.now() + 10
        assert (await stack.barriers())["merge"].deadline == stack.clock.now() + 10

    async def test_l7_deadline_passed_makes_the_join_ready_with_timeout(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], arrive(barrier(timeout=10), 0)))
        stack.clock.advance(10)

        assert [ready.token for ready in (await stack.ledger.wake()).ready] == [JOIN]

        assert (await stack.take())[JOIN].reason == "timeout"
        assert (await stack.barriers())["merge"].state == "timeout"

    async def test_l7_deadline_passed_first_drops_the_late_arrival(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        spec = barrier(timeout=10)
        await stack.apply(step(leases["a"], arrive(spec, 0)))
        stack.clock.advance(10)
        await stack.ledger.wake()

        [applied] = await stack.apply(step(leases["b"], arrive(spec, 1)))

        assert applied.ready == ()
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert (await stack.barriers())["merge"].state == "timeout"
        assert [slot.slot for slot in await stack.ledger.slots(RUN, spec.id)] == [0]

    async def test_l7_deadline_after_the_last_arrival_wakes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        spec = barrier(timeout=10)
        await stack.apply(step(leases["a"], arrive(spec, 0)))
        stack.clock.advance(10)
        await stack.apply(step(leases["b"], arrive(spec, 1)))

        assert (await stack.ledger.wake()).ready == ()

        assert (await stack.take())[JOIN].reason == "open"
        assert (await stack.barriers())["merge"].state == "open"

    async def test_l7_deadline_after_the_join_ran_wakes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        spec = barrier(timeout=10)
        await stack.apply(step(leases["a"], arrive(spec, 0)), step(leases["b"], arrive(spec, 1)))
        await stack.apply(step((await stack.take())[JOIN], token("next")))
        stack.clock.advance(20)

        assert (await stack.ledger.wake()).ready == ()
        assert (await stack.barriers())["merge"].state == "open"

    async def test_l7_deadline_of_an_aggregator_counts_from_the_split(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2, within=10)
        assert (await stack.barriers())["collect"].deadline == stack.clock.now() + 10
        stack.clock.advance(9)
        await stack.apply(step(items[0], last_of_item(item(0), slot=b"in time")))
        stack.clock.advance(1)

        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["join-collect"]

        assert (await stack.take())["join-collect"].reason == "timeout"
        assert [slot.data for slot in await stack.ledger.slots(RUN, aggregator().id)] == [b"in time"]

    async def test_l7_deadline_of_an_any_merge_has_nothing_to_wait_for(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], arrive(barrier(mode="any", timeout=10), 0)))
        stack.clock.advance(20)

        assert (await stack.ledger.wake()).ready == ()
        assert (await stack.take())[JOIN].reason == "open"


class LedgerMovedTokens(Topic):
    """A script's turn whose code the worker does not have moves to workers that have it."""

    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "time", "scripts"))

    async def test_l6_parked_token_may_move_to_another_queue(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a"), token("b")))["a"]

        [applied] = await stack.apply(step(lease, park=Park(stack.clock.now(), b"x", 2, queue="other")))

        assert applied.next_due == stack.clock.now()
        assert (await stack.ledger.wake()).ready == (ReadyToken("a", RUN, "other", 0, "a"),)
        assert await stack.claim() == []
        [moved] = await stack.claim(queues=("other",))
        assert (moved.token, moved.queue, moved.attempt, moved.data) == ("a", "other", 2, b"x")

    async def test_l6_one_that_is_not_moved_stays_in_its_queue(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", queue="mine"), token("b")))
        [lease] = await stack.claim(queues=("mine",))

        await stack.apply(step(lease, park=Park(stack.clock.now(), b"", 2)))
        await stack.ledger.wake()

        assert [lease.queue for lease in await stack.claim(queues=("mine",))] == ["mine"]


def hurry(name: str, attempt: int = 1) -> Transition:
    return command(RUN, HurryToken(name, attempt))


class LedgerHurriedTokens(Topic):
    """A deferred token becomes ready early when what it needs is available."""

    guarantees = frozenset(("L1", "L5", "L6"))
    needs = frozenset(("commit", "pausing", "time", "scripts"))

    async def _put_off(self, stack: ContractStack, attempt: int = 1) -> float:
        leases = await stack.begin(token("a"), token("b"))
        due = stack.clock.now() + 300
        await stack.apply(step(leases["a"], park=Park(due, b"{}", attempt)))
        return due

    async def test_l6_token_that_is_put_off_can_be_hurried(self, stack: ContractStack) -> None:
        await self._put_off(stack)

        [applied] = await stack.apply(hurry("a"))

        assert applied.ready == (ReadyToken("a", RUN, "default", 0, "a"),)
        lease = (await stack.take())["a"]
        assert (lease.reason, lease.attempt, lease.data) == ("timer", 1, b"{}")
        stack.clock.advance(301)
        assert (await stack.ledger.wake()).ready == ()

    async def test_l1_hurried_again_it_changes_nothing(self, stack: ContractStack) -> None:
        await self._put_off(stack)
        await stack.apply(hurry("a"))
        before = await stack.picture()

        assert await stack.commit(hurry("a"), hurry("b"), hurry("absent")) == [AlreadyApplied()] * 3
        assert await stack.picture() == before

    async def test_token_that_waits_for_its_next_try_is_not_hurried(self, stack: ContractStack) -> None:
        due = await self._put_off(stack, attempt=2)

        assert await stack.commit(hurry("a", 1)) == [AlreadyApplied()]
        assert (await stack.tokens())["a"].due == due

    async def test_token_that_waits_for_something_else_is_not_hurried(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        signalled = Park(stack.clock.now() + 5, b"", 1, awaits="signal:go")
        await stack.apply(step(leases["a"], park=signalled), step(leases["b"], park=Park(None, b"", 1)))

        assert await stack.commit(hurry("a"), hurry("b")) == [AlreadyApplied()] * 2
        assert await stack.take() == {}

    async def test_token_that_is_hurried_during_a_pause_is_held(self, stack: ContractStack) -> None:
        await self._put_off(stack)
        await stack.apply(pause())

        [applied] = await stack.apply(hurry("a"))
        assert (applied.ready, await stack.take()) == ((), {})
        await stack.apply(resume())

        assert "a" in await stack.take()

    async def test_l5_token_of_an_ended_execution_or_item_is_not_hurried(self, stack: ContractStack) -> None:
        first, _second, sibling = await open_split(stack, 2, also=(token("sibling", item(0)),))
        await stack.apply(step(first, park=Park(stack.clock.now() + 5, b"", 1)))
        await stack.apply(step(sibling, EndScope(item(0), b"1")))
        assert await stack.commit(hurry(first.token)) == [AlreadyApplied()]

        await stack.apply(cancel())
        assert await stack.commit(hurry(first.token)) == [Stale("finished")]


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

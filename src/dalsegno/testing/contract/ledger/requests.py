"""Requests to end, dropped tokens, and decisions by a person about a token.

* Scripts receive a request to end and may clean up. Every other execution ends at once.
* A person settles a token of any state. Of the person and the lease holder the first wins (L1), the other is late
  (L4).
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from dalsegno.model.effect import DropTokens, MarkStarted, RequestCancel, SpawnToken, TakeOrder, WriteOutbox
from dalsegno.model.limits import Allowance
from dalsegno.model.machine import CancelReason
from dalsegno.model.token import Lease, NewToken, TokenView
from dalsegno.model.transition import AlreadyApplied, Applied, Park, Stale, Transition
from dalsegno.testing.contract.builders import (
    RUN,
    command,
    event,
    finish,
    new_execution,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.ledger.ending import sweep_all
from dalsegno.testing.contract.script_builders import (
    ask_to_end,
    delivered,
    done,
    machine_of,
    resume_id,
    resume_lease,
    resumes,
    save,
    signal,
    start_script,
    suspend,
    task,
    tasks,
)
from dalsegno.testing.contract.stack import ContractStack, Topic
from dalsegno.testing.histories import History, order_problems


class LedgerCancelRequests(Topic):
    guarantees = frozenset(("L1", "L2", "L5", "L6"))
    needs = frozenset(("commit", "leases", "pausing", "scripts"))

    async def test_l2_suspended_script_is_told(self, stack: ContractStack) -> None:
        await suspend(stack, need=9)

        [applied] = await stack.apply(ask_to_end())

        assert [found.token for found in applied.ready] == [resume_id(1)]
        machine = await machine_of(stack)
        assert (machine.cancel, machine.interrupted, machine.version) == ("cancel", False, 1)
        assert await stack.kinds() == ["ExecutionStarted", "CancelRequested"]
        assert (await stack.execution()).state == "RUNNING"

    async def test_l6_script_that_runs_is_told_in_its_next_run(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(step((await tasks(stack))["t1"], done(1)))
        running = await resume_lease(stack, 1)

        [asked] = await stack.apply(ask_to_end())
        [applied] = await stack.apply(step(running, save(1, 1, need=9)))

        assert asked.ready == ()
        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_script_that_was_told_sleeps_on(self, stack: ContractStack) -> None:
        """It awaits something during its clean-up."""
        await suspend(stack, task("t1"))
        await stack.apply(ask_to_end())

        [applied] = await stack.apply(step(await resume_lease(stack, 1), save(1, interrupted=True)))
        assert (applied.ready, await resumes(stack)) == ((), [])
        await stack.apply(step((await tasks(stack))["t1"], done(1)))
        await stack.apply(step(await resume_lease(stack, 2), save(2, 1)))

        machine = await machine_of(stack)
        assert (machine.cancel, machine.interrupted) == ("cancel", True)
        assert await resumes(stack) == []

    async def test_l6_script_is_not_told_of_a_request_before_it_was_made(self, stack: ContractStack) -> None:
        await suspend(stack, interrupted=True, need=9)

        [applied] = await stack.apply(ask_to_end())

        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert not (await machine_of(stack)).interrupted

    async def test_script_that_did_not_start_yet_is_told_in_its_first_run(self, stack: ContractStack) -> None:
        await stack.apply(start_script())

        [applied] = await stack.apply(ask_to_end())

        assert (applied.ready, await resumes(stack)) == ((), [resume_id(0)])
        assert (await machine_of(stack)).cancel == "cancel"

    async def test_l1_second_request_changes_nothing(self, stack: ContractStack) -> None:
        """Regardless of the first request: a cancel does not cut short the clean-up after a timeout."""
        both: tuple[tuple[str, CancelReason], ...] = (("asked", "cancel"), ("late", "timeout"))
        for execution, first in both:
            await suspend(stack, execution=execution, need=9)
            await stack.apply(ask_to_end(execution, first))
            told = await resume_lease(stack, 1, execution)
            before = await stack.picture()

            assert await stack.commit(ask_to_end(execution)) == [AlreadyApplied()]
            assert await stack.picture() == before
            await stack.apply(step(told, save(1, interrupted=True)))
            assert await stack.commit(ask_to_end(execution)) == [AlreadyApplied()]

            assert await stack.kinds(execution) == ["ExecutionStarted", "CancelRequested"]
            assert (await machine_of(stack, execution)).cancel == first

    async def test_paused_script_is_resumed_to_clean_up(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(pause())

        [applied] = await stack.apply(ask_to_end())

        assert applied.ended is None
        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert (await stack.execution()).state == "RUNNING"
        assert await stack.kinds() == [
            "ExecutionStarted",
            "ExecutionPaused",
            "CancelRequested",
            "ExecutionResumed",
        ]

    async def test_script_does_not_end_before_it_is_told(self, stack: ContractStack) -> None:
        """Its last run began before the request: the ending is refused, and the next run receives the request."""
        await suspend(stack, task("t1"))
        await stack.apply(step((await tasks(stack))["t1"], done(1)))
        running = await resume_lease(stack, 1)
        await stack.apply(ask_to_end())

        assert await stack.commit(step(running, save(1, 1), finish("COMPLETED"))) == [Stale("version")]
        assert (await stack.execution()).state == "RUNNING"
        [applied] = await stack.apply(step(running, save(1, 1, interrupted=True), finish("CANCELLED")))

        assert applied.ended == "CANCELLED"

    async def test_deadline_does_not_pass_in_a_pause(self, stack: ContractStack) -> None:
        """It was leased when the pause began."""
        due = stack.clock.now() + 5
        await suspend(stack, token("timeout", kind="deadline", live=False, due=due), need=9)
        stack.clock.advance(5)
        assert [found.token for found in (await stack.ledger.wake()).ready] == ["timeout"]
        lease = (await tasks(stack))["timeout"]
        await stack.apply(pause())
        request = RequestCancel("timeout", event("CancelRequested", ""), finish("FAILED"))

        assert await stack.commit(step(lease, request)) == [Stale("paused")]
        stack.clock.advance(60)
        assert (await stack.ledger.wake()).ready == ()
        assert (await machine_of(stack)).cancel == ""
        await stack.apply(resume())
        assert [found.token for found in (await stack.ledger.wake()).ready] == ["timeout"]
        [applied] = await stack.apply(step((await tasks(stack))["timeout"], request))

        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert (await machine_of(stack)).cancel == "timeout"

    async def test_l2_what_an_ending_at_once_owes_is_owed_with_it_only(self, stack: ContractStack) -> None:
        await suspend(stack, need=9)
        owed = (WriteOutbox("run-1/children", "cancel_children", b"{}"),)
        asked = command(
            RUN, RequestCancel("cancel", event("CancelRequested", ""), finish("CANCELLED"), owed=owed)
        )

        [applied] = await stack.apply(asked)
        assert (applied.owes, await stack.ledger.outbox()) == (False, [])
        graph = msgspec.structs.replace(asked, execution="graph")
        await stack.apply(start(new_execution("graph"), token("a")))
        [applied] = await stack.apply(graph)

        assert (applied.owes, applied.ended) == (True, "CANCELLED")
        assert [entry.topic for entry in await stack.ledger.outbox()] == ["cancel_children"]

    async def test_other_kinds_end_at_once(self, stack: ContractStack) -> None:
        for kind in ("graph", "task", "schedule"):
            await stack.apply(start(new_execution(kind, kind=kind), token("a")))

            [applied] = await stack.apply(ask_to_end(kind))

            assert applied.ended == "CANCELLED"
            assert await stack.kinds(kind) == ["ExecutionStarted", "ExecutionCancelled"]

    async def test_timeout_is_a_request_of_its_deadline_token(self, stack: ContractStack) -> None:
        await suspend(stack, token("timeout", kind="deadline", live=False), need=9)
        lease = (await tasks(stack))["timeout"]
        request = RequestCancel("timeout", event("CancelRequested", ""), finish("FAILED"))

        [applied] = await stack.apply(step(lease, request))

        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert (await machine_of(stack)).cancel == "timeout"

    async def test_l1_request_is_not_lost_to_a_fused_commit(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(ask_to_end())

        fused = save(1, 0, settled=done(1).completion, need=9)
        assert await stack.commit(step(lease, fused)) == [Stale("version")]
        await stack.apply(step(lease, done(1)))

        assert await resumes(stack) == [resume_id(1)]

    async def test_signals_and_completions_go_on_while_it_cleans_up(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(ask_to_end())
        told = save(1, interrupted=True, need=9, signals=("approved",))
        await stack.apply(step(await resume_lease(stack, 1), told))

        [applied] = await stack.apply(signal())

        assert [found.token for found in applied.ready] == [resume_id(2)]


class LedgerOrders(Topic):
    guarantees = frozenset(("L1", "L2"))
    needs = frozenset(("commit", "scripts"))

    async def test_l1_an_order_is_carried_out_once(self, stack: ContractStack) -> None:
        """By the first process that sends it, also after the settled promise is forgotten."""
        await stack.apply(start(new_execution("child"), token("a")))
        await stack.apply(command("child", WriteOutbox("child/ended", "ended", b"{}")))
        await suspend(stack, need=1)
        told = Transition(RUN, (TakeOrder("child/ended"), delivered(1)), (event("ChildEnded", "child"),))

        [applied] = await stack.apply(told)
        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert await stack.ledger.outbox() == []
        assert await stack.commit(told) == [AlreadyApplied()]
        await stack.apply(step(await resume_lease(stack, 1), save(1, 1, reachable=((5, 9),))))
        assert await stack.commit(told, told) == [AlreadyApplied(), AlreadyApplied()]

        assert (await stack.kinds()).count("ChildEnded") == 1

    async def test_l1_an_order_that_is_delivered_twice_in_one_batch(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution("child"), token("a")))
        await stack.apply(command("child", WriteOutbox("child/ended", "ended", b"{}")))
        await suspend(stack, need=9)
        told = Transition(RUN, (TakeOrder("child/ended"), delivered(1)), (event("ChildEnded", "child"),))

        outcomes = await stack.commit(told, told)

        assert [type(outcome) for outcome in outcomes] == [Applied, AlreadyApplied]
        assert (await stack.kinds()).count("ChildEnded") == 1


class LedgerStartedRuns(Topic):
    guarantees = frozenset(("L1", "L4", "L8"))
    needs = frozenset(("commit", "leases", "scripts", "time"))

    async def test_l1_a_run_is_shown_as_started_once(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        shown = _shown(leases["a"])

        outcomes = await stack.commit(shown, _shown(leases["b"]), shown)
        again = await stack.commit(shown)

        assert [type(outcome) for outcome in (*outcomes, *again)] == [
            Applied,
            Applied,
            AlreadyApplied,
            AlreadyApplied,
        ]
        assert (await stack.kinds()).count("NodeStarted") == 2
        await stack.apply(step(leases["a"], events=[event()]))

    async def test_l4_a_run_that_is_over_is_not_shown_as_started(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a"), token("b")))["a"]
        await stack.apply(step(lease, events=[event()]))

        assert await stack.commit(_shown(lease)) == [AlreadyApplied()]
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted"]

    async def test_l4_every_lease_of_a_token_is_shown_once(self, stack: ContractStack) -> None:
        """A retry runs again and is shown again; the previous lease holder shows nothing."""
        first = (await stack.begin(token("a")))["a"]
        await stack.apply(_shown(first))
        await stack.apply(step(first, park=Park(stack.clock.now(), b"{}", 2), events=[event("NodeRetrying")]))
        await stack.commit(
            step(first, park=Park(stack.clock.now(), b"{}", 2), events=[event("NodeRetrying")])
        )
        stack.clock.advance(1)
        await stack.ledger.wake()
        [second] = (await stack.take()).values()

        assert await stack.commit(_shown(first)) == [AlreadyApplied()]
        await stack.apply(_shown(second))
        assert await stack.commit(_shown(second)) == [AlreadyApplied()]
        await stack.apply(step(second, events=[event()]))

        assert (await stack.kinds())[1:] == ["NodeStarted", "NodeRetrying", "NodeStarted", "NodeCompleted"]

    async def test_l8_times_of_what_a_sweep_records_follow_the_end(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a"), token("b")))
        stack.clock.advance(5)
        await stack.apply(command(RUN, finish("CANCELLED")))
        ended = stack.clock.now()
        stack.clock.advance(60)

        await sweep_all(stack)

        events = await stack.events()
        assert [found.at for found in events if found.kind == "NodeCancelled"] == [ended, ended]
        assert order_problems(History(await stack.execution(), events)) == []


def _shown(lease: Lease) -> Transition:
    return command(lease.execution, MarkStarted(lease.token, lease.fence), events=[event("NodeStarted")])


class LedgerDroppedTokens(Topic):
    guarantees = frozenset(("L4", "L5"))
    needs = frozenset(("commit", "time", "sweep", "scripts"))

    async def test_l5_dropped_tokens_go_whatever_they_are_doing(self, stack: ContractStack) -> None:
        later = stack.clock.now() + 5
        timer = token("asleep", kind="timer", due=later)
        await suspend(stack, task("running"), timer, task("stays", queue="later"))
        lease = (await tasks(stack))["running"]
        await stack.apply(command(RUN, task("ready")))

        dropped = DropTokens(("running", "asleep", "ready", "absent", resume_id(0)))
        [applied] = await stack.apply(command(RUN, dropped))

        assert applied.ready == ()
        assert set(await stack.tokens()) == {"stays"}
        assert await stack.commit(step(lease, done(1))) == [Stale("fence")]
        stack.clock.advance(5)
        assert (await stack.ledger.wake()).ready == ()
        assert await stack.take() == {}

    async def test_l5_history_names_the_tasks_that_were_dropped(self, stack: ContractStack) -> None:
        timer = token("asleep", kind="timer", due=stack.clock.now() + 5)
        await suspend(stack, task("t1"), task("t2"), timer)

        await stack.apply(command(RUN, DropTokens(("t2", "asleep", "t1"))))
        await stack.apply(command(RUN, DropTokens(("t2",))))

        told = [(found.kind, found.node, found.token) for found in await stack.events()]
        assert told[1:] == [("TaskCancelled", "charge", "t2"), ("TaskCancelled", "charge", "t1")]

    async def test_resume_token_is_not_dropped(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(step((await tasks(stack))["t1"], done(1)))

        await stack.apply(command(RUN, DropTokens((resume_id(1),))))

        assert await resumes(stack) == [resume_id(1)]

    async def test_l4_token_spawned_and_dropped_in_one_transition(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        lease = await resume_lease(stack, 0)

        await stack.apply(step(lease, save(0), task("t1"), DropTokens(("t1",))))

        assert await stack.tokens() == {}
        assert await stack.take() == {}

    async def test_token_that_is_dropped_at_once_is_left_to_nobody(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        lease = await resume_lease(stack, 0)
        effects = (save(0), task("t1"), task("t2"), DropTokens(("t1",)))

        [applied] = await stack.apply(step(lease, *effects, keep=["t1", "t2"], worker="w1"))

        assert applied.kept == ("t2",)
        assert list(await stack.tokens()) == ["t2"]

    async def test_dropped_tokens_are_swept_with_the_rest(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(command(RUN, DropTokens(("t1",))))
        await stack.apply(command(RUN, finish()))

        await sweep_all(stack)

        assert [found.kind for found in await stack.events()].count("TaskCancelled") == 1


class LedgerScriptSweep(Topic):
    guarantees = frozenset(("L5", "L9"))
    needs = frozenset(("commit", "sweep", "archive", "scripts"))

    async def test_l5_machine_inbox_and_mailbox_are_swept(self, stack: ContractStack) -> None:
        await suspend(stack, *(task(f"t{number}") for number in range(20)), need=99)
        leases = await tasks(stack)
        await stack.apply(*(step(leases[f"t{number}"], done(number)) for number in range(20)))
        await stack.apply(*(signal(f"s{number}") for number in range(20)))
        await stack.apply(command(RUN, finish()))
        assert len((await machine_of(stack)).completions) == 20

        assert await sweep_all(stack, limit=7) >= 60

        assert await stack.ledger.machine(RUN) is None
        assert await stack.ledger.sweep() == 0

    async def test_l9_sweep_leaves_other_machines_alone(self, stack: ContractStack) -> None:
        await suspend(stack, snapshot=b"mine")
        await suspend(stack, execution="run-2", snapshot=b"theirs")
        await stack.apply(signal(execution="run-2"), command(RUN, finish()))

        await sweep_all(stack)

        found = await machine_of(stack, "run-2")
        assert (found.snapshot, len(found.signals)) == (b"theirs", 1)

    async def test_suspended_script_is_found_by_the_reconciler(self, stack: ContractStack) -> None:
        """A suspended script has no token at all."""
        await suspend(stack)
        stack.clock.advance(300)

        assert await stack.ledger.untouched(stack.clock.now() - 1, "", 10) == ((RUN,), "")
        assert await stack.ledger.ready(RUN) == ()
        assert await stack.tokens() == {}

    async def test_removed_script_leaves_nothing(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(signal(), command(RUN, finish()))
        stack.clock.advance(10)

        assert await stack.archive.remove_ended(stack.clock.now()) == 1

        assert await stack.ledger.machine(RUN) is None
        await suspend(stack)
        machine = await machine_of(stack)
        assert (machine.version, machine.signals, machine.completions) == (1, (), ())


def by_hand(view: TokenView, *spawned: NewToken, park: Park | None = None) -> Transition:
    """The transition of a person who has seen the token in this state."""
    return Transition(
        RUN,
        tuple(SpawnToken(each) for each in spawned),
        (event("NodeCompleted", view.node),),
        view.id,
        view.fence,
        view.scope,
        park=park,
        hand=view.attempt,
    )


async def seen(stack: ContractStack, name: str = "a") -> TokenView:
    return (await stack.tokens())[name]


class LedgerByHand(Topic):
    guarantees = frozenset(("L1", "L4", "L6"))
    needs = frozenset(("commit", "leases", "time", "pausing", "scripts", "limits"))

    async def test_l1_once_a_person_settles_a_ready_token_and_no_claim_finds_it(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start(RUN, token("a")))
        await stack.apply(by_hand(await seen(stack), token("b")))
        assert set(await stack.take()) == {"b"}

    async def test_l4_fenced_holder_is_late_where_a_person_was_first(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(by_hand(await seen(stack), token("b")))
        before = await stack.picture()

        same = step(lease, token("b"), events=[event()])
        assert await stack.commit(same) == [Stale("fence")]
        assert await stack.commit(step(lease, park=Park(stack.clock.now() + 1, b"", 2))) == [Stale("fence")]
        assert await stack.picture() == before

    async def test_l4_fenced_person_is_late_where_the_holder_was_first(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        view = await seen(stack)
        await stack.apply(step(lease, token("b"), events=[event()]))
        before = await stack.picture()

        assert await stack.commit(by_hand(view, token("b"))) == [Stale("fence")]
        assert await stack.picture() == before

    async def test_l1_once_of_a_person_and_the_holder_one_is_applied(self, stack: ContractStack) -> None:
        for turn in range(10):
            name, run = f"t{turn}", f"run-{turn}"
            lease = (await stack.begin(token(name), token(f"{name}-more"), execution=run))[name]
            view = (await stack.tokens(run))[name]
            hand = replace(by_hand(view), execution=run)
            other = step(lease, events=[event("NodeCompleted", name)])
            [one], [two] = await asyncio.gather(stack.commit(hand), stack.commit(other))
            assert sorted(type(outcome).__name__ for outcome in (one, two)) == ["Applied", "Stale"]
            assert (await stack.kinds(run)).count("NodeCompleted") == 1

    async def test_l1_once_the_same_hand_twice_is_applied_once(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        hand = by_hand(await seen(stack), token("b"))
        await stack.apply(hand)
        assert await stack.commit(hand) == [AlreadyApplied()]
        assert set(await stack.take()) == {"b"}

    async def test_l1_once_sleeping_token_is_settled_and_does_not_wake(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, b"", 2)))
        await stack.apply(by_hand(await seen(stack), token("b")))
        stack.clock.advance(10)
        assert (await stack.ledger.wake()).ready == ()
        assert set(await stack.take()) == {"b"}

    async def test_l4_fenced_what_a_person_saw_of_another_attempt_does_not_count(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        view = await seen(stack)
        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, b"", 2)))
        assert await stack.commit(by_hand(view)) == [Stale("fence")]

    async def test_l4_fenced_token_that_was_put_back_is_given_out_under_a_new_fence(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        again = Park(None, lease.data, lease.attempt, again=True)
        hand = by_hand(await seen(stack), park=again)
        [applied] = await stack.apply(hand)
        assert [ready.token for ready in applied.ready] == ["a"]
        assert await stack.commit(hand) == [AlreadyApplied()]
        assert await stack.commit(step(lease, events=[event()])) == [Stale("fence")]

        taken = (await stack.take("w2"))["a"]
        assert (taken.fence, taken.attempt, taken.losses, taken.data) == (lease.fence + 2, 1, 0, lease.data)
        assert isinstance((await stack.commit(step(taken)))[0], Applied)

    async def test_l6_put_back_in_a_pause_it_is_given_out_after_it(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(pause())
        await stack.apply(by_hand(await seen(stack), park=Park(None, lease.data, 1, again=True)))
        assert await stack.take() == {}
        await stack.apply(resume())
        assert set(await stack.take()) == {"a"}

    async def test_l6_slot_of_a_token_that_a_person_settles_is_free(self, stack: ContractStack) -> None:
        one = Allowance(concurrency=1)
        await stack.apply(start(RUN, *(token(name, key="mail", allows=one) for name in ("a", "b", "c"))))
        assert set(await stack.take()) == {"a"}
        await stack.apply(by_hand(await seen(stack, "b")))  # in the queue of the limit
        assert await stack.take() == {}
        [applied] = await stack.apply(by_hand(await seen(stack, "a")))
        assert [ready.token for ready in applied.ready] == ["c"]
        assert set(await stack.take()) == {"c"}

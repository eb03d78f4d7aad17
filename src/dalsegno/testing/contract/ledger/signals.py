"""Signals: kept until taken, in order, once; for scripts and for waiting tokens. Requests, and their answers."""

from __future__ import annotations

from dalsegno.model.effect import EndScope, WakeMachine
from dalsegno.model.machine import Completion, PostedView, SignalView, TakenSignal
from dalsegno.model.transition import AlreadyApplied, Applied, Park, Stale
from dalsegno.testing.contract.builders import (
    RUN,
    cancel,
    command,
    event,
    finish,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import (
    answer,
    done,
    item,
    machine_of,
    open_split,
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


def wait_for(name: str = "approved", due: float | None = None) -> Park:
    return Park(due, b"waiting", 1, awaits=f"signal:{name}")


async def mailbox(stack: ContractStack, execution: str = RUN) -> list[str]:
    return [found.id for found in (await machine_of(stack, execution)).signals]


class LedgerSignals(Topic):
    """Signals to scripts."""

    guarantees = frozenset(("L1", "L2", "L5", "L6", "L9"))
    needs = frozenset(("commit", "leases", "pausing", "sweep", "scripts"))

    async def test_l2_signal_wakes_a_machine_that_waits_for_its_name(self, stack: ContractStack) -> None:
        await suspend(stack, need=9, signals=("refused", "approved"))

        [applied] = await stack.apply(signal())

        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert (await machine_of(stack)).signals == (SignalView("s1", "approved", b'"yes"', 2, place=1),)
        assert await stack.kinds() == ["ExecutionStarted", "SignalReceived"]

    async def test_signal_of_another_name_is_kept_and_wakes_nobody(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))

        [applied] = await stack.apply(signal(name="reminder"))

        assert applied.ready == ()
        assert await mailbox(stack) == ["s1"]

    async def test_signal_before_the_first_run_is_kept(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        [applied] = await stack.apply(signal())
        assert applied.ready == ()

        lease = await resume_lease(stack, 0)
        assert await mailbox(stack) == ["s1"]
        [applied] = await stack.apply(step(lease, save(0, signals=("approved",))))

        assert [found.token for found in applied.ready] == [resume_id(1)]

    async def test_l6_signal_that_arrives_while_a_resume_runs_wakes_in_its_commit(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(step((await tasks(stack))["t1"], done(1)))
        running = await resume_lease(stack, 1)

        [posted] = await stack.apply(signal())
        [applied] = await stack.apply(step(running, save(1, 1, need=9, signals=("approved",))))

        assert posted.ready == ()
        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_l6_signal_is_not_lost_to_a_resume_that_saves_nothing(self, stack: ContractStack) -> None:
        await suspend(stack, need=9, signals=("approved",))
        await stack.apply(signal())

        [applied] = await stack.apply(step(await resume_lease(stack, 1)))

        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_taken_signal_becomes_the_completion_of_its_promise(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal(data=b"\x00data"))

        taken = save(1, 1, taken=[TakenSignal("s1", 7)], signals=("approved",))
        [applied] = await stack.apply(step(await resume_lease(stack, 1), taken))

        machine = await machine_of(stack)
        assert machine.completions == (Completion(7, True, b"\x00data", 1),)
        assert (machine.inbox, machine.read, machine.signals) == (1, 1, ())
        assert applied.ready == ()

    async def test_taken_signal_is_not_stored_for_a_promise_nobody_can_reach(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())

        taken = save(1, 0, taken=[TakenSignal("s1", 7)], reachable=())
        await stack.apply(step(await resume_lease(stack, 1), taken))

        machine = await machine_of(stack)
        assert (machine.completions, machine.signals) == ((), ())

    async def test_taking_a_signal_hides_no_completion_that_came_meanwhile(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("t2"), need=9, signals=("approved",))
        leases = await tasks(stack)
        await stack.apply(signal())
        running = await resume_lease(stack, 1)
        await stack.apply(step(leases["t1"], done(1)))

        [applied] = await stack.apply(step(running, save(1, 1, taken=[TakenSignal("s1", 7)], need=2)))
        assert applied.ready == ()
        [applied] = await stack.apply(step(leases["t2"], done(2)))

        assert [found.token for found in applied.ready] == [resume_id(2)]
        found = (await machine_of(stack)).completions
        assert [(entry.promise, entry.number) for entry in found] == [(7, 1), (1, 2), (2, 3)]

    async def test_taken_signal_stands_among_completions_where_it_came(self, stack: ContractStack) -> None:
        """Also if it is taken late, and all later completions are forgotten in the same commit."""
        await suspend(stack, task("t1"), task("t2"), task("t3"), need=9)
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        await stack.apply(signal())
        await stack.apply(step(leases["t2"], done(2)))
        await stack.apply(command(RUN, WakeMachine()))

        taken = save(1, 3, taken=[TakenSignal("s1", 7)], reachable=((3, 9),))
        await stack.apply(step(await resume_lease(stack, 1), taken))
        await stack.apply(step(leases["t3"], done(3)))

        found = (await machine_of(stack)).completions
        assert [(entry.promise, entry.number) for entry in found] == [(7, 2), (3, 4)]

    async def test_signals_are_kept_in_the_order_of_their_arrival(self, stack: ContractStack) -> None:
        await suspend(stack)
        names = ["b", "a", "b", "c", "a"]

        for number, name in enumerate(names):
            await stack.apply(signal(f"id-{9 - number}", name))

        found = (await machine_of(stack)).signals
        assert [view.name for view in found] == names
        assert [view.number for view in found] == [2, 3, 4, 5, 6]

    async def test_signals_that_wait_are_counted_up_to_a_number(self, stack: ContractStack) -> None:
        assert await stack.ledger.waiting_signals(RUN, 10) == 0
        await suspend(stack, signals=("approved",))
        for number in range(4):
            await stack.apply(signal(f"s{number}", "approved" if number else "other"))
        counted = [await stack.ledger.waiting_signals(RUN, most) for most in (10, 4, 2)]
        assert counted == [4, 4, 2]
        taken = save(1, 0, taken=[TakenSignal("s1", 7)])
        await stack.apply(step(await resume_lease(stack, 1), taken))
        assert await stack.ledger.waiting_signals(RUN, 10) == 3

    async def test_signal_queued_behind_another_wakes_again(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal("s1"), signal("s2"))

        taken = save(1, 0, taken=[TakenSignal("s1", 1)], signals=("approved",))
        [applied] = await stack.apply(step(await resume_lease(stack, 1), taken))

        assert [found.token for found in applied.ready] == [resume_id(2)]
        assert await mailbox(stack) == ["s2"]

    async def test_l1_same_signal_twice_counts_once(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(signal(data=b"first"))
        before = await stack.picture()

        assert await stack.commit(signal(data=b"second")) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_same_signal_twice_in_one_batch_counts_once(self, stack: ContractStack) -> None:
        await suspend(stack)

        outcomes = await stack.commit(signal(), signal())

        assert [type(outcome) for outcome in outcomes] == [Applied, AlreadyApplied]

    async def test_l1_signal_that_was_taken_is_still_recognised(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())
        await stack.apply(
            step(await resume_lease(stack, 1), save(1, 0, taken=[TakenSignal("s1", 1)], reachable=()))
        )
        before = await stack.picture()

        assert await stack.commit(signal()) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_taking_what_is_not_there_is_harmless(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())

        taken = save(1, 0, taken=[TakenSignal("s1", 1), TakenSignal("absent", 2), TakenSignal("s1", 3)])
        await stack.apply(step(await resume_lease(stack, 1), taken))

        assert [found.promise for found in (await machine_of(stack)).completions] == [1]

    async def test_l5_signal_to_an_ended_execution_is_stale(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(cancel())

        assert await stack.commit(signal()) == [Stale("finished")]
        while await stack.ledger.sweep():
            pass
        assert await stack.commit(signal()) == [Stale("finished")]

    async def test_signal_to_nobody_is_stale(self, stack: ContractStack) -> None:
        assert await stack.commit(signal()) == [Stale("unknown")]

    async def test_l9_signal_of_the_same_id_reaches_each_execution(self, stack: ContractStack) -> None:
        await suspend(stack)
        await suspend(stack, execution="run-2")

        await stack.apply(signal(data=b"1"), signal(data=b"2", execution="run-2"))

        mailboxes = [(await machine_of(stack, name)).signals for name in (RUN, "run-2")]
        assert [[found.data for found in box] for box in mailboxes] == [[b"1"], [b"2"]]

    async def test_signal_during_a_pause_resumes_after_it(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(pause())

        [posted] = await stack.apply(signal())
        assert (posted.ready, await stack.take()) == ((), {})
        await stack.apply(resume())

        assert set(await stack.take()) == {resume_id(1)}

    async def test_many_signals_cause_one_resume(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))

        await stack.apply(*(signal(f"s{number}") for number in range(50)))

        assert await resumes(stack) == [resume_id(1)]
        assert await mailbox(stack) == [f"s{number}" for number in range(50)]


class LedgerSignalledTokens(Topic):
    """Signals to graphs: a token parked for a signal."""

    guarantees = frozenset(("L1", "L2", "L5", "L9"))
    needs = frozenset(("commit", "pausing", "time", "scripts"))

    async def test_l2_signal_wakes_the_token_that_waits_for_it(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for()))
        found = (await stack.tokens())["a"]
        assert (found.state, found.awaits) == ("parked", "signal:approved")

        [applied] = await stack.apply(signal(data=b"\x00yes"))

        assert [ready.token for ready in applied.ready] == ["a"]
        lease = (await stack.take())["a"]
        assert (lease.reason, lease.data, lease.attempt) == ("arrival", b"waiting", 1)
        assert await stack.ledger.outputs(RUN, ["a/arrival"]) == {"a/arrival": b"\x00yes"}
        assert (await stack.tokens())["a"].awaits is None

    async def test_signal_that_is_there_already_wakes_at_once(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(signal("s1", data=b"1"), signal("s2", data=b"2"))

        parked = step(leases["a"], park=Park(None, b"new data", 3, "signal:approved"))
        [applied] = await stack.apply(parked)

        assert [ready.token for ready in applied.ready] == ["a"]
        assert await stack.commit(parked) == [AlreadyApplied()]
        [lease] = await stack.claim()  # once, although it became ready while it was being parked
        assert (lease.reason, lease.data, lease.attempt) == ("arrival", b"new data", 3)
        assert await stack.ledger.outputs(RUN, ["a/arrival"]) == {"a/arrival": b"1"}

    async def test_signals_are_taken_first_come_first_served(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        for name in ("b", "c", "a"):
            stack.clock.advance(1)
            await stack.apply(step(leases[name], park=wait_for()))

        woken = []
        for number in range(3):
            [applied] = await stack.apply(signal(f"s{number}", data=b"%d" % number))
            woken += [ready.token for ready in applied.ready]

        assert woken == ["b", "c", "a"]
        arrivals = await stack.ledger.outputs(RUN, ["a/arrival", "b/arrival", "c/arrival"])
        assert arrivals == {"b/arrival": b"0", "c/arrival": b"1", "a/arrival": b"2"}

    async def test_one_signal_wakes_one_token(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], park=wait_for()), step(leases["b"], park=wait_for()), signal())

        assert set(await stack.take()) == {"a"}
        assert (await stack.tokens())["b"].state == "parked"

    async def test_signal_of_another_name_leaves_the_token_asleep(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for("approved")))

        await stack.apply(signal(name="approve"), signal("s2", name="approved by ann"))

        assert await stack.take() == {}

    async def test_l1_repeated_signal_wakes_nobody_else(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], park=wait_for()), step(leases["b"], park=wait_for()))
        await stack.apply(signal())

        assert await stack.commit(signal()) == [AlreadyApplied()]
        assert set(await stack.take()) == {"a"}

    async def test_wait_that_runs_out_does_not_swallow_the_next_signal(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], park=wait_for(due=stack.clock.now() + 5)))
        await stack.apply(step(leases["b"], park=wait_for()))
        stack.clock.advance(5)

        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["a"]
        lease = (await stack.take())["a"]
        await stack.apply(signal())

        assert lease.reason == "timer"
        assert set(await stack.take()) == {"b"}

    async def test_arrival_ends_the_timer(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for(due=stack.clock.now() + 5)))
        await stack.apply(signal())
        stack.clock.advance(5)

        woken = await stack.ledger.wake()

        assert (woken.ready, woken.next_due) == ((), None)
        assert (await stack.take())["a"].reason == "arrival"

    async def test_token_that_waits_again_gets_the_next_signal(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        for number in range(3):
            await stack.apply(step(lease, park=wait_for()))
            await stack.apply(signal(f"s{number}", data=b"%d" % number))
            lease = (await stack.take())["a"]
            assert await stack.ledger.outputs(RUN, ["a/arrival"]) == {"a/arrival": b"%d" % number}

    async def test_plain_park_waits_for_no_signal(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, park=wait_for()))
        await stack.apply(signal("s1"))
        lease = (await stack.take())["a"]

        await stack.apply(step(lease, park=Park(None, b"", 2)), signal("s2"))

        assert await stack.take() == {}

    async def test_signal_during_a_pause_is_held(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for()))
        await stack.apply(pause())

        [applied] = await stack.apply(signal())
        assert (applied.ready, await stack.take()) == ((), {})
        [resumed] = await stack.apply(resume())

        assert [ready.token for ready in resumed.ready] == ["a"]
        assert (await stack.take())["a"].reason == "arrival"

    async def test_l5_token_of_an_ended_item_swallows_no_signal(self, stack: ContractStack) -> None:
        first, second, sibling = await open_split(stack, 2, also=(token("sibling", item(0)),))
        await stack.apply(step(first, park=wait_for()))
        stack.clock.advance(1)
        await stack.apply(step(second, park=wait_for()))
        await stack.apply(step(sibling, EndScope(item(0), b"1")))

        [applied] = await stack.apply(signal())

        assert [ready.token for ready in applied.ready] == [second.token]

    async def test_l9_signal_stays_in_its_execution(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for()))
        await stack.apply(start("run-2", token("b")))
        other = (await stack.take())["b"]
        await stack.apply(step(other, park=wait_for()))

        await stack.apply(signal(execution="run-2"))

        assert [(lease.execution, lease.token) for lease in await stack.claim()] == [("run-2", "b")]

    async def test_history_shows_the_signal_before_what_it_caused(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for(), events=[event("NodeWaiting")]))
        await stack.apply(signal())
        await stack.apply(step((await stack.take())["a"], events=[event("NodeCompleted")]))

        assert await stack.kinds() == ["ExecutionStarted", "NodeWaiting", "SignalReceived", "NodeCompleted"]


async def posted(stack: ContractStack, id: str = "s1", execution: str = RUN) -> PostedView | None:
    return (await stack.ledger.posted([(execution, id)])).get((execution, id))


class LedgerAnswers(Topic):
    """Answers to what was posted."""

    guarantees = frozenset(("L2", "L5", "L9", "L10"))
    needs = frozenset(("commit", "leases", "sweep", "scripts"))

    async def test_l10_answered_once_by_the_turn_that_takes_the_request(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())
        assert await posted(stack) == PostedView("s1", "approved", 2, False, b"")

        turn = save(1, 1, taken=[TakenSignal("s1", 7)], signals=("approved",))
        await stack.apply(step(await resume_lease(stack, 1), turn, answer(data=b"first")))

        assert await posted(stack) == PostedView("s1", "approved", 2, True, b"first")
        machine = await machine_of(stack)
        assert (machine.completions, machine.signals) == ((Completion(7, True, b'"yes"', 1),), ())
        assert await stack.kinds() == ["ExecutionStarted", "SignalReceived", "RequestAnswered"]

    async def test_l10_second_answer_changes_nothing(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal(), command(RUN, answer(data=b"first")))

        await stack.apply(command(RUN, answer(data=b"second")))

        found = await posted(stack)
        assert found is not None
        assert found.data == b"first"
        assert (await stack.kinds()).count("RequestAnswered") == 1

    async def test_request_answered_in_a_later_turn(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())
        turn = save(1, 1, taken=[TakenSignal("s1", 7)], signals=("approved",))
        await stack.apply(step(await resume_lease(stack, 1), turn))
        assert await posted(stack) == PostedView("s1", "approved", 2, True, b"")

        await stack.apply(command(RUN, answer(data=b"late")))

        assert await posted(stack) == PostedView("s1", "approved", 2, True, b"late")

    async def test_l9_answer_to_an_id_that_nobody_posted_changes_nothing(self, stack: ContractStack) -> None:
        await suspend(stack)
        await suspend(stack, execution="other")
        await stack.apply(signal(execution="other"))

        await stack.apply(command(RUN, answer()))

        assert await posted(stack) is None
        found = await posted(stack, execution="other")
        assert found is not None
        assert not found.taken
        assert "RequestAnswered" not in await stack.kinds()

    async def test_repeated_request_keeps_its_answer(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(signal(), command(RUN, answer(data=b"first")))

        [again] = await stack.commit(signal())

        assert again == AlreadyApplied()
        found = await posted(stack)
        assert found is not None
        assert found.data == b"first"

    async def test_l5_ending_turn_answers_and_nothing_answers_after_it(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal(), signal("s2"))
        lease = await resume_lease(stack, 1)
        await stack.apply(step(lease, save(1, 2), answer(data=b"last"), finish()))

        [refused] = await stack.commit(command(RUN, answer("s2")))

        assert refused == Stale("finished")
        assert await stack.kinds() == [
            "ExecutionStarted",
            "SignalReceived",
            "SignalReceived",
            "RequestAnswered",
            "ExecutionCompleted",
        ]

    async def test_l2_refused_turn_answers_nothing(self, stack: ContractStack) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())
        lease = await resume_lease(stack, 1)

        [refused] = await stack.commit(step(lease, save(0, 1), answer(data=b"early")))

        assert refused == Stale("version")
        assert await posted(stack) == PostedView("s1", "approved", 2, False, b"")

    async def test_unanswered_requests_are_listed_in_order(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(*(signal(name) for name in ("r/b", "r/a", "other", "r/c")))
        await stack.apply(command(RUN, answer("r/a")))

        found = await stack.ledger.unanswered(RUN, "r/", 10)

        assert [each.id for each in found] == ["r/b", "r/c"]
        assert [each.id for each in await stack.ledger.unanswered(RUN, "r/", 1)] == ["r/b"]
        assert await stack.ledger.unanswered("unknown", "r/", 10) == []

    async def test_several_are_read_together_and_none_after_the_sweep(self, stack: ContractStack) -> None:
        await suspend(stack)
        await suspend(stack, execution="other")
        await stack.apply(signal(), signal("s2", execution="other"))
        asked = [(RUN, "s1"), ("other", "s2"), ("other", "s1"), ("unknown", "s1")]
        assert set(await stack.ledger.posted(asked)) == {(RUN, "s1"), ("other", "s2")}
        assert await stack.ledger.posted([]) == {}

        await stack.apply(cancel(RUN))
        while await stack.ledger.sweep():
            pass

        assert set(await stack.ledger.posted(asked)) == {("other", "s2")}

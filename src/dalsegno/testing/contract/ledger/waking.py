"""Resumption of machines: exactly when an awaited result has arrived, and never twice at a time."""

from __future__ import annotations

from dalsegno.model.effect import WakeMachine
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.model.transition import AlreadyApplied, Park
from dalsegno.testing.contract.builders import RUN, command, event, pause, resume, step, token
from dalsegno.testing.contract.script_builders import (
    done,
    failed,
    machine_of,
    resume_id,
    resume_lease,
    resumes,
    save,
    suspend,
    task,
    tasks,
)
from dalsegno.testing.contract.stack import ContractStack, Topic


class LedgerWaking(Topic):
    guarantees = frozenset(("L2", "L3", "L6"))
    needs = frozenset(("commit", "leases", "pausing", "time", "scripts"))

    async def test_needed_number_of_completions_resumes(self, stack: ContractStack) -> None:
        await suspend(stack, *(task(f"t{number}") for number in range(3)), need=3)
        leases = await tasks(stack)

        for number in range(3):
            assert await resumes(stack) == []
            await stack.apply(step(leases[f"t{number}"], done(number)))

        assert await resumes(stack) == [resume_id(1)]

    async def test_first_failure_resumes_where_it_decides(self, stack: ContractStack) -> None:
        await suspend(stack, *(task(f"t{number}") for number in range(5)), need=5, on_failure=True)
        leases = await tasks(stack)

        await stack.apply(step(leases["t0"], done(0)))
        assert await resumes(stack) == []
        await stack.apply(step(leases["t1"], failed(1)))

        assert await resumes(stack) == [resume_id(1)]

    async def test_first_success_resumes_where_it_decides(self, stack: ContractStack) -> None:
        await suspend(stack, *(task(f"t{number}") for number in range(5)), need=5, on_success=True)
        leases = await tasks(stack)

        await stack.apply(step(leases["t0"], failed(0)))
        assert await resumes(stack) == []
        await stack.apply(step(leases["t1"], done(1)))

        assert await resumes(stack) == [resume_id(1)]

    async def test_only_what_is_awaited_resumes(self, stack: ContractStack) -> None:
        names = [f"t{number}" for number in range(5)]
        await suspend(
            stack, *(task(name) for name in names), awaited=((1, 2), (3, 5)), need=2, on_failure=True
        )
        leases = await tasks(stack)

        await stack.apply(step(leases["t0"], failed(0)), step(leases["t1"], done(1)))
        await stack.apply(step(leases["t2"], done(2)))
        assert await resumes(stack) == []
        await stack.apply(step(leases["t4"], done(4)))

        assert await resumes(stack) == [resume_id(1)]
        assert [found.promise for found in (await machine_of(stack)).completions] == [0, 1, 2, 4]

    async def test_l6_new_condition_counts_what_is_awaited_now(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), task("t3"), awaited=((1, 2),))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        running = await resume_lease(stack, 1)
        await stack.apply(step(leases["t2"], done(2)))

        [applied] = await stack.apply(step(running, save(1, 1, awaited=((3, 4),))))
        assert applied.ready == ()
        await stack.apply(step(leases["t3"], done(3)))
        [applied] = await stack.apply(step(await resume_lease(stack, 2), save(2, 1, awaited=((2, 3),))))

        assert [found.token for found in applied.ready] == [resume_id(3)]

    async def test_failure_that_was_read_does_not_resume_again(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], failed(1)))

        [applied] = await stack.apply(
            step(await resume_lease(stack, 1), save(1, 1, need=5, on_failure=True, on_success=True))
        )

        assert applied.ready == ()
        assert await resumes(stack) == []
        await stack.apply(step(leases["t2"], done(2)))
        assert await resumes(stack) == [resume_id(2)]

    async def test_hundred_completions_cause_one_resume(self, stack: ContractStack) -> None:
        await suspend(stack, *(task(f"t{number}") for number in range(100)))
        leases = await tasks(stack)

        batch = [step(leases[f"t{number}"], done(number)) for number in range(100)]
        ready = [found for applied in await stack.apply(*batch) for found in applied.ready]

        assert [found.token for found in ready] == [resume_id(1)]
        assert (await machine_of(stack)).inbox == 100

    async def test_l6_completion_that_arrives_while_a_resume_runs_wakes_in_its_commit(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        running = await resume_lease(stack, 1)

        [late] = await stack.apply(step(leases["t2"], done(2)))
        assert late.ready == ()
        [applied] = await stack.apply(step(running, save(1, 1)))

        assert [found.token for found in applied.ready] == [resume_id(2)]
        machine = await machine_of(stack)
        assert (machine.inbox, machine.read) == (2, 1)

    async def test_l6_new_condition_is_judged_by_what_is_unread(self, stack: ContractStack) -> None:
        names = [f"t{number}" for number in range(4)]
        await suspend(stack, *(task(name) for name in names))
        leases = await tasks(stack)
        await stack.apply(step(leases["t0"], done(0)))
        running = await resume_lease(stack, 1)
        await stack.apply(step(leases["t1"], done(1)), step(leases["t2"], failed(2)))

        [applied] = await stack.apply(step(running, save(1, 1, need=3)))
        assert applied.ready == ()
        [applied] = await stack.apply(step(leases["t3"], done(3)))

        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_l6_failure_that_arrived_meanwhile_wakes_where_it_decides(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        running = await resume_lease(stack, 1)
        await stack.apply(step(leases["t2"], failed(2)))

        [applied] = await stack.apply(step(running, save(1, 1, need=9, on_failure=True)))

        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_completion_that_arrived_meanwhile_and_became_unreachable_does_not_count(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        running = await resume_lease(stack, 1)
        await stack.apply(step(leases["t2"], failed(2)))

        [applied] = await stack.apply(step(running, save(1, 1, on_failure=True, reachable=((5, 9),))))

        assert applied.ready == ()
        assert (await machine_of(stack)).completions == ()

    async def test_need_below_one_counts_as_one(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), need=0)
        assert await resumes(stack) == []

        await stack.apply(step((await tasks(stack))["t1"], done(1)))

        assert await resumes(stack) == [resume_id(1)]

    async def test_worker_may_keep_the_resume_token(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]

        [applied] = await stack.apply(step(lease, done(1), keep=[resume_id(1)], worker="w1"))

        assert (applied.kept, applied.ready) == ((resume_id(1),), ())
        found = (await stack.tokens())[resume_id(1)]
        assert (found.state, found.owner, found.fence) == ("leased", "w1", 1)

    async def test_nudge_resumes_a_machine_that_nothing_has_come_for(self, stack: ContractStack) -> None:
        await suspend(stack, need=5)

        [applied] = await stack.apply(command(RUN, WakeMachine()))
        assert [found.token for found in applied.ready] == [resume_id(1)]

        assert await stack.commit(command(RUN, WakeMachine())) == [AlreadyApplied()]
        assert await resumes(stack) == [resume_id(1)]

    async def test_l6_resume_that_saved_nothing_can_be_resumed_again(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(command(RUN, WakeMachine()))

        await stack.apply(step(await resume_lease(stack, 1)))
        assert (await machine_of(stack)).version == 2
        assert (await machine_of(stack)).snapshot == b"state"
        await stack.apply(step((await tasks(stack))["t1"], done(1)))

        assert await resumes(stack) == [resume_id(2)]

    async def test_l6_completion_during_a_resume_that_saves_nothing_is_not_lost(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(command(RUN, WakeMachine()))
        running = await resume_lease(stack, 1)
        await stack.apply(step((await tasks(stack))["t1"], done(1)))

        [applied] = await stack.apply(step(running))

        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_l6_resume_token_lost_with_its_worker_is_found_again(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        await stack.apply(step((await tasks(stack))["t1"], done(1)))
        await resume_lease(stack, 1)

        assert [found.token for found in await stack.ledger.expire(dead=["w1"])] == [resume_id(1)]
        assert (await stack.take("w2"))[resume_id(1)].losses == 1

    async def test_parked_resume_token_is_the_only_one(self, stack: ContractStack) -> None:
        """A resume that is to be retried later."""
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        lease = await resume_lease(stack, 1)
        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, b"", 2)))

        await stack.apply(step(leases["t2"], done(2)))
        assert await resumes(stack) == [resume_id(1)]
        stack.clock.advance(5)

        assert [found.token for found in (await stack.ledger.wake()).ready] == [resume_id(1)]

    async def test_paused_script_is_resumed_after_the_pause(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(pause())

        [applied] = await stack.apply(step(lease, done(1)))
        assert applied.ready == ()
        assert await stack.take() == {}
        [resumed] = await stack.apply(resume())

        assert [found.token for found in resumed.ready] == [resume_id(1)]
        assert set(await stack.take()) == {resume_id(1)}

    async def test_resume_goes_before_tasks_of_any_priority(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2", queue=SYSTEM_QUEUE, priority=999))
        await stack.apply(step((await tasks(stack))["t1"], done(1)))

        assert [lease.token for lease in await stack.claim(1)] == [resume_id(1)]

    async def test_timer_of_a_script_wakes_and_settles(self, stack: ContractStack) -> None:
        await suspend(stack, token("timer", kind="timer", due=stack.clock.now() + 5, queue=SYSTEM_QUEUE))
        stack.clock.advance(5)

        assert [found.token for found in (await stack.ledger.wake()).ready] == ["timer"]
        lease = (await stack.take())["timer"]
        assert (lease.kind, lease.reason) == ("timer", "timer")
        await stack.apply(step(lease, done(1), events=[event("TimerFired")]))

        assert await resumes(stack) == [resume_id(1)]

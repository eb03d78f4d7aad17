"""Resumption of machines: exactly when an awaited result has arrived, never twice at a time, and with the definition
that the execution has by then.
"""

from __future__ import annotations

from msgspec.structs import replace

from dalsegno.model.effect import MoveMachine, WakeMachine
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import Wake
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.model.transition import AlreadyApplied, Park, Stale, Transition
from dalsegno.testing.contract.builders import (
    RUN,
    cancel,
    command,
    event,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.ledger.pending import submit, trigger
from dalsegno.testing.contract.script_builders import (
    done,
    failed,
    machine_of,
    new_script,
    resume_id,
    resume_lease,
    resume_token,
    resumes,
    save,
    signal,
    start_script,
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


OLD = new_script().definition
NEW = "f" * 64


def move(version: int, *, before: str = OLD, snapshot: bytes = b"moved", execution: str = RUN) -> Transition:
    effect = MoveMachine(version, before, NEW, 7, snapshot, line=9)
    return command(execution, effect, events=[event("VersionChanged", "")])


async def _record(stack: ContractStack) -> ExecutionView:
    found = await stack.ledger.inspect(RUN)
    assert found is not None
    return found.execution


class LedgerMoves(Topic):
    """Scripts that go on with another version of their program: definition and machine change in one commit."""

    guarantees = frozenset(("L1", "L2", "L5"))
    needs = frozenset(("commit", "scripts"))

    async def test_l2_move_changes_the_definition_and_the_machine(self, stack: ContractStack) -> None:
        await suspend(stack, need=2, signals=("go",))

        await stack.apply(move(1))

        view, machine = await _record(stack), await machine_of(stack)
        assert (view.version, view.definition, view.state) == (7, NEW, "RUNNING")
        assert (machine.version, machine.snapshot, machine.line) == (2, b"moved", 9)
        assert machine.wake == Wake(2, signals=("go",))
        assert (await stack.kinds())[-1] == "VersionChanged"
        assert await resumes(stack) == []

    async def test_l2_next_turn_runs_the_new_definition(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        charge = (await tasks(stack))["t1"]

        await stack.apply(move(1))
        await stack.apply(step(charge, done(1)))

        lease = await resume_lease(stack, 2)
        assert lease.definition == NEW
        await stack.apply(step(lease, save(2, read=1)))
        assert (await machine_of(stack)).version == 3

    async def test_l1_turn_of_the_old_definition_is_refused_and_runs_again(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack)
        await stack.apply(command(RUN, WakeMachine()))
        old = await resume_lease(stack, 1)

        await stack.apply(move(1))

        assert await stack.commit(step(old, save(1), task("never"))) == [Stale("fence")]
        assert await stack.commit(step(old, save(2), task("never"))) == [Stale("fence")]
        lease = await resume_lease(stack, 2)
        assert lease.definition == NEW
        await stack.apply(step(lease, save(2)))
        assert "never" not in await stack.tokens()

    async def test_l1_fused_commit_of_the_old_machine_is_refused(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        charge = (await tasks(stack))["t1"]
        await stack.apply(move(1))
        fused = done(1).completion

        assert await stack.commit(step(charge, save(1, settled=fused))) == [Stale("version")]
        await stack.apply(step(charge, done(1)))

        assert (await resume_lease(stack, 2)).definition == NEW

    async def test_l1_move_of_a_machine_that_moved_on_changes_nothing(self, stack: ContractStack) -> None:
        await suspend(stack)
        before = await stack.picture()

        for outdated in (move(0), move(2), move(1, before="0" * 64)):
            assert await stack.commit(outdated) == [Stale("version")]

        assert await stack.picture() == before

    async def test_l2_repeated_move_is_recognised(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(move(1))
        before = await stack.picture()

        assert await stack.commit(move(1)) == [AlreadyApplied()]

        assert await stack.picture() == before

    async def test_l2_what_has_arrived_stays(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), need=2)
        charge = (await tasks(stack))["t1"]
        await stack.apply(step(charge, done(1, b"7")))
        await stack.apply(signal("s1"))

        await stack.apply(move(1))

        machine = await machine_of(stack)
        assert [(each.promise, each.data) for each in machine.completions] == [(1, b"7")]
        assert [each.id for each in machine.signals] == ["s1"]
        assert await resumes(stack) == []
        await stack.apply(command(RUN, done(2)))
        assert (await resume_lease(stack, 2)).definition == NEW

    async def test_l2_move_before_the_first_turn_replaces_its_token(self, stack: ContractStack) -> None:
        first = replace(resume_token(), data=b"begin")
        await stack.apply(start(new_script(), first))
        old = await resume_lease(stack, 0)

        await stack.apply(move(0, snapshot=b""))

        assert await stack.commit(step(old, save(0))) == [Stale("fence")]
        lease = await resume_lease(stack, 1)
        assert (lease.definition, lease.data) == (NEW, b"")
        assert (await machine_of(stack)).snapshot == b""

    async def test_l2_pending_execution_begins_with_the_new_definition(self, stack: ContractStack) -> None:
        await stack.apply(submit(script=True))

        await stack.apply(move(0, snapshot=b""))

        await stack.apply(trigger(RUN, resume_token()))
        lease = await resume_lease(stack, 0)
        assert lease.definition == NEW
        await stack.apply(step(lease, save(0)))

    async def test_l2_paused_execution_is_moved_and_resumes_later(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(pause())
        await stack.apply(command(RUN, WakeMachine()))

        await stack.apply(move(1))

        assert (await stack.tokens())[resume_id(2)].state == "held"
        await stack.apply(resume())
        assert (await resume_lease(stack, 2)).definition == NEW

    async def test_l5_ended_execution_is_not_moved(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        await stack.apply(cancel(RUN))

        assert await stack.commit(move(0, snapshot=b"")) == [Stale("finished")]
        assert resume_id(1) not in await stack.tokens()

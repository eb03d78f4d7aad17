"""Fused commits: the worker that ran a task goes on with the machine in the same commit."""

from __future__ import annotations

from dalsegno.model.effect import WakeMachine
from dalsegno.model.machine import Completion
from dalsegno.model.transition import Stale
from dalsegno.testing.contract.build import (
    RUN,
    command,
    finish,
    pause,
    resume,
    step,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.scripts import (
    SOME,
    done,
    machine_of,
    resume_id,
    resume_lease,
    resumes,
    save,
    signal,
    suspend,
    task,
    tasks,
)
from dalsegno.testing.contract.stack import ContractStack


class LedgerFusedCommits(Topic):
    guarantees = frozenset(("L1", "L2"))
    needs = frozenset(("commit", "pausing", "scripts"))

    async def test_l2_fused_commit_settles_and_saves_at_once(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        fused = save(1, 0, settled=Completion(1, True, b"42"), reachable=((2, 3),))

        [applied] = await stack.apply(step(lease, fused, task("t2")))

        machine = await machine_of(stack)
        assert (machine.version, machine.inbox, machine.read, machine.completions) == (2, 1, 1, ())
        assert [found.token for found in applied.ready] == ["t2"]
        assert set(await stack.tokens()) == {"t2"}

    async def test_settled_completion_is_kept_while_it_is_reachable(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        fused = save(1, 0, settled=Completion(1, False, b"why"), on_failure=True)

        [applied] = await stack.apply(step((await tasks(stack))["t1"], fused))

        machine = await machine_of(stack)
        assert machine.completions == (Completion(1, False, b"why", 1),)
        assert (machine.inbox, machine.read, applied.ready) == (1, 1, ())

    async def test_l1_fused_commit_on_an_old_version_is_refused_and_the_completion_accepted(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(command(RUN, WakeMachine()))
        await stack.apply(step(await resume_lease(stack, 1), save(1)))
        before = await stack.picture()

        fused = step(lease, save(1, 0, settled=Completion(1, True, b"1")), task("t2"))
        assert await stack.commit(fused) == [Stale("version")]
        assert await stack.picture() == before
        await stack.apply(step(lease, done(1)))

        assert await resumes(stack) == [resume_id(2)]

    async def test_l1_fused_commit_that_missed_a_completion_is_refused_and_the_completion_accepted(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("t2"), need=2)
        leases = await tasks(stack)
        await stack.apply(step(leases["t2"], done(2)))
        before = await stack.picture()

        fused = step(leases["t1"], save(1, 0, settled=Completion(1, True, b"1"), need=9))
        assert await stack.commit(fused) == [Stale("version")]
        assert await stack.picture() == before
        [applied] = await stack.apply(step(leases["t1"], done(1)))

        assert [found.token for found in applied.ready] == [resume_id(1)]

    async def test_l1_two_fused_commits_of_one_version_in_one_batch(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)

        outcomes = await stack.commit(
            *(
                step(leases[f"t{number}"], save(1, 0, settled=Completion(number, True, b"")))
                for number in (1, 2)
            )
        )

        assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "Stale"]
        assert (await machine_of(stack)).version == 2

    async def test_l1_fused_commit_that_missed_a_signal_is_refused_and_the_completion_accepted(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(signal())

        assert await stack.commit(step(lease, save(1, 0, settled=Completion(1, True, b"1")))) == [
            Stale("version")
        ]
        await stack.apply(step(lease, done(1)))

        assert await resumes(stack) == [resume_id(1)]

    async def test_paused_script_is_not_gone_on_with(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(pause())

        fused = step(lease, save(1, 0, settled=Completion(1, True, b"1")), finish())
        assert await stack.commit(fused) == [Stale("version")]
        [applied] = await stack.apply(step(lease, done(1)))
        assert applied.ready == ()
        [applied] = await stack.apply(resume())

        assert [found.token for found in applied.ready] == [resume_id(1)]

    async def test_fused_commit_may_end_the_script(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        fused = save(1, 0, settled=Completion(1, True, b"1"), snapshot=b"", reachable=())

        [applied] = await stack.apply(step((await tasks(stack))["t1"], fused, finish()))

        assert applied.ended == "COMPLETED"

    async def test_chain_of_fused_commits_leaves_nothing_in_the_inbox(self, stack: ContractStack) -> None:
        await suspend(stack, task("t0"), reachable=((0, 1),))
        for number in range(20):
            lease = (await tasks(stack))[f"t{number}"]
            fused = save(
                number + 1,
                number,
                settled=Completion(number, True, b"1"),
                reachable=((number + 1, number + 2),),
            )
            await stack.apply(step(lease, fused, task(f"t{number + 1}")))

        machine = await machine_of(stack)
        assert (machine.version, machine.inbox, machine.read, machine.completions) == (21, 20, 20, ())

    async def test_unused_promises_stay_reachable_over_fused_commits(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), reachable=SOME)
        leases = await tasks(stack)
        await stack.apply(step(leases["t2"], save(1, 0, settled=Completion(2, True, b"2"))))

        await stack.apply(step(leases["t1"], save(2, 1, settled=Completion(1, True, b"1"))))

        found = (await machine_of(stack)).completions
        assert [(entry.promise, entry.number) for entry in found] == [(2, 1), (1, 2)]

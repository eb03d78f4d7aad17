"""Tasks that outlive their script: each becomes an execution of its own, in the commit that ends the script."""

from __future__ import annotations

import json

from msgspec.structs import replace

from dalsegno.model.effect import FinishExecution
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import Lease
from dalsegno.model.transition import Park, ReadyToken, Stale
from dalsegno.testing.contract.build import RUN, event, finish, pause, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.ledger_sweep import sweep_all
from dalsegno.testing.contract.scripts import (
    done,
    resume_lease,
    save,
    start_script,
    suspend,
    task,
    tasks,
)
from dalsegno.testing.contract.stack import ContractStack

T1 = task_execution_id("t1")
T2 = task_execution_id("t2")


def end(hand_over: bool = True) -> FinishExecution:
    return FinishExecution("COMPLETED", event("ExecutionCompleted", ""), b'"done"', hand_over=hand_over)


async def end_script(stack: ContractStack, version: int = 1) -> None:
    """By the completion of a task called ``last``."""
    [lease] = await stack.claim(queues=("last",))
    await stack.apply(step(lease, save(version, snapshot=b"", reachable=()), end()))


def moved(lease: Lease) -> Lease:
    """As the worker that runs it knows it after the hand-over."""
    return replace(lease, execution=task_execution_id(lease.token))


class LedgerHandOver(Topic):
    guarantees = frozenset(("L1", "L2", "L4", "L5", "L6", "L8"))
    needs = frozenset(("commit", "leases", "pausing", "time", "sweep", "archive", "scripts"))

    async def test_l2_task_becomes_an_execution_of_its_own(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1", data=b'{"order": 1}', priority=3), task("last", queue="last"))

        await end_script(stack)

        view = await stack.execution(T1)
        assert (view.state, view.kind, view.workflow, view.version) == ("RUNNING", "task", "charge", 0)
        assert (view.parent, view.relation, view.definition) == (RUN, "task", "")
        assert (view.input, view.priority, view.live) == (b'{"order": 1}', 3, 1)
        assert view.created_at == stack.clock.now()
        assert await stack.kinds(T1) == ["ExecutionStarted"]
        assert (await stack.execution()).state == "COMPLETED"

    async def test_l8_history_of_the_script_names_what_it_handed_over(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), task("last", queue="last"))

        await end_script(stack)

        events = await stack.events()
        assert [found.seq for found in events] == [1, 2, 3, 4]
        told = [found for found in events if found.kind == "TaskHandedOver"]
        assert {(found.token, json.loads(found.data or b"")["execution"]) for found in told} == {
            ("t1", T1),
            ("t2", T2),
        }
        assert events[-1].kind == "ExecutionCompleted"

    async def test_ready_task_is_announced_and_claimed_under_its_new_execution(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        [lease] = await stack.claim(queues=("last",))

        [applied] = await stack.apply(step(lease, save(1, reachable=()), end()))

        assert applied.ready == (ReadyToken("t1", T1, "default", 0),)
        assert await stack.ledger.ready(T1) == applied.ready
        [claimed] = await stack.claim()
        assert (claimed.token, claimed.execution, claimed.execution_kind) == ("t1", T1, "task")
        assert claimed.definition == ""

    async def test_l4_worker_that_runs_the_task_commits_under_the_new_execution(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        lease = (await tasks(stack))["t1"]
        await end_script(stack)

        assert await stack.commit(step(lease, done(1))) == [Stale("finished")]
        assert await stack.commit(step(moved(lease), finish(), fence=lease.fence - 1)) == [Stale("fence")]
        [applied] = await stack.apply(step(moved(lease), finish(output=b"42"), events=[event()]))

        assert applied.ended == "COMPLETED"
        view = await stack.execution(T1)
        assert (view.state, view.output) == ("COMPLETED", b"42")

    async def test_l6_lease_moves_with_the_task(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        lease = (await tasks(stack, "w2"))["t1"]
        await end_script(stack)

        found = (await stack.tokens(T1))["t1"]
        assert (found.state, found.owner, found.fence) == ("leased", "w2", lease.fence)
        assert await stack.ledger.expire(dead=["w2"]) == (ReadyToken("t1", T1, "default", 0),)
        [again] = await stack.claim()
        assert (again.execution, again.losses, again.fence) == (T1, 1, lease.fence + 1)

    async def test_l6_task_that_waits_for_its_retry_wakes_under_its_new_execution(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, b"again", 2)))
        await end_script(stack)
        stack.clock.advance(5)

        assert (await stack.ledger.wake()).ready == (ReadyToken("t1", T1, "default", 0),)
        [again] = await stack.claim()
        assert (again.execution, again.attempt, again.data) == (T1, 2, b"again")

    async def test_task_started_by_the_last_run_is_handed_over_too(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        lease = await resume_lease(stack, 0)

        [applied] = await stack.apply(
            step(lease, save(0, reachable=()), task("t1"), task("t2"), end(), keep=["t1"], worker="w1")
        )

        assert (applied.kept, applied.ended) == ((), "COMPLETED")
        assert set(applied.ready) == {
            ReadyToken("t1", T1, "default", 0),
            ReadyToken("t2", T2, "default", 0),
        }
        assert {claimed.execution for claimed in await stack.claim()} == {T1, T2}

    async def test_task_held_by_a_pause_runs_after_the_hand_over(self, stack: ContractStack) -> None:
        await suspend(stack, task("last", queue="last"))
        [lease] = await stack.claim(queues=("last",))
        await stack.apply(pause())

        [applied] = await stack.apply(step(lease, save(1, reachable=()), task("t1"), end()))

        assert applied.ready == (ReadyToken("t1", T1, "default", 0),)
        assert [claimed.execution for claimed in await stack.claim()] == [T1]

    async def test_only_unfinished_tasks_are_handed_over(self, stack: ContractStack) -> None:
        timer = token("timer", kind="timer", due=stack.clock.now() + 5)
        await suspend(stack, task("t1"), task("t2"), timer, task("last", queue="last"), need=9)
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        await end_script(stack)
        stack.clock.advance(5)

        assert await stack.ledger.inspect(T1) is None
        assert await stack.ledger.inspect(T2) is not None
        assert (await stack.ledger.wake()).ready == ()

    async def test_l1_ending_again_hands_nothing_over_again(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        [lease] = await stack.claim(queues=("last",))
        ending = step(lease, save(1, reachable=()), end())
        await stack.apply(ending)
        before = await stack.picture(T1), await stack.picture()

        [outcome] = await stack.commit(ending)

        assert type(outcome).__name__ == "AlreadyApplied"
        assert (await stack.picture(T1), await stack.picture()) == before

    async def test_l5_ended_task_is_not_touched_by_its_parents_sweep(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        lease = (await tasks(stack))["t1"]
        await end_script(stack)

        assert await sweep_all(stack) > 0

        assert set(await stack.tokens(T1)) == {"t1"}
        await stack.apply(step(moved(lease), finish()))
        assert (await stack.execution(T1)).state == "COMPLETED"

    async def test_without_hand_over_tasks_are_cancelled_by_the_sweep(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        [lease] = await stack.claim(queues=("last",))
        await stack.apply(step(lease, save(1, reachable=()), end(hand_over=False)))

        await sweep_all(stack)

        assert await stack.ledger.inspect(T1) is None
        told = [(found.kind, found.node, found.token) for found in await stack.events()]
        assert told[-1] == ("TaskCancelled", "charge", "t1")

    async def test_hand_over_of_many_tasks(self, stack: ContractStack) -> None:
        names = [f"t{number}" for number in range(300)]
        await suspend(stack, *(task(name) for name in names), task("last", queue="last"))

        await end_script(stack)

        leases = await stack.claim(1000)
        assert {lease.execution for lease in leases} == {task_execution_id(name) for name in names}
        await stack.apply(*(step(lease, finish()) for lease in leases))

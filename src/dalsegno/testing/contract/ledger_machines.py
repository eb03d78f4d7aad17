"""Machines of scripts: saved under a version check; completions enter their inbox once, in order."""

from __future__ import annotations

from dalsegno.model.effect import WakeMachine
from dalsegno.model.machine import Completion, MachineView, Wake
from dalsegno.model.token import RESUME_NODE, RESUME_PRIORITY, SYSTEM_QUEUE
from dalsegno.model.transition import AlreadyApplied, ReadyToken, Stale
from dalsegno.testing.contract.build import (
    RUN,
    command,
    event,
    finish,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.scripts import (
    done,
    failed,
    machine_of,
    new_script,
    resume_id,
    resume_lease,
    resume_token,
    resumes,
    save,
    start_script,
    suspend,
    task,
    tasks,
)
from dalsegno.testing.contract.stack import ContractStack


class LedgerMachines(Topic):
    guarantees = frozenset(("L1", "L2", "L3", "L5", "L9"))
    needs = frozenset(("commit", "scripts"))

    async def test_l2_script_starts_with_an_empty_machine(self, stack: ContractStack) -> None:
        await stack.apply(start_script())

        assert await machine_of(stack) == MachineView(
            version=0,
            snapshot=b"",
            reachable=(),
            wake=Wake(),
            inbox=0,
            read=0,
            line=0,
            cancel="",
            interrupted=False,
            completions=(),
            signals=(),
        )
        lease = await resume_lease(stack, 0)
        assert (lease.kind, lease.node, lease.execution_kind) == ("resume", RESUME_NODE, "script")
        assert (lease.queue, lease.priority, lease.live) == (SYSTEM_QUEUE, RESUME_PRIORITY, False)

    async def test_graph_has_no_machine(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))

        assert await stack.ledger.machine(RUN) is None
        assert await stack.ledger.machine("nobody") is None
        assert leases["a"].execution_kind == "graph"

    async def test_l2_save_replaces_the_machine_and_counts_the_version(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        wake = {"need": 3, "on_failure": True, "signals": ("approved", "refused")}
        saved = save(0, snapshot=b"\x00\xff", reachable=((2, 5), (9, 10)), line=12, **wake)  # type: ignore[arg-type]

        await stack.apply(step(await resume_lease(stack, 0), saved, task("t1"), events=[event("Suspended")]))

        machine = await machine_of(stack)
        assert (machine.version, machine.snapshot, machine.line) == (1, b"\x00\xff", 12)
        assert machine.wake == Wake(3, on_failure=True, signals=("approved", "refused"))
        assert machine.reachable == ((2, 5), (9, 10))
        assert await stack.kinds() == ["ExecutionStarted", "Suspended"]
        assert set(await stack.tokens()) == {"t1"}

    async def test_task_has_the_priority_of_its_execution_unless_it_has_its_own(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start(new_script(priority=5), resume_token()))

        await stack.apply(step(await resume_lease(stack, 0), save(0), task("t1"), task("t2", priority=9)))

        assert {name: found.priority for name, found in (await stack.tokens()).items()} == {"t1": 5, "t2": 9}

    async def test_timer_has_the_priority_of_its_execution(self, stack: ContractStack) -> None:
        await stack.apply(start(new_script(priority=5), resume_token()))
        due = stack.clock.now() + 1

        timer = token("t", kind="timer", queue=SYSTEM_QUEUE, due=due, live=False)
        await stack.apply(step(await resume_lease(stack, 0), save(0), timer))

        assert (await stack.tokens())["t"].priority == 5

    async def test_l1_save_of_a_machine_that_moved_on_changes_nothing(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(command(RUN, WakeMachine()))
        lease = await resume_lease(stack, 1)
        before = await stack.picture()

        for version in (0, 2, 7):
            outdated = step(lease, save(version, snapshot=b"x"), task("never"), events=[event()])
            assert await stack.commit(outdated) == [Stale("version")]

        assert await stack.picture() == before
        await stack.apply(step(lease, save(1)))

    async def test_l1_saving_the_same_again_is_recognised(self, stack: ContractStack) -> None:
        await stack.apply(start_script())
        transition = step(await resume_lease(stack, 0), save(0), task("t1"))
        await stack.apply(transition)
        before = await stack.picture()

        assert await stack.commit(transition) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l5_run_that_ends_the_script_is_checked_like_any_other(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(command(RUN, WakeMachine()))
        lease = await resume_lease(stack, 1)

        assert await stack.commit(step(lease, save(0), finish())) == [Stale("version")]
        [applied] = await stack.apply(step(lease, save(1, need=1), finish()))

        assert (applied.ended, applied.ready) == ("COMPLETED", ())
        assert await stack.commit(step(lease, save(2))) == [Stale("finished")]

    async def test_l9_machines_of_two_executions_know_nothing_of_each_other(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), snapshot=b"mine")
        await suspend(stack, task("t1"), execution="run-2", snapshot=b"theirs")
        leases = {lease.execution: lease for lease in await stack.claim(queues=("default",))}

        await stack.apply(step(leases[RUN], done(1)))

        other = await machine_of(stack, "run-2")
        assert (other.snapshot, other.inbox, other.completions) == (b"theirs", 0, ())
        assert [await resumes(stack, name) for name in (RUN, "run-2")] == [[resume_id(1)], []]

    async def test_l3_first_resume_token_belongs_to_version_zero(self, stack: ContractStack) -> None:
        """Before its first run a script is not resumed a second time, whatever happens."""
        await stack.apply(start(new_script(), resume_token()))

        assert await stack.commit(command(RUN, WakeMachine())) == [AlreadyApplied()]
        assert await resumes(stack) == [resume_id(0)]


class LedgerCompletions(Topic):
    guarantees = frozenset(("L1", "L2", "L5"))
    needs = frozenset(("commit", "scripts"))

    async def test_l2_completion_and_resume_token_are_one_commit(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]

        [applied] = await stack.apply(step(lease, done(1, b"42"), events=[event("TaskCompleted")]))

        machine = await machine_of(stack)
        assert (machine.inbox, machine.read) == (1, 0)
        assert machine.completions == (Completion(1, True, b"42", 1),)
        assert applied.ready == (ReadyToken(resume_id(1), RUN, SYSTEM_QUEUE, RESUME_PRIORITY),)

    async def test_completions_are_numbered_in_the_order_of_their_commits(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), task("t3"), need=9)
        leases = await tasks(stack)

        await stack.apply(step(leases["t3"], done(3)))
        await stack.apply(step(leases["t1"], failed(1)), step(leases["t2"], done(2)))

        found = (await machine_of(stack)).completions
        assert [(entry.number, entry.promise, entry.ok) for entry in found] == [
            (1, 3, True),
            (2, 1, False),
            (3, 2, True),
        ]

    async def test_l1_completion_of_a_task_is_counted_once(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        transition = step((await tasks(stack))["t1"], done(1))
        await stack.apply(transition)

        assert await stack.commit(transition) == [AlreadyApplied()]
        assert (await machine_of(stack)).inbox == 1

    async def test_l1_second_completion_of_a_promise_is_left_alone(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), need=2)
        leases = await tasks(stack)

        await stack.apply(step(leases["t1"], done(1, b"first")), step(leases["t2"], done(1, b"second")))

        machine = await machine_of(stack)
        assert machine.completions == (Completion(1, True, b"first", 1),)
        assert await resumes(stack) == []

    async def test_completion_that_nobody_can_reach_is_history_only(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), reachable=((2, 4), (6, 9)))
        lease = (await tasks(stack))["t1"]

        await stack.apply(step(lease, done(4), events=[event("TaskCompleted")]))

        machine = await machine_of(stack)
        assert (machine.inbox, machine.completions) == (0, ())
        assert await stack.tokens() == {}
        assert (await stack.kinds())[-1] == "TaskCompleted"

    async def test_reachability_is_judged_by_half_open_ranges(self, stack: ContractStack) -> None:
        names = [f"t{number}" for number in range(10)]
        await suspend(stack, *(task(name) for name in names), reachable=((2, 4), (6, 8)), need=99)
        leases = await tasks(stack)

        for number, name in enumerate(names):
            await stack.apply(step(leases[name], done(number)))

        assert [found.promise for found in (await machine_of(stack)).completions] == [2, 3, 6, 7]

    async def test_save_forgets_what_is_no_longer_reachable(self, stack: ContractStack) -> None:
        await suspend(stack, *(task(f"t{number}") for number in range(6)), need=6)
        leases = await tasks(stack)
        await stack.apply(*(step(leases[f"t{number}"], done(number)) for number in range(6)))

        await stack.apply(step(await resume_lease(stack, 1), save(1, 6, reachable=((1, 3), (5, 6)))))

        machine = await machine_of(stack)
        assert (machine.inbox, machine.read) == (6, 6)
        assert [found.promise for found in machine.completions] == [1, 2, 5]

    async def test_forgotten_completion_stays_forgotten(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        await stack.apply(step(await resume_lease(stack, 1), save(1, 1, reachable=((2, 3),))))
        await stack.apply(step(leases["t2"], done(2)))

        await stack.apply(step(await resume_lease(stack, 2), save(2, 2, reachable=())))

        machine = await machine_of(stack)
        assert (machine.inbox, machine.completions) == (2, ())

    async def test_l5_completion_for_an_ended_script_is_stale(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"))
        lease = (await tasks(stack))["t1"]
        await stack.apply(command(RUN, finish("CANCELLED")))

        assert await stack.commit(step(lease, done(1))) == [Stale("finished")]
        assert (await machine_of(stack)).inbox == 0

    async def test_completion_for_an_execution_without_machine_goes_nowhere(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"))

        await stack.apply(step(leases["a"], done(1), token("b")))

        assert set(await stack.tokens()) == {"b"}

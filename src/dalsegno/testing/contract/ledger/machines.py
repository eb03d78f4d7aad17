"""Machines of scripts: saved under a version check; completions enter their inbox once, in order.

* Fused commits: the worker that ran a task continues the machine in the same commit.
* Tasks that outlive their script become executions, in the commit that ends the script.
"""

from __future__ import annotations

import json

from msgspec.structs import replace

from dalsegno.model.effect import FinishExecution, StoreOutput, WakeMachine
from dalsegno.model.ids import task_execution_id
from dalsegno.model.machine import Completion, MachineView, Wake
from dalsegno.model.token import RESUME_NODE, RESUME_PRIORITY, SYSTEM_QUEUE, Lease
from dalsegno.model.transition import AlreadyApplied, Park, ReadyToken, Stale
from dalsegno.testing.contract.builders import RUN, command, event, finish, pause, resume, start, step, token
from dalsegno.testing.contract.ledger.ending import sweep_all
from dalsegno.testing.contract.script_builders import (
    SOME,
    delivered,
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
        assert await stack.ledger.machine("absent") is None
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

    async def test_l5_exact_ending_is_refused_once_something_has_arrived(self, stack: ContractStack) -> None:
        """Else the machine that is kept with the ending would lack it."""
        await suspend(stack, task("t1"), need=9)
        await stack.apply(command(RUN, WakeMachine()))
        lease = await resume_lease(stack, 1)
        exact = replace(save(1, read=0), exact=True)
        await stack.apply(command(RUN, delivered(1)))

        assert await stack.commit(step(lease, exact, finish("FAILED"))) == [Stale("version")]
        [applied] = await stack.apply(step(lease, replace(exact, read=1), finish("FAILED")))

        assert applied.ended == "FAILED"

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
        """Before its first run a script is not resumed a second time in any case."""
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
        assert applied.ready == (ReadyToken(resume_id(1), RUN, SYSTEM_QUEUE, RESUME_PRIORITY, RESUME_NODE),)

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

    async def test_l2_journal_changes_with_the_turn_or_not_at_all(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), StoreOutput("turns/0", b"first"))
        lease = (await tasks(stack))["t1"]
        stale = save(0, 0, settled=Completion(1, True, b"42"))
        assert await stack.commit(step(lease, StoreOutput("turns/0", b"none"), stale)) == [Stale("version")]
        assert await stack.ledger.outputs(RUN, ["turns/0"]) == {"turns/0": b"first"}

        fused = save(1, 0, settled=Completion(1, True, b"42"), reachable=((2, 3),))
        await stack.apply(step(lease, StoreOutput("turns/0", b"second"), fused, task("t2")))

        assert (await machine_of(stack)).version == 2
        assert await stack.ledger.outputs(RUN, ["turns/0"]) == {"turns/0": b"second"}

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


T1 = task_execution_id("t1")
T2 = task_execution_id("t2")


def end(hand_over: bool = True) -> FinishExecution:
    return FinishExecution("COMPLETED", event("ExecutionCompleted", ""), b'"done"', hand_over=hand_over)


async def end_script(stack: ContractStack, version: int = 1) -> None:
    """End the script by the completion of a task called ``last``."""
    [lease] = await stack.claim(queues=("last",))
    await stack.apply(step(lease, save(version, snapshot=b"", reachable=()), end()))


def moved(lease: Lease) -> Lease:
    """The lease as its worker knows it after the hand-over."""
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

        assert applied.ready == (ReadyToken("t1", T1, "default", 0, "charge"),)
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
        assert await stack.ledger.expire(dead=["w2"]) == (ReadyToken("t1", T1, "default", 0, "charge"),)
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

        assert (await stack.ledger.wake()).ready == (ReadyToken("t1", T1, "default", 0, "charge"),)
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
            ReadyToken("t1", T1, "default", 0, "charge"),
            ReadyToken("t2", T2, "default", 0, "charge"),
        }
        assert {claimed.execution for claimed in await stack.claim()} == {T1, T2}

    async def test_task_held_by_a_pause_runs_after_the_hand_over(self, stack: ContractStack) -> None:
        await suspend(stack, task("last", queue="last"))
        [lease] = await stack.claim(queues=("last",))
        await stack.apply(pause())

        [applied] = await stack.apply(step(lease, save(1, reachable=()), task("t1"), end()))

        assert applied.ready == (ReadyToken("t1", T1, "default", 0, "charge"),)
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

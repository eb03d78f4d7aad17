"""After a crash the store contains everything that was committed, and nothing else (features durable and shared).

This holds for graphs and scripts, and for several processes on one store.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from dalsegno.model.barrier import SlotView
from dalsegno.model.effect import FinishExecution, MarkStarted, StoreOutput, WriteOutbox
from dalsegno.model.ids import task_execution_id
from dalsegno.model.machine import Completion, TakenSignal
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Park, Stale
from dalsegno.testing.contract.builders import (
    RUN,
    arrive,
    barrier,
    cancel,
    command,
    event,
    finish,
    new_execution,
    start,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import (
    delivered,
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
from dalsegno.testing.contract.stack import ContractStack, Topic


class DurableStore(Topic):
    guarantees = frozenset(("L1", "L2", "L6"))
    needs = frozenset(("commit", "leases", "time", "archive", "blobs", "durable"))

    async def test_l2_durable_commit_survives_a_crash_whole(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        effects = (StoreOutput("o", b"\x00"), arrive(barrier(), 0, b"x"), WriteOutbox("m", "t", b"owed"))
        await stack.apply(step(leases["a"], *effects, events=[event()]))
        before = await stack.picture()

        again = await stack.reopen()

        assert await again.picture() == before
        assert await again.ledger.outputs(RUN, ["o"]) == {"o": b"\x00"}
        assert await again.ledger.slots(RUN, barrier().id) == [SlotView(0, live=True, data=b"x")]
        assert [entry.id for entry in await again.ledger.outbox()] == ["m"]

    async def test_l2_durable_archive_and_blobs_survive(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        definition = await stack.archive.put_definition("orders", "h", "graph", b"{}")
        blob = await stack.blobs.put(RUN, b"large")

        again = await stack.reopen()

        assert await again.archive.definition("orders") == definition
        assert await again.blobs.get(RUN, blob) == b"large"

    async def test_l6_durable_leases_of_the_crashed_process_are_found_again(
        self, stack: ContractStack
    ) -> None:
        await stack.begin(token("a"))
        stack.ledger.heartbeat("w1", 60)

        again = await stack.reopen()
        stack.clock.advance(61)

        assert [ready.token for ready in await again.ledger.expire()] == ["a"]
        assert (await again.take("w2"))["a"].losses == 1

    async def test_l6_durable_timers_wake_after_a_crash(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", due=stack.clock.now() + 5)))

        again = await stack.reopen()
        stack.clock.advance(5)

        assert [ready.token for ready in (await again.ledger.wake()).ready] == ["a"]

    async def test_l6_durable_ready_tokens_are_claimed_after_a_crash(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))

        again = await stack.reopen()

        assert set(await again.take()) == {"a"}

    async def test_l1_durable_commit_whose_answer_was_lost_is_recognised(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])
        await stack.apply(transition)

        again = await stack.reopen()

        assert await again.commit(transition) == [AlreadyApplied()]
        assert await again.kinds() == ["ExecutionStarted", "NodeCompleted"]


class SharedStore(Topic):
    guarantees = frozenset(("L1", "L4", "L5", "L7", "L8"))
    needs = frozenset(("commit", "leases", "archive", "shared"))

    async def test_l1_shared_two_processes_never_lease_the_same_token(self, stack: ContractStack) -> None:
        other = await stack.second()
        await stack.apply(start(RUN, *(token(f"t{number:02}") for number in range(40))))

        claims = await asyncio.gather(
            *(side.claim(5, worker=f"w{number}") for number in range(5) for side in (stack, other))
        )

        taken = [lease.token for leases in claims for lease in leases]
        assert sorted(taken) == [f"t{number:02}" for number in range(40)]

    async def test_l1_shared_duplicates_of_two_processes_apply_once(self, stack: ContractStack) -> None:
        other = await stack.second()
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])

        outcomes = await asyncio.gather(
            *(side.commit(transition) for side in (stack, other) for _ in range(3))
        )

        assert sorted(type(outcome).__name__ for [outcome] in outcomes) == ["AlreadyApplied"] * 5 + [
            "Applied"
        ]
        assert await other.kinds() == ["ExecutionStarted", "NodeCompleted"]

    async def test_l1_shared_a_run_is_shown_as_started_once(self, stack: ContractStack) -> None:
        """Also after the process that recorded it first has forgotten it."""
        other = await stack.second()
        lease = (await stack.begin(token("a")))["a"]
        shown = command(RUN, MarkStarted("a", lease.fence), events=[event("NodeStarted")])

        outcomes = await asyncio.gather(*(side.commit(shown) for side in (stack, other) for _ in range(3)))

        assert sorted(type(outcome).__name__ for [outcome] in outcomes) == ["AlreadyApplied"] * 5 + [
            "Applied"
        ]
        await stack.apply(step(lease, events=[event()]))
        assert await other.kinds() == ["ExecutionStarted", "NodeStarted", "NodeCompleted"]

    async def test_l5_shared_two_endings_of_two_processes(self, stack: ContractStack) -> None:
        other = await stack.second()
        leases = await stack.begin(token("a"), token("b"))

        [first], [second] = await asyncio.gather(
            stack.commit(step(leases["a"], finish())), other.commit(step(leases["b"], finish("FAILED")))
        )

        winner, loser = (first, second) if isinstance(first, Applied) else (second, first)
        assert isinstance(winner, Applied)
        assert loser == Stale("finished")
        assert (await stack.execution()).state == (await other.execution()).state == winner.ended

    async def test_l7_shared_barrier_fed_by_two_processes_opens_once(self, stack: ContractStack) -> None:
        other = await stack.second()
        leases = await stack.begin(*(token(f"t{slot}") for slot in range(16)))
        spec = barrier(expected=16)

        outcomes = await asyncio.gather(
            *(
                (stack, other)[slot % 2].apply(step(leases[f"t{slot}"], arrive(spec, slot)))
                for slot in range(16)
            )
        )

        assert [ready.token for [applied] in outcomes for ready in applied.ready] == ["join-merge"]
        assert set(await other.take()) == {"join-merge"}

    async def test_l8_shared_history_of_two_processes_has_no_gap(self, stack: ContractStack) -> None:
        other = await stack.second()
        leases = await stack.begin(*(token(f"t{number}") for number in range(20)))

        await asyncio.gather(
            *(
                (stack, other)[number % 2].apply(
                    step(leases[f"t{number}"], events=[event(node=f"t{number}")])
                )
                for number in range(20)
            )
        )

        events = await stack.events()
        assert [found.seq for found in events] == list(range(1, 22))
        assert await other.events() == events

    async def test_l4_shared_lease_lost_to_another_process_is_stale(self, stack: ContractStack) -> None:
        other = await stack.second()
        lease = (await stack.begin(token("a")))["a"]
        await other.ledger.expire(dead=["w1"])

        assert await stack.commit(step(lease, token("b"))) == [Stale("fence")]
        assert set(await other.take("w2")) == {"a"}


END = FinishExecution("COMPLETED", event("ExecutionCompleted", ""), hand_over=True)


class DurableScripts(Topic):
    guarantees = frozenset(("L1", "L2", "L6"))
    needs = frozenset(("commit", "leases", "time", "archive", "scripts", "durable"))

    async def test_l2_durable_machine_survives_a_crash_whole(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), need=3, on_failure=True, signals=("approved",), line=7)
        await stack.apply(step((await tasks(stack))["t1"], done(1, b"\x00")))
        await stack.apply(signal(data=b"\xff"), signal("s2", name="other"))
        before = await stack.picture()
        assert before.machine is not None

        again = await stack.reopen()

        assert await again.picture() == before

    async def test_l6_durable_script_goes_on_after_a_crash(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"), need=2)
        await stack.apply(step((await tasks(stack))["t1"], done(1)))

        again = await stack.reopen()
        await again.ledger.expire(dead=["w1"])
        await again.apply(step((await tasks(again))["t2"], done(2)))
        lease = await resume_lease(again, 1)
        await again.apply(step(lease, save(1, 2, reachable=((2, 3),))))

        machine = await machine_of(again)
        assert (machine.version, machine.inbox, machine.read) == (2, 2, 2)
        assert [found.promise for found in machine.completions] == [2]

    async def test_l1_durable_completions_are_known_after_a_crash(self, stack: ContractStack) -> None:
        await suspend(stack, need=9)
        results = [command(RUN, delivered(promise)) for promise in range(5)]
        await stack.apply(*results)

        again = await stack.reopen()

        assert await again.commit(*results) == [AlreadyApplied()] * 5
        await again.apply(command(RUN, delivered(7)))
        assert [found.number for found in (await machine_of(again)).completions] == [1, 2, 3, 4, 5, 6]

    async def test_l6_durable_condition_is_judged_by_what_came_before_the_crash(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        running = await resume_lease(stack, 1)
        await stack.apply(step(leases["t2"], done(2)))

        again = await stack.reopen()
        [applied] = await again.apply(step(running, save(1, 1)))

        assert [found.token for found in applied.ready] == [resume_id(2)]

    async def test_l1_durable_signal_that_was_taken_is_recognised_after_a_crash(
        self, stack: ContractStack
    ) -> None:
        await suspend(stack, signals=("approved",))
        await stack.apply(signal())
        taken = save(1, 0, taken=[TakenSignal("s1", 1)])
        await stack.apply(step(await resume_lease(stack, 1), taken))

        again = await stack.reopen()

        assert await again.commit(signal()) == [AlreadyApplied()]
        assert [found.data for found in (await machine_of(again)).completions] == [b'"yes"']

    async def test_l6_durable_token_that_waits_for_a_signal_is_found_after_a_crash(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["b"], park=Park(None, b"", 1, "signal:approved")))
        stack.clock.advance(1)
        await stack.apply(step(leases["a"], park=Park(stack.clock.now() + 5, b"", 1, "signal:approved")))

        again = await stack.reopen()
        [applied] = await again.apply(signal())
        assert [found.token for found in applied.ready] == ["b"]
        again.clock.advance(5)

        assert [found.token for found in (await again.ledger.wake()).ready] == ["a"]
        [late] = await again.apply(signal("s2"))
        assert late.ready == ()

    async def test_l6_durable_tasks_are_handed_over_after_a_crash(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)
        await stack.apply(step(leases["t1"], done(1)))
        running = await resume_lease(stack, 1)

        again = await stack.reopen()
        await again.apply(step(running, save(1, 1, reachable=()), END))
        last = await again.reopen()

        moved = replace(leases["t2"], execution=task_execution_id("t2"))
        [applied] = await last.apply(step(moved, finish()))
        assert applied.ended == "COMPLETED"

    async def test_l2_durable_notice_is_owed_after_a_crash(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(notify=b"\x00tell"), token("a")))

        again = await stack.reopen()
        await again.apply(cancel())

        assert [(entry.topic, entry.data) for entry in await again.ledger.outbox()] == [
            ("ended", b"\x00tell")
        ]


def _kinds(outcomes: list[list[Outcome]]) -> list[str]:
    return sorted(type(outcome).__name__ for [outcome] in outcomes)


class SharedScripts(Topic):
    guarantees = frozenset(("L1", "L2", "L8"))
    needs = frozenset(("commit", "leases", "archive", "scripts", "shared"))

    async def test_l1_shared_one_of_two_fused_commits_wins(self, stack: ContractStack) -> None:
        other = await stack.second()
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(stack)

        outcomes = await asyncio.gather(
            *(
                side.commit(
                    step(leases[name], save(1, 0, settled=Completion(number, True, b"")), task(f"n{number}"))
                )
                for side, number, name in ((stack, 1, "t1"), (other, 2, "t2"))
            )
        )

        assert _kinds(outcomes) == ["Applied", "Stale"]
        assert [outcome for [outcome] in outcomes if isinstance(outcome, Stale)] == [Stale("version")]
        assert (await machine_of(other)).version == 2

    async def test_l8_shared_completions_are_numbered_without_a_gap(self, stack: ContractStack) -> None:
        other = await stack.second()
        await suspend(stack, *(task(f"t{number}") for number in range(20)), need=20)
        leases = await tasks(stack)

        outcomes = await asyncio.gather(
            *(
                (stack, other)[number % 2].apply(step(leases[f"t{number}"], done(number)))
                for number in range(20)
            )
        )

        found = (await machine_of(stack)).completions
        assert [entry.number for entry in found] == list(range(1, 21))
        assert [ready.token for [applied] in outcomes for ready in applied.ready] == [resume_id(1)]

    async def test_l1_shared_signal_of_two_processes_counts_once(self, stack: ContractStack) -> None:
        other = await stack.second()
        await suspend(stack)

        outcomes = await asyncio.gather(*(side.commit(signal()) for side in (stack, other) for _ in range(3)))

        assert _kinds(outcomes) == ["AlreadyApplied"] * 5 + ["Applied"]

    async def test_l2_shared_processes_take_turns_with_one_machine(self, stack: ContractStack) -> None:
        other = await stack.second()
        await suspend(stack, task("t0"), reachable=((0, 1),))
        for number in range(10):
            mine = (stack, other)[number % 2]
            lease = (await tasks(mine))[f"t{number}"]
            if number % 3:
                settled = Completion(number, True, b"")
                await mine.apply(
                    step(
                        lease,
                        save(number + 1, number, settled=settled, reachable=((number + 1, number + 2),)),
                        task(f"t{number + 1}"),
                    )
                )
            else:
                await mine.apply(step(lease, done(number)))
                yours = (other, stack)[number % 2]
                running = await resume_lease(yours, number + 1)
                await yours.apply(
                    step(
                        running,
                        save(number + 1, number + 1, reachable=((number + 1, number + 2),)),
                        task(f"t{number + 1}"),
                    )
                )

        machine = await machine_of(stack)
        assert (machine.version, machine.inbox, machine.read, machine.completions) == (11, 10, 10, ())
        assert await resumes(other) == []

    async def test_l1_shared_task_handed_over_by_one_process_is_finished_by_another(
        self, stack: ContractStack
    ) -> None:
        other = await stack.second()
        await suspend(stack, task("t1"), task("t2"))
        leases = await tasks(other, "w2")
        await stack.apply(command(RUN, END))

        assert await other.commit(step(leases["t1"], done(1))) == [Stale("finished")]
        moved = replace(leases["t1"], execution=task_execution_id("t1"))
        [outcome] = await other.commit(step(moved, finish()))

        assert isinstance(outcome, Applied)
        assert (await stack.execution(task_execution_id("t1"))).state == "COMPLETED"

"""What a crash leaves behind: everything that was committed, and nothing else (features durable and shared)."""

from __future__ import annotations

import asyncio

from dalsegno.model.barrier import SlotView
from dalsegno.model.effect import StoreOutput, WriteOutbox
from dalsegno.model.transition import AlreadyApplied, Applied, Stale
from dalsegno.testing.contract.build import RUN, arrive, barrier, event, finish, start, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


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

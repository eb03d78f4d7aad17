"""L9: a transition touches only its own execution; claims are fair."""

from __future__ import annotations

import asyncio

from dalsegno.model.effect import LeaveContext, StoreOutput
from dalsegno.model.transition import Applied, Stale, Transition
from dalsegno.testing.contract.build import (
    arrive,
    barrier,
    cancel,
    event,
    finish,
    new_execution,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class LedgerIsolation(Topic):
    guarantees = frozenset(("L9",))

    async def test_l9_isolation_nothing_of_another_execution_can_be_read(self, stack: ContractStack) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        lease = (await stack.take())["a"]
        await stack.apply(
            step(
                lease,
                StoreOutput("out", b"secret"),
                LeaveContext("", "0", b"secret"),
                arrive(barrier(), 0, b"s"),
            )
        )

        assert await stack.ledger.outputs("run-b", ["out"]) == {}
        assert await stack.ledger.left("run-b", "") == []
        assert await stack.ledger.slots("run-b", barrier().id) == []
        assert await stack.ledger.outputs("run-a", ["out", "no-such"]) == {"out": b"secret"}

    async def test_l9_isolation_outputs_of_the_same_id_do_not_meet(self, stack: ContractStack) -> None:
        await stack.apply(
            start("run-a", StoreOutput("out", b"of a")), start("run-b", StoreOutput("out", b"of b"))
        )

        assert await stack.ledger.outputs("run-a", ["out"]) == {"out": b"of a"}
        assert await stack.ledger.outputs("run-b", ["out"]) == {"out": b"of b"}

    async def test_l9_isolation_a_token_cannot_be_consumed_in_anothers_name(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        lease = (await stack.take())["a"]

        assert await stack.commit(Transition("run-b", (), (), "a", lease.fence)) == [Stale("unknown")]
        assert set(await stack.tokens("run-a")) == {"a"}
        assert set(await stack.tokens("run-b")) == {"b"}

    async def test_l9_isolation_cancelling_one_leaves_the_other(self, stack: ContractStack) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        before = await stack.picture("run-b")

        await stack.apply(cancel("run-a"))

        assert await stack.picture("run-b") == before
        assert set(await stack.take()) == {"b"}

    async def test_l9_isolation_batches_at_once_do_not_put_each_other_off(self, stack: ContractStack) -> None:
        """Starts, steps and endings: a process sends the next batch while the one before is under way."""
        groups = [[f"run-{group}-{number}" for number in range(5)] for group in range(4)]

        async def commit_all(batches: list[list[Transition]]) -> None:
            answers = await asyncio.gather(*(stack.ledger.commit(batch) for batch in batches))
            for outcome in (outcome for outcomes in answers for outcome in outcomes):
                assert isinstance(outcome, Applied)

        await commit_all([[start(run, token(f"{run}-a")) for run in runs] for runs in groups])
        leases = await stack.take()
        await commit_all(
            [
                [step(leases[f"{run}-a"], token(f"{run}-b"), events=[event()]) for run in runs]
                for runs in groups
            ]
        )
        leases = await stack.take()
        await commit_all([[step(leases[f"{run}-b"], finish()) for run in runs] for runs in groups])

        for run in (run for runs in groups for run in runs):
            assert (await stack.execution(run)).state == "COMPLETED"
            assert [found.seq for found in await stack.events(run)] == [1, 2, 3]

    async def test_l9_isolation_of_what_does_not_exist(self, stack: ContractStack) -> None:
        assert await stack.ledger.inspect("nowhere") is None
        assert await stack.ledger.outputs("nowhere", ["x"]) == {}
        assert await stack.ledger.left("nowhere", "") == []
        assert await stack.ledger.slots("nowhere", "x") == []
        assert await stack.ledger.ready("nowhere") == ()


class LedgerClaims(Topic):
    guarantees = frozenset(("L9",))

    async def test_l9_claims_take_higher_priority_first_then_age(self, stack: ContractStack) -> None:
        for name, priority in (("old-low", -5), ("old", 0), ("new", 0), ("urgent", 7), ("new-low", -5)):
            await stack.apply(start(f"run-{name}", token(name, priority=priority)))
            stack.clock.advance(1)

        order = [lease.token for lease in await stack.claim()]

        assert order == ["urgent", "old", "new", "old-low", "new-low"]

    async def test_l9_claims_order_across_queues(self, stack: ContractStack) -> None:
        for name, queue in (("t1", "system"), ("t2", "default"), ("t3", "system")):
            await stack.apply(start(f"run-{name}", token(name, queue=queue)))
            stack.clock.advance(1)

        assert [lease.token for lease in await stack.claim()] == ["t1", "t2", "t3"]

    async def test_l9_claims_take_only_from_the_queues_they_name(self, stack: ContractStack) -> None:
        await stack.apply(
            start("run-1", token("a", queue="mail"), token("b", queue="gpu"), token("c", queue="default"))
        )

        assert {lease.token for lease in await stack.claim(queues=["gpu", "mail"])} == {"a", "b"}
        assert await stack.claim(queues=["gpu", "nobody"]) == []
        assert await stack.claim(queues=[]) == []

    async def test_l9_claims_take_at_most_the_limit_oldest_first(self, stack: ContractStack) -> None:
        for number in range(6):
            await stack.apply(start(f"run-{number}", token(f"t{number}")))
            stack.clock.advance(1)

        assert [lease.token for lease in await stack.claim(2)] == ["t0", "t1"]
        assert [lease.token for lease in await stack.claim(2)] == ["t2", "t3"]
        assert [lease.token for lease in await stack.claim(9)] == ["t4", "t5"]

    async def test_l9_claims_a_wide_fan_out_does_not_overtake_what_waits(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("wide")))["wide"]
        await stack.apply(start("run-small", token("patient")))
        stack.clock.advance(1)
        await stack.apply(step(lease, *(token(f"t{number:03}") for number in range(200))))

        assert [lease.token for lease in await stack.claim(1)] == ["patient"]

    async def test_l9_claims_tell_everything_about_the_token(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(definition="hash-7"), token("a", data=b"\x00\xff", priority=3)))
        stack.clock.advance(1)

        [lease] = await stack.claim()

        assert (lease.token, lease.execution, lease.scope, lease.kind, lease.node) == (
            "a",
            "run-1",
            "",
            "node",
            "a",
        )
        assert (lease.data, lease.queue, lease.priority, lease.live) == (b"\x00\xff", "default", 3, True)
        assert (lease.fence, lease.attempt, lease.losses, lease.reason) == (1, 1, 0, "")
        assert (lease.definition, lease.epoch, lease.ready_at) == ("hash-7", 0, stack.clock.now() - 1)

    async def test_l9_claims_show_in_the_tokens_view(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1", token("a"), token("b", due=9e9)))
        await stack.claim(worker="me")

        tokens = await stack.tokens()

        assert (tokens["a"].state, tokens["a"].owner, tokens["a"].fence) == ("leased", "me", 1)
        assert (tokens["b"].state, tokens["b"].owner, tokens["b"].due) == ("parked", None, 9e9)

    async def test_l9_claims_leave_no_trace_in_history(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), events=[event()]))
        before = await stack.events()

        await stack.take()

        assert await stack.events() == before

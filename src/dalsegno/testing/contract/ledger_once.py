"""L1: a token is consumed by at most one applied transition."""

from __future__ import annotations

import asyncio

from dalsegno.model.effect import StoreOutput
from dalsegno.model.transition import AlreadyApplied, Applied, Park, Stale, Transition
from dalsegno.testing.contract.build import RUN, event, start, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class LedgerOnce(Topic):
    guarantees = frozenset(("L1",))

    async def test_l1_once_a_ready_token_is_leased_to_one_claim_only(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))

        first, second = await stack.claim(worker="w1"), await stack.claim(worker="w2")

        assert [lease.token for lease in first] == ["a"]
        assert second == []

    async def test_l1_once_concurrent_claims_share_tokens_without_overlap(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, *(token(f"t{number}") for number in range(20))))

        claims = await asyncio.gather(*(stack.claim(5, worker=f"w{number}") for number in range(6)))

        taken = [lease.token for leases in claims for lease in leases]
        assert sorted(taken) == sorted(f"t{number}" for number in range(20))

    async def test_l1_once_redelivered_commit_is_applied_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])
        await stack.apply(transition)
        before = await stack.picture()

        assert await stack.commit(transition) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_once_same_commit_twice_in_one_batch_is_applied_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])

        first, second = await stack.commit(transition, transition)

        assert isinstance(first, Applied)
        assert second == AlreadyApplied()
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted"]
        assert set(await stack.take()) == {"b"}

    async def test_l1_once_concurrent_duplicates_are_applied_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        transition = step(lease, token("b"), events=[event()])

        outcomes = await asyncio.gather(*(stack.commit(transition) for _ in range(8)))

        kinds = sorted(type(outcome).__name__ for [outcome] in outcomes)
        assert kinds == ["AlreadyApplied"] * 7 + ["Applied"]
        assert (await stack.execution()).live == 1
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted"]

    async def test_l1_once_second_conclusion_about_a_consumed_token_is_stale(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), events=[event()]))
        before = await stack.picture()

        assert await stack.commit(step(lease, token("c"), events=[event("NodeFailed")])) == [Stale("fence")]
        assert await stack.picture() == before

    async def test_l1_once_consumed_token_is_not_handed_out_again(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))

        assert set(await stack.take()) == {"b"}
        assert set(await stack.tokens()) == {"b"}

    async def test_l1_once_commit_for_a_token_that_was_never_leased_is_stale(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))
        before = await stack.picture()

        outcomes = await stack.commit(
            Transition(RUN, (), (), "b", fence=0),
            Transition(RUN, (), (), "nobody", fence=1),
            Transition("no-such-run", (), (), "a", fence=1),
        )

        assert outcomes == [Stale("fence"), Stale("unknown"), Stale("unknown")]
        assert await stack.picture() == before

    async def test_l1_once_second_start_of_the_same_execution_changes_nothing(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start(RUN, token("a")))
        before = await stack.picture()

        assert await stack.commit(start(RUN, token("z"))) == [AlreadyApplied()]
        assert await stack.picture() == before
        assert set(await stack.take()) == {"a"}

    async def test_l1_once_parking_twice_parks_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        parking = step(lease, events=[event("NodeRetrying")], park=Park(stack.clock.now() + 5, b"again", 2))
        await stack.apply(parking)
        before = await stack.picture()

        assert await stack.commit(parking) == [AlreadyApplied()]
        assert await stack.picture() == before
        assert await stack.take() == {}

    async def test_l1_once_a_chain_of_steps_consumes_each_token_once(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("t0"))
        for number in range(5):
            lease, following = leases[f"t{number}"], token(f"t{number + 1}")
            [applied] = await stack.apply(step(lease, StoreOutput(lease.token, b"%d" % number), following))
            assert [ready.token for ready in applied.ready] == [following.id]
            leases = await stack.take()

        assert set(leases) == set(await stack.tokens()) == {"t5"}
        stored = await stack.ledger.outputs(RUN, [f"t{number}" for number in range(6)])
        assert stored == {f"t{number}": b"%d" % number for number in range(5)}

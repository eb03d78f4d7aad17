"""L3: ids are stable, so doing a thing twice is noticed."""

from __future__ import annotations

from dalsegno.model.effect import OpenBarrier
from dalsegno.model.transition import AlreadyApplied, Stale
from dalsegno.testing.contract.build import (
    RUN,
    aggregator,
    arrive,
    barrier,
    command,
    event,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.split import item, open_items, open_split
from dalsegno.testing.contract.stack import ContractStack


class LedgerIds(Topic):
    guarantees = frozenset(("L3",))

    async def test_l3_stable_ids_spawning_a_live_id_again_changes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], token("c", data=b"first")))

        [applied] = await stack.apply(step(leases["b"], token("c", data=b"second")))

        assert applied.ready == ()
        assert (await stack.take())["c"].data == b"first"
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_a_consumed_id_is_not_revived(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))

        await stack.apply(command(RUN, token("a")))

        assert set(await stack.take()) == {"b"}
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_the_same_id_twice_in_one_transition_is_one_token(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, token("b"), token("b")))

        assert [ready.token for ready in applied.ready] == ["b"]
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_same_conclusion_with_another_time_is_already_applied(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), events=[event(data=b"took 1 ms")]))

        stack.clock.advance(3)
        again = step(lease, token("b"), events=[event(data=b"took 2 ms")])

        assert await stack.commit(again) == [AlreadyApplied()]
        assert [found.data for found in await stack.events()][1:] == [b"took 1 ms"]

    async def test_l3_stable_ids_same_conclusion_under_an_older_fence_is_already_applied(
        self, stack: ContractStack
    ) -> None:
        """Two workers ran the same step; the one that lost its lease learns that nothing is left to do."""
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b")))

        assert await stack.commit(step(lease, token("b"), fence=lease.fence - 1)) == [AlreadyApplied()]

    async def test_l3_stable_ids_opening_a_barrier_again_changes_nothing(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        before = await stack.barriers()

        await stack.apply(step(items[0], OpenBarrier(aggregator(expected=99))))

        assert await stack.barriers() == before
        assert (await stack.execution()).live == 1

    async def test_l3_stable_ids_opening_scopes_again_changes_nothing(self, stack: ContractStack) -> None:
        await open_split(stack, 2)

        [applied] = await stack.apply(command(RUN, *open_items(2)))

        assert applied.ready == ()
        assert await stack.take() == {}

    async def test_l3_stable_ids_of_one_execution_do_not_meet_those_of_another(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start("run-a", token("t", data=b"a")), start("run-b", token("t", data=b"b")))
        leases = {lease.execution: lease for lease in await stack.claim()}
        assert {name: lease.data for name, lease in leases.items()} == {"run-a": b"a", "run-b": b"b"}

        await stack.apply(step(leases["run-a"], arrive(barrier(), 0), arrive(barrier(), 1)))

        assert set(await stack.tokens("run-a")) == {"join-merge"}
        assert set(await stack.tokens("run-b")) == {"t"}
        assert await stack.barriers("run-b") == {}

    async def test_l3_stable_ids_another_epoch_is_another_version(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        foreign = step(lease, token("b"))
        other = type(foreign)(RUN, foreign.effects, (), "a", lease.fence, item(0), epoch=7)

        assert await stack.commit(other) == [Stale("version")]
        assert set(await stack.tokens()) == {"a"}

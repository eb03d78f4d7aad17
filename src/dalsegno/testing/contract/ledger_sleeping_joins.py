"""L7 for joins that sleep: a barrier wakes its token once, and what for is not forgotten."""

from __future__ import annotations

from dalsegno.model.effect import EndScope
from dalsegno.model.transition import Park
from dalsegno.testing.contract.build import arrive, barrier, skip, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.split import item, open_split
from dalsegno.testing.contract.stack import ContractStack

JOIN = "join-merge"


class LedgerSleepingJoins(Topic):
    """A join token that is put to sleep after its barrier has woken it is woken for the same reason."""

    guarantees = frozenset(("L7",))
    needs = frozenset(("commit", "time"))

    async def _again(self, stack: ContractStack, name: str) -> str:
        lease = (await stack.take())[name]
        await stack.apply(step(lease, park=Park(stack.clock.now() + 5, lease.data, 1)))
        stack.clock.advance(5)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == [name]
        return (await stack.take())[name].reason

    async def test_l7_join_that_slept_after_its_barrier_opened(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        spec = barrier(timeout=60)
        await stack.apply(step(leases["a"], arrive(spec, 0)), step(leases["b"], arrive(spec, 1)))

        assert await self._again(stack, JOIN) == "open"
        assert (await stack.barriers())["merge"].state == "open"

    async def test_l7_join_that_slept_after_its_deadline(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], arrive(barrier(timeout=10), 0)))
        stack.clock.advance(10)
        await stack.ledger.wake()

        assert await self._again(stack, JOIN) == "timeout"

    async def test_l7_join_that_slept_after_no_branch_came(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], skip(barrier(), 0)), step(leases["b"], skip(barrier(), 1)))

        assert await self._again(stack, JOIN) == "dead"

    async def test_l7_join_that_slept_after_an_item_ended_its_split(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        await stack.apply(step(items[1], EndScope(item(1), b"bad", trip=True)))

        assert await self._again(stack, "join-collect") == "tripped"

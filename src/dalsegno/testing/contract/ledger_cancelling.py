"""CancelTokens: what stands at the named nodes of one scope goes, with what it holds open below (L5)."""

from __future__ import annotations

from dalsegno.model.effect import CancelTokens
from dalsegno.model.transition import Park, Stale
from dalsegno.testing.contract.build import arrive, barrier, event, last, last_of_item, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.split import item, open_split
from dalsegno.testing.contract.stack import ContractStack


class LedgerCancelling(Topic):
    guarantees = frozenset(("L5",))
    needs = frozenset(("commit", "cancelling"))

    async def test_l5_cancel_drops_ready_parked_and_leased_tokens(self, stack: ContractStack) -> None:
        leases = await stack.begin(
            token("winner"), token("running", node="x"), token("sleeping", node="y", due=9e9)
        )
        await stack.apply(step(leases["winner"], token("next", priority=1), token("ready", node="z")))

        await stack.apply(step((await stack.claim(1))[0], CancelTokens("", ("x", "y", "z")), token("stays")))

        assert set(await stack.take()) == set(await stack.tokens()) == {"stays"}
        assert (await stack.execution()).live == 1
        assert await stack.commit(step(leases["running"], token("late"))) == [Stale("fence")]

    async def test_l5_cancel_records_each_dropped_token(self, stack: ContractStack) -> None:
        leases = await stack.begin(
            token("winner"), token("running", node="x"), token("sleeping", node="y", due=9e9)
        )

        await stack.apply(step(leases["winner"], CancelTokens("", ("x", "y")), events=[event()]))

        cancelled = [found for found in await stack.events() if found.kind == "NodeCancelled"]
        assert {(found.node, found.token) for found in cancelled} == {("x", "running"), ("y", "sleeping")}
        assert [found.seq for found in await stack.events()] == [1, 2, 3, 4]

    async def test_l5_cancel_spares_other_nodes_other_scopes_and_itself(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)

        await stack.apply(step(items[0], token("next", item(0)), CancelTokens(item(0), ("work",))))

        assert set(await stack.tokens()) == {"join-collect", "item:1", "next"}
        assert set(await stack.take()) == {"next"}

    async def test_l5_cancel_spares_the_canceller_that_parks(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a", node="x"), token("b", node="x"))

        await stack.apply(step(leases["a"], CancelTokens("", ("x",)), park=Park(9e9, b"", 2)))

        assert {name: found.state for name, found in (await stack.tokens()).items()} == {"a": "parked"}
        assert (await stack.execution()).live == 1

    async def test_l5_cancel_of_a_waiting_join_cancels_its_barrier(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("winner"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0)))

        await stack.apply(step(leases["winner"], CancelTokens("", ("merge",))))

        assert (await stack.barriers())["merge"].state == "cancelled"
        [applied] = await stack.apply(step(leases["b"], arrive(barrier(), 1)))
        assert applied.ready == ()
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert (await stack.execution()).live == 0

    async def test_l5_cancel_of_an_aggregator_closes_its_items(self, stack: ContractStack) -> None:
        *items, winner = await open_split(stack, 2, also=(token("winner"),))

        await stack.apply(step(winner, CancelTokens("", ("collect",)), token("next")))

        assert await stack.commit(step(items[0], last_of_item(item(0)))) == [Stale("scope")]
        assert set(await stack.take()) == {"next"}
        assert (await stack.execution()).live == 1

    async def test_l5_cancel_lets_the_canceller_be_the_last(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("winner"), token("loser", node="x"))

        [applied] = await stack.apply(step(leases["winner"], CancelTokens("", ("x",)), last()))

        assert applied.ended == "COMPLETED"

    async def test_l5_cancel_of_nobody_changes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("winner"), token("other"))

        await stack.apply(step(leases["winner"], CancelTokens("", ("nobody",))))

        assert set(await stack.tokens()) == {"other"}
        assert await stack.kinds() == ["ExecutionStarted"]

"""L5 for scopes: a split's items end once, each in its own way."""

from __future__ import annotations

from dalsegno.model.barrier import SlotView
from dalsegno.model.effect import EndScope
from dalsegno.model.transition import Stale
from dalsegno.testing.contract.build import RUN, aggregator, command, event, last_of_item, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.split import item, open_split
from dalsegno.testing.contract.stack import ContractStack


class LedgerItemEnding(Topic):
    guarantees = frozenset(("L5",))

    async def test_l5_item_last_of_an_item_resolves_its_slot(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)

        await stack.apply(step(items[0], last_of_item(item(0), slot=b"zero")))

        assert await stack.ledger.slots(RUN, aggregator().id) == [SlotView(0, live=True, data=b"zero")]
        assert (await stack.barriers())["collect"].state == "waiting"

    async def test_l5_item_while_another_branch_lives_the_scope_stays(self, stack: ContractStack) -> None:
        items = await open_split(stack, 1)
        await stack.apply(step(items[0], token("left", item(0)), token("right", item(0))))
        branches = await stack.take()

        await stack.apply(step(branches["left"], last_of_item(item(0), "0", b"of left")))
        assert await stack.ledger.slots(RUN, aggregator().id) == []

        await stack.apply(step(branches["right"], last_of_item(item(0), "1", b"of right")))
        assert await stack.ledger.slots(RUN, aggregator().id) == []
        assert set(await stack.take()) == {f"finish{item(0)}"}
        assert [left.data for left in await stack.ledger.left(RUN, item(0))] == [b"of left", b"of right"]

    async def test_l5_item_finisher_ends_the_scope(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        await stack.apply(step(items[0], last_of_item(item(0), left=b"x", slot=None)))
        [lease] = (await stack.take()).values()

        await stack.apply(step(lease, EndScope(item(0), b"united")))

        assert [slot.data for slot in await stack.ledger.slots(RUN, aggregator().id)] == [b"united"]

    async def test_l5_item_commit_in_an_ended_scope_is_stale(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        await stack.apply(step(items[0], token("left", item(0)), token("right", item(0))))
        branches = await stack.take()
        await stack.apply(step(branches["left"], EndScope(item(0), b"halted")))
        before = await stack.picture()

        late = step(branches["right"], EndScope(item(0), b"late"), token("more", item(0)), events=[event()])
        assert await stack.commit(late) == [Stale("scope")]

        assert await stack.picture() == before
        assert [slot.data for slot in await stack.ledger.slots(RUN, aggregator().id)] == [b"halted"]

    async def test_l5_item_ready_tokens_of_an_ended_scope_are_not_claimed(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        await stack.apply(step(items[0], token("left", item(0)), token("right", item(0))))
        [left] = await stack.claim(1)

        await stack.apply(step(left, EndScope(item(0), b"halted")))

        assert await stack.take() == {}

    async def test_l5_item_scopes_below_an_ended_one_are_closed(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        *inner, sibling = await open_split(stack, 2, parent=items[0], also=(token("sibling", item(0)),))
        await stack.apply(step(sibling, EndScope(item(0), b"halted")))

        assert inner[1].scope == item(1, item(0))
        assert await stack.commit(step(inner[1], last_of_item(inner[1].scope))) == [Stale("scope")]

    async def test_l5_item_arrival_from_outside_in_an_ended_scope_is_stale(
        self, stack: ContractStack
    ) -> None:
        items = await open_split(stack, 2)
        await stack.apply(step(items[0], last_of_item(item(0))))
        before = await stack.picture()

        arrival = command(RUN, token("late", item(0)), events=[event()], scope=item(0))
        assert await stack.commit(arrival) == [Stale("scope")]
        assert await stack.picture() == before

    async def test_l5_item_ends_without_touching_the_root(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)

        await stack.apply(*(step(lease, last_of_item(lease.scope)) for lease in items))

        assert (await stack.execution()).live == 1
        assert (await stack.execution()).state == "RUNNING"
        assert set(await stack.take()) == {"join-collect"}

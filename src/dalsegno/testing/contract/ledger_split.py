"""L7 for splits: slots are item scopes; milestones move the window, a trip opens early."""

from __future__ import annotations

from dalsegno.model.effect import EndScope, SetMilestone
from dalsegno.testing.contract.build import RUN, aggregator, last_of_item, milestone, step
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.split import item, open_split
from dalsegno.testing.contract.stack import ContractStack


class LedgerSplitBarriers(Topic):
    """Aggregators: slots are item scopes; milestones and trips."""

    guarantees = frozenset(("L7",))

    async def test_l7_split_aggregator_opens_with_the_last_item(self, stack: ContractStack) -> None:
        items = await open_split(stack, 3)
        for index in (2, 0):
            await stack.apply(step(items[index], last_of_item(item(index), slot=b"%d" % index)))
        assert await stack.take() == {}

        await stack.apply(step(items[1], last_of_item(item(1), slot=b"1")))

        assert (await stack.take())["join-collect"].reason == "open"
        slots = await stack.ledger.slots(RUN, aggregator().id)
        assert [(slot.slot, slot.data) for slot in slots] == [(0, b"0"), (1, b"1"), (2, b"2")]

    async def test_l7_split_item_that_ends_twice_counts_once(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)

        await stack.apply(step(items[0], EndScope(item(0), b"first"), EndScope(item(0), b"second")))

        assert [slot.data for slot in await stack.ledger.slots(RUN, aggregator().id)] == [b"first"]
        assert (await stack.barriers())["collect"].resolved == 1

    async def test_l7_split_all_items_in_one_batch_open_it_once(self, stack: ContractStack) -> None:
        items = await open_split(stack, 20)

        outcomes = await stack.apply(*(step(lease, last_of_item(lease.scope)) for lease in items))

        ready = [found.token for applied in outcomes for found in applied.ready]
        assert ready == ["join-collect"]

    async def test_l7_split_progress_is_recorded_while_it_waits(self, stack: ContractStack) -> None:
        items = await open_split(stack, 3)

        await stack.apply(*(step(lease, last_of_item(lease.scope)) for lease in items))

        progress = [(found.kind, found.arrived, found.expected) for found in (await stack.events())[1:]]
        assert progress == [("NodeWaiting", 1, 3), ("NodeWaiting", 2, 3)]

    async def test_l7_split_trip_opens_it_early(self, stack: ContractStack) -> None:
        items = await open_split(stack, 3)

        [applied] = await stack.apply(step(items[1], EndScope(item(1), b"bad", trip=True)))

        assert [ready.token for ready in applied.ready] == ["join-collect"]
        assert (await stack.take())["join-collect"].reason == "tripped"
        assert (await stack.barriers())["collect"].state == "tripped"
        assert [slot.slot for slot in await stack.ledger.slots(RUN, aggregator().id)] == [1]

    async def test_l7_split_items_after_a_trip_are_stale(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)
        await stack.apply(step(items[1], EndScope(item(1), b"bad", trip=True)))

        [outcome] = await stack.commit(step(items[0], last_of_item(item(0))))

        assert getattr(outcome, "reason", outcome) == "scope"
        assert [slot.slot for slot in await stack.ledger.slots(RUN, aggregator().id)] == [1]

    async def test_l7_split_milestone_makes_its_token_ready_once(self, stack: ContractStack) -> None:
        items = await open_split(stack, 3, expected=10, milestone_at=2)
        await stack.apply(step(items[0], last_of_item(item(0))))
        assert await stack.take() == {}

        [applied] = await stack.apply(step(items[1], last_of_item(item(1))))
        assert [ready.token for ready in applied.ready] == ["advance"]
        assert (await stack.take())["advance"].kind == "advance"

        [applied] = await stack.apply(step(items[2], last_of_item(item(2))))
        assert applied.ready == ()

    async def test_l7_split_next_milestone_waits_for_its_count(self, stack: ContractStack) -> None:
        items = await open_split(stack, 3, expected=10, milestone_at=1)
        await stack.apply(step(items[0], last_of_item(item(0))))
        advance = (await stack.take())["advance"]

        await stack.apply(step(advance, SetMilestone(aggregator().id, milestone(3, "advance-2"))))
        await stack.apply(step(items[1], last_of_item(item(1))))
        assert await stack.take() == {}
        await stack.apply(step(items[2], last_of_item(item(2))))
        assert set(await stack.take()) == {"advance-2"}

    async def test_l7_split_milestone_at_a_tombstone_is_never_reached(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2, expected=10, milestone_at=1)
        await stack.apply(step(items[0], last_of_item(item(0))))
        advance = (await stack.take())["advance"]
        await stack.apply(step(items[1], EndScope(item(1), b"bad", trip=True)))

        [applied] = await stack.apply(step(advance, SetMilestone(aggregator().id, milestone(2, "advance-2"))))

        assert applied.ready == ()
        assert set(await stack.take()) == {"join-collect"}

    async def test_l7_split_milestone_reached_already_is_ready_at_once(self, stack: ContractStack) -> None:
        items = await open_split(stack, 3, expected=10, milestone_at=1)
        await stack.apply(step(items[0], last_of_item(item(0))))
        advance = (await stack.take())["advance"]
        await stack.apply(step(items[1], last_of_item(item(1))))

        later = step(advance, SetMilestone(aggregator().id, milestone(2, "advance-2")))
        [applied] = await stack.apply(later)

        assert [ready.token for ready in applied.ready] == ["advance-2"]

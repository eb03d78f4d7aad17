"""L5, L6, L7: gates, sleeping joins, splits and scopes.

* Gates (L7, L6): a node that may run several times closes once, when no edge is open and no visit runs.
* Sleeping joins (L7): a barrier wakes its token once, and the reason is kept.
* Splits (L7): slots are item scopes; milestones move the window, a trip opens early.
* Scopes (L5): a split's items end once, each in its own way.
"""

from __future__ import annotations

from dalsegno.model.barrier import SlotView
from dalsegno.model.effect import EndScope, SetMilestone
from dalsegno.model.transition import Park, Stale
from dalsegno.testing.contract.builders import (
    RUN,
    adjust,
    aggregator,
    arrive,
    barrier,
    command,
    event,
    gate,
    last,
    last_of_item,
    milestone,
    skip,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import item, open_split
from dalsegno.testing.contract.stack import ContractStack, Topic

CLOSED = "closed-gate"


class LedgerGates(Topic):
    guarantees = frozenset(("L7",))
    needs = frozenset(("commit", "gates"))

    async def test_l7_gate_closes_when_its_last_edge_does(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], adjust(gate(), -1)))
        assert await stack.take() == {}

        [applied] = await stack.apply(step(leases["b"], adjust(gate(), -1)))

        assert [ready.token for ready in applied.ready] == [CLOSED]
        lease = (await stack.take())[CLOSED]
        assert (lease.kind, lease.node) == ("closed", "gate")

    async def test_l7_gate_stays_open_while_a_visit_runs(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], adjust(gate(), 0), token("visit", node="gate")))
        await stack.apply(step(leases["b"], adjust(gate(), -1)))
        visit = await stack.take()
        assert set(visit) == {"visit"}

        await stack.apply(step(visit["visit"], adjust(gate(), -1, 0)))

        assert set(await stack.take()) == {CLOSED}

    async def test_l7_gate_edge_that_becomes_a_visit_does_not_close_it(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        arrival = step(lease, adjust(gate(open_edges=1), -1), adjust(gate(open_edges=1), 1), token("visit"))
        [applied] = await stack.apply(arrival)

        assert [ready.token for ready in applied.ready] == ["visit"]

    async def test_l7_gate_remembers_the_edges_its_visits_used(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        assert await stack.ledger.gate_used(RUN, gate().id) == ()

        await stack.apply(step(leases["a"], adjust(gate(), -1, 3, 1)))
        await stack.apply(
            step(leases["b"], adjust(gate(), 1, 12)), step(leases["c"], adjust(gate(), 1, 1, -1))
        )

        assert await stack.ledger.gate_used(RUN, gate().id) == (-1, 1, 3, 12)

    async def test_l7_gate_closes_once(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        first, second = await stack.apply(
            step(leases["a"], adjust(gate(), -1)), step(leases["b"], adjust(gate(), -1))
        )
        assert first.ready == ()
        assert [ready.token for ready in second.ready] == [CLOSED]

        [again] = await stack.apply(step(leases["c"], adjust(gate(), 0)))

        assert again.ready == ()
        assert set(await stack.take()) == {CLOSED}

    async def test_l7_gate_closed_token_is_not_revived_after_it_ran(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], adjust(gate(open_edges=1), -1)))
        await stack.apply(step((await stack.take())[CLOSED]))

        [applied] = await stack.apply(step(leases["b"], adjust(gate(open_edges=1), 0)))

        assert applied.ready == ()

    async def test_l7_gate_closed_token_holds_the_execution_open(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, adjust(gate(open_edges=1), -1), last()))

        assert applied.ended is None
        assert [ready.token for ready in applied.ready] == [CLOSED]
        assert (await stack.execution()).live == 1


JOIN = "join-merge"


class LedgerSleepingJoins(Topic):
    """A join token that is parked after its barrier has woken it is woken for the same reason."""

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

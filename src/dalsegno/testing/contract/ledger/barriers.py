"""L7: barriers open once, never before every slot is resolved; a resolved slot does not change."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from dalsegno.model.barrier import BarrierSpec, SlotView
from dalsegno.testing.contract.builders import RUN, arrive, barrier, command, event, last, skip, step, token
from dalsegno.testing.contract.script_builders import open_split
from dalsegno.testing.contract.stack import ContractStack, Topic

JOIN = "join-merge"


def _visit(name: str, expected: int = 2) -> BarrierSpec:
    """One of several barriers of a node, with a join token of its own."""
    spec = barrier(expected=expected)
    return replace(spec, id=spec.id + name, join=replace(spec.join, id=f"{JOIN}-{name}"))


class LedgerBarriers(Topic):
    """Merges that wait for all."""

    guarantees = frozenset(("L7",))

    async def test_l7_barrier_waits_for_every_slot(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        await stack.apply(step(leases["a"], arrive(barrier(), 0)))

        assert await stack.take() == {}
        assert (await stack.tokens())[JOIN].state == "parked"
        view = (await stack.barriers())["merge"]
        assert (view.state, view.expected, view.resolved, view.live) == ("waiting", 2, 1, 1)

    async def test_l7_barrier_opens_with_the_last_arrival(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["b"], arrive(barrier(), 1, b"of b")))

        [applied] = await stack.apply(step(leases["a"], arrive(barrier(), 0, b"of a")))

        assert [ready.token for ready in applied.ready] == [JOIN]
        lease = (await stack.take())[JOIN]
        assert (lease.kind, lease.node, lease.reason) == ("join", "merge", "open")
        assert (await stack.barriers())["merge"].state == "open"
        assert await stack.ledger.slots(RUN, barrier().id) == [
            SlotView(0, live=True, data=b"of a"),
            SlotView(1, live=True, data=b"of b"),
        ]

    async def test_l7_visit_is_the_first_barrier_that_continues_a_prefix(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"), token("d"))
        prefix = barrier().id
        await stack.apply(step(leases["a"], arrive(barrier(), 0)))
        assert await stack.ledger.visit(RUN, prefix) is None

        await stack.apply(step(leases["b"], arrive(_visit("1", expected=1), 0)))
        found = await stack.ledger.visit(RUN, prefix)
        assert found is not None
        assert (found.id, found.state, found.expected) == (f"{prefix}1", "open", 1)

        await stack.apply(step(leases["d"], arrive(_visit("3"), 0)))
        await stack.apply(step(leases["c"], arrive(_visit("2"), 0)))
        found = await stack.ledger.visit(RUN, prefix)
        assert found is not None
        assert (found.id, found.state, found.expected) == (f"{prefix}2", "waiting", 2)
        assert await stack.ledger.visit(RUN, f"{prefix}2") is None
        assert await stack.ledger.visit(RUN, barrier("other").id) is None
        assert await stack.ledger.visit("absent", prefix) is None

    async def test_l7_barriers_open_once_for_both_arrivals_in_one_batch(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        first, second = await stack.apply(
            step(leases["a"], arrive(barrier(), 0)), step(leases["b"], arrive(barrier(), 1))
        )

        assert first.ready == ()
        assert [ready.token for ready in second.ready] == [JOIN]
        assert (await stack.execution()).live == 1

    async def test_l7_barriers_open_once_for_both_arrivals_in_one_transition(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, arrive(barrier(), 0), arrive(barrier(), 1)))

        assert [ready.token for ready in applied.ready] == [JOIN]
        assert (await stack.execution()).live == 1

    async def test_l7_barriers_open_once_under_concurrent_arrivals(self, stack: ContractStack) -> None:
        leases = await stack.begin(*(token(f"t{slot}") for slot in range(12)))
        spec = barrier(expected=12)

        outcomes = await asyncio.gather(
            *(stack.apply(step(leases[f"t{slot}"], arrive(spec, slot))) for slot in range(12))
        )

        ready = [found.token for [applied] in outcomes for found in applied.ready]
        assert ready == [JOIN]
        assert [slot.slot for slot in await stack.ledger.slots(RUN, spec.id)] == list(range(12))

    async def test_l7_barrier_second_arrival_over_an_edge_is_dropped(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("a2"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0, b"first")))

        await stack.apply(step(leases["a2"], arrive(barrier(), 0, b"second")))

        assert await stack.ledger.slots(RUN, barrier().id) == [SlotView(0, live=True, data=b"first")]
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert (await stack.barriers())["merge"].resolved == 1

    async def test_l7_barrier_arrival_at_an_open_one_is_dropped(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("late"))
        await stack.apply(
            step(leases["a"], arrive(barrier(), 0, b"0")), step(leases["b"], arrive(barrier(), 1, b"1"))
        )

        [applied] = await stack.apply(step(leases["late"], arrive(barrier(), 1, b"late")))

        assert applied.ready == ()
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert [slot.data for slot in await stack.ledger.slots(RUN, barrier().id)] == [b"0", b"1"]

    async def test_l7_barrier_stays_closed_after_its_join_ran(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("late"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0)), step(leases["b"], arrive(barrier(), 1)))
        join = (await stack.take())[JOIN]
        await stack.apply(step(join, token("next")))

        await stack.apply(step(leases["late"], arrive(barrier(), 0)))

        assert set(await stack.take()) == {"next"}
        assert (await stack.barriers())["merge"].state == "open"

    async def test_l7_barrier_last_arrival_dropped_still_ends_the_execution(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"), token("late"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0)), step(leases["b"], arrive(barrier(), 1)))
        join = (await stack.take())[JOIN]
        await stack.apply(step(join, last("m", b"merged")))

        late = step(leases["late"], arrive(barrier(), 0), last(left=None, output=None))
        [applied] = await stack.apply(late)

        assert [ready.token for ready in applied.ready] == ["finish"]

    async def test_l7_barrier_waiting_event_carries_the_counters(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        spec = barrier(expected=4)

        await stack.apply(
            step(leases["a"], arrive(spec, 0)),
            step(leases["b"], skip(spec, 1)),
            step(leases["c"], arrive(spec, 2)),
        )

        waiting = [found for found in await stack.events() if found.kind == "NodeWaiting"]
        assert [(found.arrived, found.expected) for found in waiting] == [(1, 4), (2, 4)]

    async def test_l7_barrier_join_counts_as_live_from_the_first_live_arrival(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        spec = barrier(expected=3)

        await stack.apply(step(leases["a"], skip(spec, 0)))
        assert (await stack.execution()).live == 2
        await stack.apply(step(leases["b"], arrive(spec, 1)))
        assert (await stack.execution()).live == 2

    async def test_l7_barriers_of_two_scopes_are_two(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)

        await stack.apply(*(step(lease, arrive(barrier(scope=lease.scope), 0)) for lease in items))

        assert await stack.take() == {}
        for lease in items:
            slots = await stack.ledger.slots(RUN, barrier(scope=lease.scope).id)
            assert [slot.slot for slot in slots] == [0]

    async def test_l7_barrier_arrivals_from_outside_count(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, arrive(barrier(), 0)))

        await stack.apply(command(RUN, arrive(barrier(), 1), events=[event()]))

        assert set(await stack.take()) == {JOIN}


class LedgerSkippedSlots(Topic):
    """Edges that close unused."""

    guarantees = frozenset(("L7",))

    async def test_l7_skipped_and_live_slots_open_the_barrier(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], skip(barrier(), 0)))

        await stack.apply(step(leases["b"], arrive(barrier(), 1, b"of b")))

        assert (await stack.take())[JOIN].reason == "open"
        assert await stack.ledger.slots(RUN, barrier().id) == [
            SlotView(0, live=False, data=None),
            SlotView(1, live=True, data=b"of b"),
        ]

    async def test_l7_skip_as_the_last_slot_opens_the_barrier(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["b"], arrive(barrier(), 1)))

        await stack.apply(step(leases["a"], skip(barrier(), 0)))

        assert (await stack.take())[JOIN].reason == "open"

    async def test_l7_barrier_with_only_skipped_slots_is_dead(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], skip(barrier(), 0)))

        [applied] = await stack.apply(step(leases["b"], skip(barrier(), 1)))

        assert [ready.token for ready in applied.ready] == [JOIN]
        assert (await stack.take())[JOIN].reason == "dead"
        assert (await stack.barriers())["merge"].state == "dead"
        assert (await stack.execution()).live == 1

    async def test_l7_skipped_slot_does_not_become_live(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], skip(barrier(), 0)))

        await stack.apply(step(leases["b"], arrive(barrier(), 0, b"late")))

        assert await stack.ledger.slots(RUN, barrier().id) == [SlotView(0, live=False, data=None)]
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert await stack.take() == {}

    async def test_l7_live_slot_does_not_become_skipped(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0, b"live")))

        await stack.apply(step(leases["b"], skip(barrier(), 0)))

        assert await stack.ledger.slots(RUN, barrier().id) == [SlotView(0, live=True, data=b"live")]
        assert (await stack.barriers())["merge"].resolved == 1

    async def test_l7_dead_barrier_does_not_revive(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], skip(barrier(), 0), skip(barrier(), 1)))

        [applied] = await stack.apply(step(leases["b"], arrive(barrier(), 0)))

        assert applied.ready == ()
        assert (await stack.barriers())["merge"].state == "dead"


class LedgerAnyBarriers(Topic):
    """Merges that open on the first live arrival."""

    guarantees = frozenset(("L7",))

    async def test_l7_any_opens_on_the_first_live_arrival(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        await stack.apply(step(leases["b"], arrive(barrier(mode="any"), 1, b"won")))

        assert (await stack.take())[JOIN].reason == "open"
        assert await stack.ledger.slots(RUN, barrier().id) == [SlotView(1, live=True, data=b"won")]

    async def test_l7_any_drops_the_losers(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["b"], arrive(barrier(mode="any"), 1, b"won")))

        [applied] = await stack.apply(step(leases["a"], arrive(barrier(mode="any"), 0, b"lost")))

        assert applied.ready == ()
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert [slot.slot for slot in await stack.ledger.slots(RUN, barrier().id)] == [1]

    async def test_l7_any_two_arrivals_in_one_batch_have_one_winner(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        spec = barrier(mode="any")

        first, second = await stack.apply(
            step(leases["a"], arrive(spec, 0)), step(leases["b"], arrive(spec, 1))
        )

        assert [ready.token for ready in first.ready] == [JOIN]
        assert second.ready == ()
        assert [slot.slot for slot in await stack.ledger.slots(RUN, spec.id)] == [0]

    async def test_l7_any_is_not_opened_by_skips(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        spec = barrier(mode="any")

        await stack.apply(step(leases["a"], skip(spec, 0)))
        assert await stack.take() == {}
        await stack.apply(step(leases["b"], skip(spec, 1)))
        assert (await stack.take())[JOIN].reason == "dead"

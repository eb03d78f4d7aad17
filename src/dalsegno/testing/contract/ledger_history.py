"""L8: the events of one execution are numbered 1, 2, 3 … without a gap."""

from __future__ import annotations

import asyncio

from dalsegno.model.transition import Stale
from dalsegno.testing.contract.build import RUN, arrive, barrier, event, finish, start, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class LedgerHistory(Topic):
    guarantees = frozenset(("L8",))

    async def test_l8_ordered_history_counts_from_one(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, finish(), events=[event("NodeStarted"), event("NodeCompleted")]))

        events = await stack.events()
        assert [(found.seq, found.kind) for found in events] == [
            (1, "ExecutionStarted"),
            (2, "NodeStarted"),
            (3, "NodeCompleted"),
            (4, "ExecutionCompleted"),
        ]
        assert (await stack.execution()).seq == 4

    async def test_l8_ordered_history_of_a_batch_follows_its_order(self, stack: ContractStack) -> None:
        names = [f"t{number:02}" for number in range(25)]
        await stack.apply(start(RUN, *map(token, names)))
        leases = await stack.take()

        await stack.apply(
            *(step(leases[name], events=[event(node=name), event(node=name)]) for name in names)
        )

        events = (await stack.events())[1:]
        assert [found.node for found in events] == [name for name in names for _ in range(2)]
        assert [found.seq for found in events] == list(range(2, 52))

    async def test_l8_ordered_history_of_executions_in_one_batch_is_separate(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start("run-a", token("a1"), token("a2")), start("run-b", token("b1")))
        leases = await stack.take()

        await stack.apply(*(step(leases[name], events=[event(node=name)]) for name in ("a1", "b1", "a2")))

        assert [(found.seq, found.node) for found in await stack.events("run-a")][1:] == [
            (2, "a1"),
            (3, "a2"),
        ]
        assert [(found.seq, found.node) for found in await stack.events("run-b")][1:] == [(2, "b1")]

    async def test_l8_ordered_history_has_no_gap_where_a_commit_was_stale(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        outcomes = await stack.commit(
            step(leases["a"], events=[event()], fence=9), step(leases["b"], events=[event(node="b")])
        )

        assert outcomes[0] == Stale("fence")
        assert [(found.seq, found.node) for found in await stack.events()] == [(1, ""), (2, "b")]

    async def test_l8_ordered_history_has_no_gap_under_concurrency(self, stack: ContractStack) -> None:
        leases = await stack.begin(*(token(f"t{number}") for number in range(20)))

        await asyncio.gather(
            *(stack.apply(step(lease, events=[event(node=name)])) for name, lease in leases.items())
        )

        events = await stack.events()
        assert [found.seq for found in events] == list(range(1, 22))
        assert {found.node for found in events[1:]} == set(leases)

    async def test_l8_ordered_history_steps_events_come_before_their_effects(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, arrive(barrier(), 0), events=[event()]))

        assert (await stack.kinds())[1:] == ["NodeCompleted", "NodeWaiting"]

    async def test_l8_ordered_history_keeps_every_field(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        recorded = type(event())("NodeFailed", "a", "/s:1", 12.5, b'{"x":[]}', "a")

        await stack.apply(step(lease, events=[recorded]))

        found = (await stack.events())[-1]
        assert (found.execution, found.kind, found.node, found.scope) == (RUN, "NodeFailed", "a", "/s:1")
        assert (found.at, found.data, found.token) == (12.5, b'{"x":[]}', "a")
        assert (found.arrived, found.expected) == (None, None)

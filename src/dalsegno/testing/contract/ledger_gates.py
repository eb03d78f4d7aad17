"""Gates: a node that may run several times closes once, when no edge is open and no visit runs (L7, L6)."""

from __future__ import annotations

from dalsegno.testing.contract.build import RUN, adjust, gate, last, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

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

"""L2: all effects of a transition become visible, or none; what is owed to others is in the same commit's outbox."""

from __future__ import annotations

import pytest

from dalsegno.model.barrier import LeftView
from dalsegno.model.effect import LeaveContext, StoreOutput, WriteOutbox
from dalsegno.model.event import NewEvent
from dalsegno.model.transition import Applied, Refused, Stale
from dalsegno.ports.ledger import OutboxEntry
from dalsegno.testing.contract.build import RUN, arrive, barrier, command, event, finish, start, step, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

EVERY_KIND = (
    token("b"),
    arrive(barrier(), 0, b"payload"),
    LeaveContext("", "0", b"context"),
    StoreOutput("out", b"output"),
    WriteOutbox("owed", "signal", b"message"),
)


class LedgerWhole(Topic):
    guarantees = frozenset(("L2",))

    async def test_l2_whole_all_effects_of_a_commit_are_visible(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, *EVERY_KIND, events=[event()]))

        assert set(await stack.tokens()) == {"b", "join-merge"}
        assert [slot.data for slot in await stack.ledger.slots(RUN, barrier().id)] == [b"payload"]
        assert await stack.ledger.left(RUN, "") == [LeftView("0", b"context")]
        assert await stack.ledger.outputs(RUN, ["out"]) == {"out": b"output"}
        assert await stack.ledger.outbox() == [OutboxEntry("owed", RUN, "signal", b"message")]
        assert await stack.kinds() == ["ExecutionStarted", "NodeCompleted", "NodeWaiting"]

    async def test_l2_whole_a_refused_fence_lets_no_effect_through(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        before = await stack.picture()

        assert await stack.commit(step(lease, *EVERY_KIND, events=[event()], fence=99)) == [Stale("fence")]

        assert await stack.picture() == before
        assert await stack.ledger.slots(RUN, barrier().id) == []
        assert await stack.ledger.left(RUN, "") == []
        assert await stack.ledger.outputs(RUN, ["out"]) == {}
        assert await stack.ledger.outbox() == []

    async def test_l2_whole_a_start_is_visible_with_its_tokens_and_event(self, stack: ContractStack) -> None:
        assert await stack.ledger.inspect(RUN) is None

        [applied] = await stack.apply(start(RUN, token("a"), token("b"), StoreOutput("page", b"input")))

        assert {ready.token for ready in applied.ready} == {"a", "b"}
        assert (await stack.execution()).live == 2
        assert (await stack.execution()).state == "RUNNING"
        assert await stack.ledger.outputs(RUN, ["page"]) == {"page": b"input"}
        assert await stack.kinds() == ["ExecutionStarted"]

    async def test_l2_whole_a_stale_transition_does_not_harm_its_batch(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        outcomes = await stack.commit(
            step(leases["a"], token("a2"), events=[event(node="a")]),
            step(leases["a"], token("never"), fence=7),
            step(leases["b"], token("b2"), events=[event(node="b")]),
        )

        assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "Stale", "Applied"]
        assert set(await stack.tokens()) == {"a2", "b2"}

    async def test_l2_whole_live_count_follows_consumed_and_spawned_tokens(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, token("b"), token("c"), token("timeout", live=False, due=9e9)))

        assert (await stack.execution()).live == 2

    async def test_l2_whole_batch_of_many_executions(self, stack: ContractStack) -> None:
        names = [f"run-{number:02}" for number in range(30)]
        await stack.apply(*(start(name, token("a")) for name in names))
        leases = {lease.execution: lease for lease in await stack.claim(100)}
        assert sorted(leases) == names

        outcomes = await stack.commit(*(step(leases[name], token("b"), events=[event()]) for name in names))

        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        for name in names:
            assert set(await stack.tokens(name)) == {"b"}
            assert await stack.kinds(name) == ["ExecutionStarted", "NodeCompleted"]

    async def test_l2_whole_batch_of_five_hundred_transitions(self, stack: ContractStack) -> None:
        names = [f"t{number:03}" for number in range(500)]
        await stack.apply(start(RUN, *map(token, names)))
        leases = await stack.take()

        await stack.apply(*(step(leases[name], StoreOutput(name, name.encode())) for name in names))

        assert await stack.ledger.outputs(RUN, names) == {name: name.encode() for name in names}
        assert (await stack.execution()).live == 0

    async def test_l2_whole_an_empty_batch_has_no_outcomes(self, stack: ContractStack) -> None:
        assert await stack.commit() == []

    @pytest.mark.parametrize("name", ["lone \ud800 surrogate", "nul \x00 character"])
    async def test_l2_whole_what_a_store_cannot_hold_is_refused_alone(
        self, stack: ContractStack, name: str
    ) -> None:
        """A store may hold it or refuse it, but never mangle it, and never at the cost of the others."""
        leases = await stack.begin(token("a"), token("b"), token("c"))
        odd = NewEvent("NodeCompleted", name, "", stack.clock.now())

        first, outcome, third = await stack.commit(
            step(leases["a"], StoreOutput("a", b"1")),
            step(leases["b"], StoreOutput("b", b"2"), events=[odd]),
            step(leases["c"], StoreOutput("c", b"3")),
        )

        assert isinstance(first, Applied)
        assert isinstance(third, Applied)
        stored = await stack.ledger.outputs(RUN, ["a", "b", "c"])
        nodes = [found.node for found in await stack.events()]
        if isinstance(outcome, Refused):
            assert stored == {"a": b"1", "c": b"3"}
            assert name not in nodes
            assert set(await stack.tokens()) == {"b"}
        else:
            assert stored == {"a": b"1", "b": b"2", "c": b"3"}
            assert nodes[-1] == name


class LedgerOutbox(Topic):
    guarantees = frozenset(("L2",))

    async def test_l2_outbox_entries_stay_until_they_are_delivered(self, stack: ContractStack) -> None:
        owed = [WriteOutbox(f"m{number}", "signal", b"%d" % number) for number in range(3)]
        await stack.apply(start(RUN, *owed))

        first, again = await stack.ledger.outbox(), await stack.ledger.outbox()
        assert first == again
        assert {entry.id: entry.data for entry in first} == {"m0": b"0", "m1": b"1", "m2": b"2"}

        await stack.ledger.delivered(["m1"])
        assert {entry.id for entry in await stack.ledger.outbox()} == {"m0", "m2"}

    async def test_l2_outbox_gives_at_most_the_limit_and_all_in_the_end(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, *(WriteOutbox(f"m{number}", "x", b"") for number in range(5))))

        seen: list[str] = []
        while entries := await stack.ledger.outbox(2):
            assert len(entries) <= 2
            seen += [entry.id for entry in entries]
            await stack.ledger.delivered([entry.id for entry in entries])

        assert sorted(seen) == ["m0", "m1", "m2", "m3", "m4"]

    async def test_l2_outbox_delivering_twice_is_harmless(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, WriteOutbox("m", "x", b"")))

        await stack.ledger.delivered(["m"])
        await stack.ledger.delivered(["m", "never-existed"])

        assert await stack.ledger.outbox() == []

    async def test_l2_outbox_same_id_is_owed_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, WriteOutbox("m", "x", b"first")))

        await stack.apply(command(RUN, WriteOutbox("m", "x", b"second")))

        assert [entry.data for entry in await stack.ledger.outbox()] == [b"first"]

    async def test_l2_outbox_of_an_ended_execution_is_still_owed(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, WriteOutbox("m", "result", b"done"), finish()))

        assert [entry.id for entry in await stack.ledger.outbox()] == ["m"]

"""L8: the events of one execution are numbered 1, 2, 3 … without a gap.

Inspections read every reason why executions have not ended, in one snapshot.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from dalsegno.model.event import NewEvent
from dalsegno.model.inspection import Inspection
from dalsegno.model.limits import Allowance, Rate
from dalsegno.model.transition import Stale
from dalsegno.ports.ledger import MOST_OPEN_SLOTS, Examination, RecordsAsked
from dalsegno.testing.contract.builders import RUN, arrive, barrier, event, finish, start, step, token
from dalsegno.testing.contract.ledger.limits import fill
from dalsegno.testing.contract.script_builders import open_split, signal, suspend, task
from dalsegno.testing.contract.stack import ContractStack, Topic
from dalsegno.testing.histories import History, order_problems


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
        recorded = NewEvent("NodeFailed", "a", "/s:1", stack.clock.now() + 2.5, b'{"x":[]}', "a")
        stack.clock.advance(5)

        await stack.apply(step(lease, events=[recorded]))

        found = (await stack.events())[-1]
        assert (found.execution, found.kind, found.node, found.scope) == (RUN, "NodeFailed", "a", "/s:1")
        assert (found.at, found.data, found.token) == (stack.clock.now() - 2.5, b'{"x":[]}', "a")
        assert (found.arrived, found.expected) == (None, None)

    async def test_l8_ordered_history_is_dated_in_its_order(self, stack: ContractStack) -> None:
        """Processes decide in one order and commit in another, and their clocks differ."""
        began = stack.clock.now()
        leases = await stack.begin(token("a"), token("b"), token("c"), token("d"))
        stack.clock.advance(10)
        for name, dated in (("a", 4), ("b", 2), ("c", 99), ("d", 9)):
            late = NewEvent("NodeCompleted", name, "", began + dated, None, name)
            await stack.apply(step(leases[name], events=[late, replace(late, at=began + 1)]))

        events = await stack.events()

        # Not before the previous event; between the previous commit and its own.
        assert [found.at - began for found in events] == [0, 4, 4, *([10] * 6)]
        assert order_problems(History(await stack.execution(), events)) == []


ASKED = RecordsAsked("trouble", "token:", "claimed", "declared")


async def examine(stack: ContractStack, execution: str = RUN) -> Examination:
    [found] = (await stack.ledger.examine([execution], ASKED)).executions
    return found


def ordered(inspection: Inspection) -> Inspection:
    """Sort limits and barriers, which have no order."""
    return replace(
        inspection,
        tokens=tuple(sorted(inspection.tokens, key=lambda token: token.id)),
        barriers=tuple(sorted(inspection.barriers, key=lambda barrier: barrier.id)),
        limits=tuple(sorted(inspection.limits, key=lambda limit: limit.key)),
    )


class LedgerExamination(Topic):
    guarantees = frozenset(("L9",))
    needs = frozenset(("commit", "leases", "scripts", "archive", "records", "limits"))

    async def test_l9_examination_says_what_the_single_looks_say(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("t2", due=9e9), signals=("approved",), line=7)
        await stack.apply(signal(name="reminder"))
        await stack.apply(start("run-b", token("a"), token("b")))
        await stack.claim(1, queues=("default",), worker="w2")
        stack.ledger.heartbeat("w2", 60.0, b'{"queues":["default"]}')

        found = await stack.ledger.examine(["run-b", RUN, "absent"])

        assert [each.inspection.execution.id for each in found.executions] == ["run-b", RUN]
        for each in found.executions:
            name = each.inspection.execution.id
            inspected = await stack.ledger.inspect(name)
            assert inspected is not None
            outline = await stack.archive.outline(name)
            assert outline is not None
            assert ordered(each.inspection) == ordered(replace(inspected, execution=outline))
            assert each.machine == await stack.ledger.machine(name)
            assert (dict(each.open_slots), each.records) == ({}, ())
        assert list(found.workers) == await stack.ledger.workers()
        machine = found.executions[1].machine
        assert machine is not None
        assert [each.name for each in machine.signals] == ["reminder"]

    async def test_l9_examination_of_what_does_not_exist_is_empty(self, stack: ContractStack) -> None:
        stack.ledger.heartbeat("w1", 60.0)
        found = await stack.ledger.examine(["absent"], ASKED)
        assert (found.executions, found.workers) == ((), ())

    async def test_l9_examination_says_since_when_a_token_is_ready(self, stack: ContractStack) -> None:
        began = stack.clock.now()
        await stack.apply(start(RUN, token("a"), token("b", due=9e9)))
        tokens = {each.id: each.ready_at for each in (await examine(stack)).inspection.tokens}
        assert tokens == {"a": began, "b": None}

    async def test_l9_examination_numbers_the_open_slots_of_a_merge(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        merge = barrier(expected=3)
        await stack.apply(step(leases["b"], arrive(merge, 1)))
        assert dict((await examine(stack)).open_slots) == {merge.id: (0, 2)}
        await stack.apply(step(leases["a"], arrive(merge, 0)), step(leases["c"], arrive(merge, 2)))
        assert dict((await examine(stack)).open_slots) == {}

    async def test_l9_examination_numbers_only_the_first_open_slots(self, stack: ContractStack) -> None:
        await open_split(stack, 3, expected=2 * MOST_OPEN_SLOTS)
        [numbers] = (await examine(stack)).open_slots.values()
        assert numbers == tuple(range(MOST_OPEN_SLOTS))

    async def test_l9_examination_reads_the_records_asked_for(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", queue="gpu"), token("b", due=9e9)))
        await stack.apply(start("run-b", token("z", due=9e9)))
        for kind, name in (
            ("trouble", "token:a"),
            ("trouble", "token:b"),
            ("trouble", "token:other"),
            ("trouble", "a"),
            ("claimed", "gpu"),
            ("claimed", "cpu"),
            ("declared", "one"),
            ("declared", "two"),
            ("key", "token:a"),
        ):
            await stack.records.put(kind, name, name.encode())

        found = await examine(stack)

        names = sorted((record.kind, record.id) for record in found.records)
        assert names == [
            ("claimed", "gpu"),
            ("declared", "one"),
            ("declared", "two"),
            ("trouble", "token:a"),
            ("trouble", "token:b"),
        ]
        [one] = [record for record in found.records if record.id == "one"]
        assert one == await stack.records.get("declared", "one")
        assert (await examine(stack, "run-b")).records == ()

    async def test_l9_examination_knows_the_limits_of_what_is_ready(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2, Allowance(1, Rate(2, 10.0)))
        await fill(stack, "post", 2, Allowance(rate=Rate(1, 10.0)))
        await stack.limits.set("post", Allowance(4))
        await stack.claim()

        for name in ("run-mail-1", "run-post-1"):
            inspected = await stack.ledger.inspect(name)
            assert inspected is not None
            found = (await examine(stack, name)).inspection
            assert found.limits == inspected.limits
            assert len(found.limits) == 1

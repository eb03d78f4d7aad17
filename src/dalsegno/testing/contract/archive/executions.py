"""A2, A3, A4: the executions of the archive.

* A2: a history can be resumed from any event.
* A3: listings are paged and filtered, also by kind and by relation to other executions.
* A4: retention removes whole executions.
"""

from __future__ import annotations

import msgspec
import pytest

from dalsegno.core.outbox_orders import order_letter
from dalsegno.errors import NotFound
from dalsegno.model.effect import PostSignal, StoreOutput, WriteOutbox
from dalsegno.model.execution import Ending, ExecutionKind
from dalsegno.model.ids import task_execution_id
from dalsegno.model.transition import Park
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.contract.builders import (
    RUN,
    arrive,
    barrier,
    cancel,
    command,
    event,
    finish,
    new_execution,
    pause,
    start,
    step,
    token,
)
from dalsegno.testing.contract.ledger.ending import sweep_all
from dalsegno.testing.contract.script_builders import save, suspend, task, tasks
from dalsegno.testing.contract.stack import ContractStack, Topic

EVERYTHING = ExecutionFilter()


class ArchiveHistory(Topic):
    guarantees = frozenset(("A2",))
    needs = frozenset(("commit", "archive"))

    async def test_a2_resumable_history_from_any_number(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, events=[event(node=f"n{number}") for number in range(2, 13)]))

        for after in range(14):
            events = await stack.archive.events(RUN, after)
            assert [found.seq for found in events] == list(range(after + 1, 13))

    async def test_a2_resumable_history_in_pages(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, events=[event(node=f"n{number}") for number in range(9)]))

        seen: list[int] = []
        while page := await stack.archive.events(RUN, seen[-1] if seen else 0, limit=4):
            assert len(page) <= 4
            seen += [found.seq for found in page]

        assert seen == list(range(1, 11))

    async def test_a2_newest_event_of_those_that_exist(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await _start_many(stack, ("run-2", 0))
        await stack.apply(step(lease, events=[event(node="n"), event(node="m")]))

        assert await stack.archive.newest_events([RUN, "run-2", "nowhere"]) == {RUN: 3, "run-2": 1}

    async def test_endings_are_those_of_what_has_ended(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(*(start(new_execution(name), token("b")) for name in ("run-2", "run-3")))
        await stack.apply(step(lease, finish(output=b"[1]")), cancel("run-2"))

        found = await stack.archive.endings([RUN, "run-2", "run-3", "nowhere"])

        views = {name: await stack.archive.execution(name) for name in (RUN, "run-2")}
        assert found == {name: view.ending for name, view in views.items() if view is not None}
        assert found[RUN] == Ending("COMPLETED", b"[1]", None)
        assert found["run-2"].state == "CANCELLED"
        assert await stack.archive.endings([]) == {}

    async def test_a2_history_is_told_when_nothing_can_be_added(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        assert not await stack.archive.is_told(RUN)
        assert not await stack.archive.is_told("nowhere")

        await stack.apply(step(lease, finish()))

        assert await stack.archive.is_told(RUN)

    async def test_a2_resumable_history_of_nobody_is_empty(self, stack: ContractStack) -> None:
        assert await stack.archive.events("nowhere") == []


class ArchiveListing(Topic):
    guarantees = frozenset(("A3",))
    needs = frozenset(("commit", "archive"))

    async def test_a3_newest_first(self, stack: ContractStack) -> None:
        await _start_many(stack, ("run-b", 1), ("run-a", 2), ("run-c", 0))

        assert await _listed(stack) == ["run-a", "run-b", "run-c"]

    async def test_a3_newest_first_pages_neither_repeat_nor_omit_when_others_start(
        self, stack: ContractStack
    ) -> None:
        await _start_many(stack, *((f"run-{number:02}", number) for number in range(10)))
        seen: list[str] = []
        page = await stack.archive.executions(EVERYTHING, limit=3)
        while page:
            seen += [found.id for found in page]
            await _start_many(stack, (f"later-{len(seen)}", 100 + len(seen)))
            page = await stack.archive.executions(EVERYTHING, before=seen[-1], limit=3)

        assert seen == [f"run-{number:02}" for number in reversed(range(10))]

    async def test_a3_newest_first_pages_through_executions_of_the_same_moment(
        self, stack: ContractStack
    ) -> None:
        names = ("run-e", "run-a", "run-d", "run-b", "run-c")
        await _start_many(stack, *((name, 5) for name in names))
        seen: list[str] = []
        page = await stack.archive.executions(EVERYTHING, limit=2)
        while page:
            seen += [found.id for found in page]
            page = await stack.archive.executions(EVERYTHING, before=seen[-1], limit=2)

        assert seen == sorted(names, reverse=True)

    async def test_a3_newest_first_filtered_by_workflow_state_and_parent(self, stack: ContractStack) -> None:
        await stack.apply(
            start(new_execution("run-1", workflow="orders"), token("a")),
            start(new_execution("run-2", workflow="mails", created_at=1.0), token("a")),
            start(
                new_execution("run-3", workflow="orders", created_at=2.0, parent="run-1", relation="retry"),
                token("a"),
            ),
        )
        await stack.apply(pause("run-1"), cancel("run-3"))

        assert await _listed(stack, ExecutionFilter(workflow="orders")) == ["run-1", "run-3"]
        assert await _listed(stack, ExecutionFilter(states=("CANCELLED",))) == ["run-3"]
        assert await _listed(stack, ExecutionFilter(states=("PAUSED", "RUNNING"))) == ["run-1", "run-2"]
        assert await _listed(stack, ExecutionFilter(parent="run-1")) == ["run-3"]
        assert await _listed(stack, ExecutionFilter(workflow="orders", states=("RUNNING",))) == []

    async def test_a3_newest_first_filtered_by_all_of_the_tags(self, stack: ContractStack) -> None:
        red, big = ("colour", "red"), ("size", "big")
        await stack.apply(
            start(new_execution("run-1", tags=(red, big), created_at=3.0)),
            start(new_execution("run-2", tags=(red,), created_at=2.0)),
            start(new_execution("run-3", tags=(("colour", "re"), ("red", "colour")), created_at=1.0)),
        )

        assert await _listed(stack, ExecutionFilter(tags=(red,))) == ["run-1", "run-2"]
        assert await _listed(stack, ExecutionFilter(tags=(big, red))) == ["run-1"]
        assert await _listed(stack, ExecutionFilter(tags=(("colour", "blue"),))) == []
        assert await stack.archive.count_tagged("colour", "red", 10) == 2
        assert await stack.archive.count_tagged("colour", "red", 1) == 1
        assert await stack.archive.count_tagged("colour", "blue", 10) == 0

    async def test_a3_newest_first_pages_of_a_filtered_listing(self, stack: ContractStack) -> None:
        await stack.apply(
            *(
                start(
                    new_execution(
                        f"run-{number}", workflow="odd" if number % 2 else "even", created_at=number
                    )
                )
                for number in range(8)
            )
        )

        first = await stack.archive.executions(ExecutionFilter(workflow="odd"), limit=2)
        second = await stack.archive.executions(ExecutionFilter(workflow="odd"), before=first[-1].id, limit=9)

        assert [found.id for found in first + second] == ["run-7", "run-5", "run-3", "run-1"]

    async def test_a3_newest_first_shows_everything_about_an_execution(self, stack: ContractStack) -> None:
        new = new_execution(
            input=b'{"a":[]}',
            created_at=12.25,
            priority=4,
            tags=(("k", "v"), ("a", "b")),
            idempotency_key="once",
            parent="run-0",
            relation="rerun",
        )
        await stack.apply(start(new, token("a")))

        found = await stack.archive.execution(RUN)

        assert found == (await stack.execution())
        assert found is not None
        assert (found.id, found.workflow, found.version, found.definition) == (
            RUN,
            "orders",
            1,
            "hash-of-orders",
        )
        assert (found.input, found.created_at, found.priority) == (b'{"a":[]}', 12.25, 4)
        assert (found.tags, found.idempotency_key) == (new.tags, "once")
        assert (found.parent, found.relation) == ("run-0", "rerun")
        assert (found.state, found.live, found.seq, found.ended_at) == ("RUNNING", 1, 1, None)
        assert [listed.id for listed in await stack.archive.executions(EVERYTHING)] == [RUN]

    async def test_a3_newest_first_lists_outlines_without_values(self, stack: ContractStack) -> None:
        new = new_execution(input=b'{"a":[]}', parent="run-0", relation="child")
        await stack.apply(start(new, token("a")))
        lease = (await stack.take())["a"]
        await stack.apply(step(lease, finish(output=b"[1]")))
        whole = await stack.archive.execution(RUN)
        assert whole is not None
        size = len(whole.input) + len(whole.output or b"") + len(whole.context or b"")

        outline = await stack.archive.outline(RUN)

        without = {"input": b"null", "output": None, "context": None, "value_bytes": size}
        assert outline == msgspec.structs.replace(whole, **without)
        assert await stack.archive.executions(ExecutionFilter(parent="run-0")) == [outline]

    async def test_a3_newest_first_unknown_execution_is_none(self, stack: ContractStack) -> None:
        assert await stack.archive.execution("nowhere") is None
        assert await stack.archive.outline("nowhere") is None
        assert await stack.archive.executions(EVERYTHING) == []


class ArchiveRetention(Topic):
    guarantees = frozenset(("A4",))
    needs = frozenset(("commit", "archive", "blobs"))

    async def test_a4_retention_removes_whole_executions(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a"), token("b")))["a"]
        blob = await stack.blobs.put(RUN, b"large")
        await stack.apply(step(lease, StoreOutput("o", b"1"), arrive(barrier(), 0), events=[event()]))
        await stack.apply(cancel())
        stack.clock.advance(100)

        assert await stack.archive.remove_ended(stack.clock.now()) == 1

        assert await stack.archive.execution(RUN) is None
        assert await stack.ledger.inspect(RUN) is None
        assert await stack.archive.events(RUN) == []
        assert await stack.ledger.outputs(RUN, ["o"]) == {}
        assert await stack.ledger.slots(RUN, barrier().id) == []
        with pytest.raises(NotFound):
            await stack.blobs.get(RUN, blob)

    async def test_a4_retention_spares_what_runs_and_what_ended_lately(self, stack: ContractStack) -> None:
        await _start_many(stack, ("run-old", 0), ("run-running", 0), ("run-paused", 0), ("run-new", 0))
        await stack.apply(cancel("run-old"), pause("run-paused"))
        stack.clock.advance(100)
        await stack.apply(cancel("run-new"))
        kept = await stack.blobs.put("run-running", b"large")

        assert await stack.archive.remove_ended(stack.clock.now() - 50) == 1

        assert await _listed(stack) == ["run-running", "run-paused", "run-new"]
        assert await stack.blobs.get("run-running", kept) == b"large"
        assert await stack.kinds("run-running") == ["ExecutionStarted"]

    async def test_a4_retention_removes_at_most_the_limit(self, stack: ContractStack) -> None:
        names = [f"run-{number}" for number in range(5)]
        await _start_many(stack, *((name, 0) for name in names))
        await stack.apply(*(cancel(name) for name in names))
        stack.clock.advance(1)
        now = stack.clock.now()

        assert [await stack.archive.remove_ended(now, 2) for _ in range(4)] == [2, 2, 1, 0]
        assert await _listed(stack) == []

    async def test_a4_retention_by_state(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await _start_many(stack, ("run-cancelled", 0))
        await stack.apply(step(leases["a"], finish()), cancel("run-cancelled"))
        stack.clock.advance(100)
        now = stack.clock.now()

        assert await stack.archive.remove_ended(now, states=("FAILED",)) == 0
        assert await stack.archive.remove_ended(now, states=("CANCELLED", "FAILED")) == 1
        assert await _listed(stack) == [RUN]
        assert await stack.archive.remove_ended(now, states=("COMPLETED",)) == 1

    async def test_a4_named_executions_go_whole_or_stay(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution("owed", notify=b"for the parent"), token("o")))
        await _start_many(stack, ("running", 0), ("over", 0), ("kept", 0))
        await stack.apply(cancel("owed"), cancel("over"), cancel("kept"))

        assert await stack.archive.remove(["owed", "running", "over", "nowhere"]) == ["over"]
        assert await stack.archive.remove(["over"]) == []
        assert sorted(await _listed(stack)) == ["kept", "owed", "running"]
        assert await stack.archive.events("over") == []

    async def test_a4_retention_does_not_forget_what_is_still_owed(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, WriteOutbox("m", "result", b"x"), finish()))
        stack.clock.advance(1)

        await stack.archive.remove_ended(stack.clock.now())

        assert [entry.id for entry in await stack.ledger.outbox()] == ["m"]

    async def test_a4_retention_spares_an_ending_that_is_still_to_be_told(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(notify=b"for the parent"), token("a")))
        await stack.apply(start(new_execution("unrelated"), token("b")))
        await stack.apply(cancel(), cancel("unrelated"))
        stack.clock.advance(1)

        assert await stack.archive.remove_ended(stack.clock.now()) == 1
        [owed] = await stack.ledger.outbox()
        assert (owed.topic, await _listed(stack)) == ("ended", [RUN])
        await stack.ledger.delivered([owed.id])

        assert await stack.archive.remove_ended(stack.clock.now()) == 1
        assert await _listed(stack) == []

    async def test_a4_retention_keeps_definitions(self, stack: ContractStack) -> None:
        stored = await stack.archive.put_definition("orders", "hash-of-orders", "graph", b"{}")
        await stack.begin(token("a"))
        await stack.apply(cancel())
        stack.clock.advance(1)

        await stack.archive.remove_ended(stack.clock.now())

        assert await stack.archive.definition("orders") == stored

    async def test_a4_retention_leaves_nothing_to_claim_wake_or_commit(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], token("c"), token("d", due=stack.clock.now() + 5)))
        await stack.apply(cancel())
        stack.clock.advance(10)
        await stack.archive.remove_ended(stack.clock.now())

        [outcome] = await stack.commit(step(leases["b"], token("e")))

        assert getattr(outcome, "reason", outcome) == "unknown"
        assert await stack.take() == {}


class ArchiveUnfinishedCleanups(Topic):
    guarantees = frozenset(("A4",))
    needs = frozenset(("commit", "archive", "records"))

    async def test_a4_retention_spares_unfinished_clean_ups(self, stack: ContractStack) -> None:
        """Clean-ups in the outbox and on record, and those whose continuing execution may still need the state."""
        for name, parent in (("told", None), ("kept", None), ("taken-up", None), ("later", "taken-up")):
            relation = "cleanup" if parent else None
            await stack.apply(start(new_execution(name, parent=parent, relation=relation), token(name)))
        for name in ("told", "kept", "taken-up"):
            await stack.apply(command(name, order_letter(name, "cut off", 0.0), finish("CANCELLED")))
        stack.clock.advance(1)
        await stack.ledger.delivered(["kept/cleanup", "taken-up/cleanup"])
        await stack.records.put("cleanup", "kept", b"{}")
        names, now = ["told", "kept", "taken-up"], stack.clock.now()

        assert await stack.archive.remove_ended(now) == 0
        assert await stack.archive.remove(names) == []
        await stack.apply(command("later", order_letter("later", "cut off", 0.0), finish("CANCELLED")))
        stack.clock.advance(1)
        assert await stack.archive.remove_ended(stack.clock.now()) == 0
        await stack.ledger.delivered(["told/cleanup", "later/cleanup"])
        await stack.records.put("cleanup", "later", b"{}")
        await stack.records.remove("cleanup", "kept")

        assert await stack.archive.remove_ended(stack.clock.now()) == 2
        assert sorted(await _listed(stack)) == ["later", "taken-up"]
        await stack.records.remove("cleanup", "later")
        assert await stack.archive.remove_ended(stack.clock.now()) == 2


class ArchiveHandedOverTasks(Topic):
    guarantees = frozenset(("A4",))
    needs = frozenset(("commit", "archive", "blobs", "scripts", "sweep"))

    async def test_a4_retention_spares_the_inputs_of_unfinished_tasks(self, stack: ContractStack) -> None:
        """A task that was handed over reads its input from the script that called it."""
        blob = await stack.blobs.put(RUN, b"input")
        await suspend(stack, task("t1"), task("t2"), task("last", queue="last"))
        [lease] = await stack.claim(queues=("last",))
        await stack.apply(
            step(
                lease, save(1, snapshot=b"", reachable=()), msgspec.structs.replace(finish(), hand_over=True)
            )
        )
        await sweep_all(stack)
        names = [task_execution_id("t1"), task_execution_id("t2")]
        leases = await tasks(stack)

        for name, execution in zip(("t1", "t2"), names, strict=True):
            stack.clock.advance(1)
            assert await stack.archive.remove_ended(stack.clock.now(), states=("COMPLETED",)) == 0
            assert await stack.archive.remove([RUN]) == []
            assert await stack.blobs.get(RUN, blob) == b"input"
            await stack.apply(step(leases[name], finish("FAILED", None)))
            assert (await stack.execution(execution)).state == "FAILED"

        stack.clock.advance(1)
        assert await stack.archive.remove_ended(stack.clock.now(), states=("COMPLETED",)) == 1
        assert sorted(await _listed(stack)) == sorted(names)
        with pytest.raises(NotFound):
            await stack.blobs.get(RUN, blob)


async def _start_many(stack: ContractStack, *runs: tuple[str, float]) -> None:
    await stack.apply(*(start(new_execution(name, created_at=created), token("t")) for name, created in runs))


async def _listed(stack: ContractStack, where: ExecutionFilter = EVERYTHING) -> list[str]:
    return [found.id for found in await stack.archive.executions(where)]


KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task", "schedule")


async def names(stack: ContractStack, **where: object) -> list[str]:
    found = await stack.archive.executions(ExecutionFilter(**where))  # type: ignore[arg-type]
    return [view.id for view in found]


class ArchiveKinds(Topic):
    guarantees = frozenset(("A3",))
    needs = frozenset(("commit", "archive", "pausing", "sweep", "scripts"))

    async def _start_all(self, stack: ContractStack) -> None:
        for number, kind in enumerate(KINDS):
            new = new_execution(
                kind,
                kind=kind,
                created_at=stack.clock.now() + number,
                parent="p",
                relation="child" if number % 2 else "started",
                tags=(("team", "a"),),
            )
            await stack.apply(start(new, token("a")))

    async def test_kind_is_shown_before_and_after_the_sweep(self, stack: ContractStack) -> None:
        await self._start_all(stack)
        for kind in KINDS:
            assert (await stack.execution(kind)).kind == kind
            await stack.apply(cancel(kind))

        while await stack.ledger.sweep():
            pass

        for kind in KINDS:
            view = await stack.archive.execution(kind)
            assert view is not None
            assert view.kind == kind

    async def test_a3_listing_shows_all_but_schedules(self, stack: ContractStack) -> None:
        await self._start_all(stack)

        assert await names(stack) == ["task", "python", "script", "graph"]
        assert await names(stack, workflow="orders") == ["task", "python", "script", "graph"]
        assert await names(stack, parent="p") == ["task", "python", "script", "graph"]
        assert await names(stack, states=("RUNNING",)) == ["task", "python", "script", "graph"]
        assert await names(stack, tags=(("team", "a"),)) == ["task", "python", "script", "graph"]

    async def test_a3_listing_by_kind(self, stack: ContractStack) -> None:
        await self._start_all(stack)

        for kind in KINDS:
            assert await names(stack, kinds=(kind,)) == [kind]
        assert await names(stack, kinds=("schedule", "script")) == ["schedule", "script"]
        assert await names(stack, kinds=("schedule", "task"), parent="p", workflow="orders") == [
            "schedule",
            "task",
        ]

    async def test_a3_listing_by_relation(self, stack: ContractStack) -> None:
        await self._start_all(stack)
        await stack.apply(start(new_execution("alone"), token("a")))

        assert await names(stack, parent="p", relations=("child",)) == ["task", "script"]
        assert await names(stack, relations=("child", "started"), kinds=("graph", "task")) == [
            "task",
            "graph",
        ]
        assert await names(stack, relations=("retry",)) == []

    async def test_a3_listing_of_those_that_await_a_signal(self, stack: ContractStack) -> None:
        """An execution that awaits another signal, has received it, or has ended is not listed."""
        names_and_awaits = (
            ("asks", "signal:a"),
            ("child", "child:c"),
            ("told", "signal:b"),
            ("over", "signal:c"),
        )
        for name, _ in names_and_awaits:
            await stack.apply(start(new_execution(name), token(name), token(f"{name} too")))
        leases = await stack.take()
        for name, awaits in names_and_awaits:
            for lease in (leases[name], leases[f"{name} too"]):
                await stack.apply(step(lease, park=Park(None, b"", 1, awaits=awaits)))
        for signal in ("1", "2"):
            posted = PostSignal(signal, "b", b"", event("SignalReceived", "b"))
            await stack.apply(command("told", posted))
        await stack.apply(pause("asks"), cancel("over"))

        assert await names(stack, awaits_signal=True, states=("RUNNING", "PAUSED")) == ["asks"]
        assert await names(stack, awaits_signal=True, states=("RUNNING",)) == []
        assert await names(stack, awaits_signal=True, workflow="other") == []
        assert await names(stack, awaits_signal=True, tags=(("team", "a"),)) == []

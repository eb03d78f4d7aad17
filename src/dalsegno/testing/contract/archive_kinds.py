"""Kinds of executions and how they are related, as listings filter them (A3)."""

from __future__ import annotations

from dalsegno.model.effect import PostSignal
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.transition import Park
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.contract.build import (
    cancel,
    command,
    event,
    new_execution,
    pause,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

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
        """Another thing awaited, one that has come, and an ending do not count."""
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

"""Schedules among many other executions: found by themselves, with every filter (A3)."""

from __future__ import annotations

from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.contract.build import cancel, new_execution, pause, start, token
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

SCHEDULES = ExecutionFilter(kinds=("schedule",))


class ArchiveSchedules(Topic):
    guarantees = frozenset(("A3",))
    needs = frozenset(("commit", "archive", "pausing", "scripts"))

    async def _start_all(self, stack: ContractStack) -> None:
        """Seven schedules of two names, each between two executions of a workflow called like it."""
        for number in range(7):
            name, at = "ab"[number % 2], stack.clock.now() + 2 * number
            schedule = new_execution(
                f"s{number}", workflow=name, kind="schedule", created_at=at, tags=(("n", str(number % 3)),)
            )
            other = new_execution(f"x{number}", workflow=name, created_at=at + 1, parent="s0")
            await stack.apply(start(schedule, token("a")), start(other, token("a")))
        await stack.apply(cancel("s1"), pause("s2"))

    async def _names(self, stack: ContractStack, **where: object) -> list[str]:
        asked = ExecutionFilter(kinds=("schedule",), **where)  # type: ignore[arg-type]
        return [view.id for view in await stack.archive.executions(asked)]

    async def test_a3_newest_first_schedules_alone(self, stack: ContractStack) -> None:
        await self._start_all(stack)

        assert await self._names(stack) == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]

    async def test_a3_newest_first_schedules_in_pages(self, stack: ContractStack) -> None:
        await self._start_all(stack)
        seen: list[str] = []

        while page := await stack.archive.executions(SCHEDULES, seen[-1] if seen else None, 3):
            seen += [view.id for view in page]

        assert seen == ["s6", "s5", "s4", "s3", "s2", "s1", "s0"]

    async def test_a3_newest_first_schedules_by_every_filter(self, stack: ContractStack) -> None:
        await self._start_all(stack)

        assert await self._names(stack, workflow="a") == ["s6", "s4", "s2", "s0"]
        assert await self._names(stack, states=("PAUSED", "CANCELLED")) == ["s2", "s1"]
        assert await self._names(stack, states=("RUNNING",), workflow="b") == ["s5", "s3"]
        assert await self._names(stack, tags=(("n", "0"),)) == ["s6", "s3", "s0"]
        assert await self._names(stack, parent="s0") == []
        assert await self._names(stack, relations=("child",)) == []

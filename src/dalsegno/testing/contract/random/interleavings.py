"""Random interleavings of commits, duplicates, late commits, wakes, triggers, times, cancels and deaths give the same
results as the memory reference.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.testing.contract.builders import cancel
from dalsegno.testing.contract.ledger.pending import begin_in_time, submit, trigger
from dalsegno.testing.contract.random.graphs import WORKER, Twins, decide
from dalsegno.testing.contract.random.scripts import ScriptTwins
from dalsegno.testing.contract.stack import ContractStack, Topic

OPERATIONS = (
    "claim", "claim", "step", "step", "step", "step", "step", "step", "batch", "batch", "batch",
    "duplicate", "late", "show", "wake", "pause", "resume", "resume", "release", "die",
)  # fmt: skip
"""An operation is listed as often as its share of the work."""

SCRIPT_OPERATIONS = (
    "claim", "claim", "step", "step", "step", "step", "step", "step", "batch", "batch", "batch", "duplicate", "late",
    "show", "moved", "post", "post", "post", "deliver", "deliver", "drop", "nudge", "ask", "revise", "wake", "pause",
    "resume", "resume", "release", "die",
)  # fmt: skip

NUMBERS = st.integers(0, 99)
Program = list[tuple[str, int, int]]


def programs(operations: Sequence[str]) -> st.SearchStrategy[Program]:
    return st.lists(st.tuples(st.sampled_from(operations), NUMBERS, NUMBERS), min_size=20, max_size=80)


EXAMPLES = settings(
    derandomize=True,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # each example has its own executions and ends them
        HealthCheck.differing_executors,  # every binding runs the same function
        HealthCheck.too_slow,
    ],
)


async def run(twins: Twins, program: Program) -> None:
    try:
        await twins.begin()
        for number, (operation, a, b) in enumerate(program):
            await getattr(twins, operation)(a, b)
            if number % 8 == 7:
                await twins.compare()
        await twins.compare()
    finally:
        await twins.end()
    await twins.compare()


class ModelComparison(Topic):
    guarantees = frozenset(("L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "L9"))
    needs = frozenset(("commit", "gates", "cancelling", "pausing", "leases", "time"))

    @EXAMPLES
    @given(program=programs(OPERATIONS))
    async def test_any_interleaving_gives_what_the_reference_gives(
        self, stack: ContractStack, program: Program
    ) -> None:
        await run(Twins(stack, f"pair-{stack.clock.advance(1000):.0f}"), program)


class ScriptComparison(Topic):
    guarantees = frozenset(("L1", "L2", "L3", "L4", "L5", "L6", "L8", "L9"))
    needs = frozenset(("commit", "gates", "pausing", "leases", "time", "scripts"))

    @EXAMPLES
    @given(program=programs(SCRIPT_OPERATIONS))
    async def test_any_interleaving_of_scripts_gives_what_the_reference_gives(
        self, stack: ContractStack, program: Program
    ) -> None:
        await run(ScriptTwins(stack, f"pair-{stack.clock.advance(1000):.0f}"), program)


PENDING_OPERATIONS = (
    "wake", "wake", "claim", "claim", "step", "step", "step", "batch", "duplicate", "late", "trigger", "trigger",
    "call_off", "submit_again", "pause", "resume", "release", "die",
)  # fmt: skip
FIRST, SECOND = 60, 100
"""Seconds until the two of them begin by themselves."""


class PendingTwins(Twins):
    async def begin(self) -> None:
        await self.commit(*self._submissions())

    def _submissions(self) -> list[Transition]:
        if not self.sent:
            now = self.subject.clock.now()
            dues = (now + FIRST, now + SECOND)
            return [submit(name, due) for name, due in zip(self.executions, dues, strict=True)]
        return self.sent[:2]

    async def batch(self, a: int, b: int) -> None:
        if not self.held:
            await self.claim(a, b)
        chosen = [self.held.pop((a * b) % len(self.held)) for _ in range(min(a % 5, len(self.held)))]
        await self.commit(*(_decide(lease, b + index) for index, lease in enumerate(chosen)))

    async def late(self, a: int, b: int) -> None:
        if self.leases:
            await self.commit(_decide(self.leases[-1 - a % len(self.leases)], b))

    async def trigger(self, a: int, b: int) -> None:
        await self.commit(trigger(self.executions[a % 2], input=b"%d" % b if b % 2 else None))

    async def submit_again(self, a: int, b: int) -> None:
        await self.commit(*self._submissions())

    async def call_off(self, a: int, b: int) -> None:
        if b % 4 == 0:
            await self.commit(cancel(self.executions[a % 2]))


def _decide(lease: Lease, choice: int) -> Transition:
    return begin_in_time(lease) if lease.kind == "start" else decide(lease, choice, WORKER)


class PendingComparison(Topic):
    guarantees = frozenset(("L1", "L2", "L5", "L6", "L8"))
    needs = frozenset(("commit", "gates", "cancelling", "pausing", "leases", "time", "pending"))

    @EXAMPLES
    @given(program=programs(PENDING_OPERATIONS))
    async def test_any_interleaving_of_begins_gives_what_the_reference_gives(
        self, stack: ContractStack, program: Program
    ) -> None:
        twins = PendingTwins(stack, f"pair-{stack.clock.advance(1000):.0f}")
        await run(twins, program)
        for execution in twins.executions:
            begun = [event for event in await stack.events(execution) if event.kind == "ExecutionStarted"]
            assert len(begun) <= 1, begun

"""Random interleavings of commits, duplicates, late commits and wakes give the same results as the memory reference."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.random.graphs import Twins
from dalsegno.testing.contract.random.scripts import ScriptTwins
from dalsegno.testing.contract.stack import ContractStack

OPERATIONS = (
    "claim", "claim", "step", "step", "step", "step", "step", "step", "batch", "batch", "batch",
    "duplicate", "late", "show", "wake", "pause", "resume", "resume", "release", "die",
)  # fmt: skip
"""An operation is listed as often as its share of the work."""

SCRIPT_OPERATIONS = (
    "claim", "claim", "step", "step", "step", "step", "step", "step", "batch", "batch", "batch", "duplicate", "late",
    "show", "moved", "post", "post", "post", "deliver", "deliver", "drop", "nudge", "ask", "wake", "pause", "resume",
    "resume", "release", "die",
)  # fmt: skip

NUMBERS = st.integers(0, 99)
Program = list[tuple[str, int, int]]


def programs(operations: Sequence[str]) -> st.SearchStrategy[Program]:
    return st.lists(st.tuples(st.sampled_from(operations), NUMBERS, NUMBERS), min_size=20, max_size=80)


EXAMPLES = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
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

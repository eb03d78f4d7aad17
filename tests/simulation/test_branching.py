"""Random programs branch off at every turn, and come to the end that they came to before."""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import msgspec
import pytest

from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.scripts import programs
from dalsegno.lang.runtime.effects import promise_id
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.ids import child_execution_id
from dalsegno.model.machine import ALL
from dalsegno.testing.simulation.programs.generator import draw_program
from dalsegno.testing.simulation.programs.reference import OrderMattersError, UnforeseeableError, predict
from dalsegno.testing.simulation.programs.run_program import ScriptWorld
from dalsegno.testing.simulation.programs.scenario import ScriptScenario, most_signals
from tests.effort import first

FIRST = int(os.environ.get("DALSEGNO_FIRST_SEED", "0"))
PROGRAMS = 20
MOST_CHILDREN = 100


class BranchingWorld(ScriptWorld):
    """Branches off at every turn once the program has ended."""

    def __init__(self, scenario: ScriptScenario) -> None:
        super().__init__(scenario)
        self.turns: list[int] = []
        self.ends: list[tuple[str, ExecutionView]] = []

    async def observe_end(self) -> None:
        await self._ended(self.execution)
        for record in await self.client.turns(self.execution):
            self.turns.append(record.turn)
            await self._ended(await self.client.rerun(self.execution, turn=TurnAsked(record.turn)))

    async def _ended(self, execution: str) -> None:
        while (view := await self.client.status(execution)).state not in ENDED:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1.0)
        self.ends.append((execution, view))


def told(execution: str, view: ExecutionView) -> tuple[Any, ...]:
    """Return the end of an execution without the ids of its children, which are derived from its own."""
    output = view.output
    for number in range(MOST_CHILDREN):
        child = child_execution_id(execution, promise_id(number)).encode()
        output = output.replace(child, b"child %d" % number) if output is not None else None
    error = msgspec.json.decode(view.error) if view.error is not None else {}
    return view.state, output, error.get("code")


def foreseeable(seed: int, language: Any) -> ScriptScenario | None:
    """Return a program whose end does not depend on the order in which things complete."""
    program = draw_program(Random(seed))
    if most_signals(program) or program.timeout is not None:
        return None
    try:
        predict(program, "x", {})
    except (OrderMattersError, UnforeseeableError):
        return None
    return ScriptScenario(program, language=language)


@pytest.mark.parametrize("language", ["flow", "python"])
@pytest.mark.parametrize("block", first(1, range(100)))
def test_every_turn_leads_to_the_same_end(block: int, language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "read_journal", lambda _: ALL)
    compared = 0
    for seed in range(FIRST + PROGRAMS * block, FIRST + PROGRAMS * (block + 1)):
        scenario = foreseeable(seed, language)
        if scenario is None:
            continue
        world = BranchingWorld(scenario)
        world.simulate()
        assert not world.findings, (seed, world.findings)
        assert world.turns == list(range(1, len(world.turns) + 1)), seed
        (main, view), *branches = world.ends
        expected = told(main, view)
        for turn, (branch, end) in zip(world.turns, branches, strict=True):
            assert told(branch, end) == expected, (seed, turn)
            compared += 1
    assert compared > PROGRAMS, compared

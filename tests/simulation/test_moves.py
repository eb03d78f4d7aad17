"""Executions of random programs that are moved to another version and back while they run, beside crashes, lost replies
and pauses: they come to what their program says.
"""

from __future__ import annotations

import pytest

from dalsegno.testing.simulation.programs.judge import draw_script, judge_script, with_moves
from tests.effort import first

pytestmark = pytest.mark.own_interpreter

CHUNK = 20
CHUNKS = 500


@pytest.mark.parametrize("start", first(1, range(0, CHUNK * CHUNKS, CHUNK)))
def test_moved_executions_come_to_what_their_program_says(start: int) -> None:
    failures, moves, applied = [], 0, 0
    for seed in range(start, start + CHUNK):
        case = with_moves(draw_script(seed))
        verdict = judge_script(case)
        failures += [f"seed {seed}: {finding}" for finding in verdict.findings]
        moves += verdict.moved
        applied += sum(fault.kind == "move" for fault in verdict.applied)
    assert not failures, "\n".join(failures[:10])
    assert moves > CHUNK // 4, "hardly any execution was moved"
    assert applied > moves // 2

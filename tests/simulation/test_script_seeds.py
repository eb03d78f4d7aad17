"""A thousand seeds, always the same: random scripts and Python workflows on a simulated system with faults.
Eighty in a build, four times as many as the planted bugs need to be found (`test_planted_bugs.py`)."""

from __future__ import annotations

import pytest

from dalsegno.testing.simulation import run_chunk
from tests.effort import first

pytestmark = pytest.mark.own_interpreter

SEEDS = 1000
CHUNK = 40
IN_BUILD = 2
"""Chunks."""
LONG = 20_000
LONG_CHUNK = 500


@pytest.mark.parametrize("start", first(IN_BUILD, range(0, SEEDS, CHUNK)))
def test_programs_come_to_what_they_say(start: int) -> None:
    tally = run_chunk(range(start, start + CHUNK), kind="scripts")
    assert not tally.failures, "\n\n".join(tally.failures)
    assert tally.confluent > CHUNK // 3, (
        "hardly any program is confluent: the comparison has lost its meaning"
    )
    assert tally.predicted > CHUNK // 2, "hardly any outcome is predicted: the reference has lost its meaning"
    assert tally.faults > CHUNK, "hardly any fault strikes: the schedules have lost their meaning"


@pytest.mark.soak
@pytest.mark.parametrize("start", range(1_000_000, 1_000_000 + LONG, LONG_CHUNK))
def test_many_programs_come_to_what_they_say(start: int) -> None:
    tally = run_chunk(range(start, start + LONG_CHUNK), kind="scripts")
    assert not tally.failures, "\n\n".join(tally.failures)

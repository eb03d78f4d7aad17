"""Two thousand seeds, always the same: random graphs on a simulated system with faults. A hundred and sixty in a build,
which is three times as many as the planted bugs need to be found (`test_planted_bugs.py`)."""

from __future__ import annotations

import pytest

from dalsegno.testing.simulation import run_chunk
from tests.effort import first

SEEDS = 2000
CHUNK = 40
IN_BUILD = 4
"""Chunks."""


@pytest.mark.parametrize("start", first(IN_BUILD, range(0, SEEDS, CHUNK)))
def test_the_kernel_keeps_its_promises(start: int) -> None:
    tally = run_chunk(range(start, start + CHUNK))
    assert not tally.failures, "\n\n".join(tally.failures)
    assert tally.confluent > CHUNK // 4, "hardly any graph is confluent: the comparison has lost its meaning"

"""Moving machines of random programs to other versions of them: right, or refused."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.effort import first
from tests.simulation.moving import check

FIRST = int(os.environ.get("DALSEGNO_FIRST_SEED", "0"))
PROGRAMS = 50


@pytest.mark.parametrize("language", ["flow", "python"])
@pytest.mark.parametrize("block", first(1, range(100)))
def test_moved_machines_go_on_as_if_the_new_version_had_run_from_the_start(block: int, language: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST + PROGRAMS * block, FIRST + PROGRAMS * (block + 1)):
        check(seed, language, seen)
    assert seen["moved"] > seen["refused"] / 4, seen
    assert seen["compared"] > PROGRAMS / 2, seen

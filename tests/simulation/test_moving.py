"""Moving machines of random programs to other versions of them: right, or refused."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.effort import IS_SEARCHING
from tests.simulation.moving import check

FIRST = int(os.environ.get("DALSEGNO_FIRST_SEED", "0"))
PROGRAMS = int(os.environ.get("DALSEGNO_MOVED_PROGRAMS", "5000" if IS_SEARCHING else "60"))


@pytest.mark.parametrize("language", ["flow", "python"])
def test_moved_machines_go_on_as_if_the_new_version_had_run_from_the_start(language: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + PROGRAMS):
        check(seed, language, seen)
    assert seen["moved"] > seen["refused"] / 4, seen
    assert seen["compared"] > PROGRAMS / 2, seen

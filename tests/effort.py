"""How many examples a property test tries: a quarter of them in a build, where they are the same every time, and all
of them, others every time, in ``make soak``."""

from __future__ import annotations

import os

from hypothesis import settings

IS_SEARCHING = os.environ.get("DALSEGNO_EXAMPLES") == "searching"


def examples(number: int) -> settings:
    return settings(max_examples=number if IS_SEARCHING else number // 4, deadline=None)

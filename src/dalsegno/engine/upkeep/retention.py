"""Retention: how long ended executions are kept, by end state, and their removal in chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from dalsegno.errors import BadConfiguration
from dalsegno.model.execution import ENDED, EndState
from dalsegno.ports.archive import Archive

Retention: TypeAlias = float | Mapping[EndState, float] | None
"""Seconds after the end of an execution, by end state or for all states. States without an entry are kept."""

CHUNK = 200
"""Executions that one call removes at most. The store splits large ones into several transactions."""

_EXAMPLE = "write seconds, or seconds by state such as {'COMPLETED': 86400, 'FAILED': 2592000}"


def read_retention(retention: Retention) -> dict[float, tuple[EndState, ...]]:
    """Return the end states by retention time. Raises BadConfiguration."""
    if retention is None:
        return {}
    by_state = retention if isinstance(retention, Mapping) else dict.fromkeys(sorted(ENDED), retention)
    found: dict[float, tuple[EndState, ...]] = {}
    for state, seconds in by_state.items():
        if state not in ENDED:
            known = ", ".join(sorted(ENDED))
            raise BadConfiguration(f"retention: executions do not end {state!r} but {known}; {_EXAMPLE}")
        if not _is_span(seconds):
            raise BadConfiguration(
                f"retention of {state}: {seconds!r} is not a number of seconds; {_EXAMPLE}"
            )
        found[float(seconds)] = (*found.get(float(seconds), ()), state)  # type: ignore[arg-type]  # checked above
    return found


def _is_span(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds < math.inf


async def remove_outdated(
    archive: Archive, kept_for: Mapping[float, tuple[EndState, ...]], now: float
) -> bool:
    """Remove one chunk per retention time. Return True if there may be more."""
    more = False
    for seconds, states in kept_for.items():
        more |= await archive.remove_ended(now - seconds, CHUNK, states) == CHUNK
    return more

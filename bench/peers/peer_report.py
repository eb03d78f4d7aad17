"""What a peer tells at the end, under the names of our own report. Runs in every peer's environment."""

from __future__ import annotations

from collections.abc import Sequence

Report = dict[str, float | None]


def report(per_s: float, seconds: Sequence[float] = ()) -> Report:
    """``seconds`` are the times of single executions, where they were taken."""
    return {"steps_per_s": per_s, "p50_ms": _share(seconds, 0.5), "p99_ms": _share(seconds, 0.99)}


def _share(seconds: Sequence[float], share: float) -> float | None:
    """Nearest rank, as in our own report."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000

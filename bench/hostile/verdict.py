"""The bounds of the hostile soak, and the complaints about a run that breaks one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bounds:
    p99_ms: float = 250.0
    """Of the honest workflow, from its start over HTTP to its result, while the machine has its cores."""
    memory_mb: float = 400.0
    """Of each process."""
    disk_mb: float = 2_000.0
    """Growth of the store, while ended executions are kept for half a minute."""


def measured_p99(found: Mapping[str, Any], bounds: Bounds) -> float | None:
    """The honest latency to judge: of all executions if it keeps to the bound, of those with the cores if it does not.
    None if there were none of these: then the host is what was measured."""
    whole = found["p99_ms"]
    return whole if whole is not None and whole <= bounds.p99_ms else found["undisturbed_p99_ms"]


def complaints(found: Mapping[str, Any], bounds: Bounds | None = None) -> Iterator[str]:
    bounds = bounds or Bounds()
    if found["died"]:
        yield f"{', '.join(found['died'])} died"
    if found["honest_failures"]:
        yield f"honest executions failed: {found['honest_failures'][0]}"
    if found["honest_executions"] < found["seconds"]:
        yield f"only {found['honest_executions']} of {found['seconds']} honest executions ended"
    if (p99 := measured_p99(found, bounds)) is not None and p99 > bounds.p99_ms:
        yield f"p99 of the honest workflow is {p99:.0f} ms, more than {bounds.p99_ms:.0f}"
    for name, mb in found["memory_mb"].items():
        if mb > bounds.memory_mb:
            yield f"memory of the {name} reached {mb:.0f} MB, more than {bounds.memory_mb:.0f}"
    before, largest = found["disk_mb"]
    if largest - before > bounds.disk_mb:
        yield f"the store grew by {largest - before:.0f} MB, more than {bounds.disk_mb:.0f}"
    if found["wrong_answers"]:
        yield f"{found['wrong_answers']} answers of 5xx: {found['wrong'][0]}"
    if found["tracebacks"]:
        yield f"{found['tracebacks']} tracebacks in the logs"
    if found["reached"]:
        yield f"{found['reached']} connections to a private address"

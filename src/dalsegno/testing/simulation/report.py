"""What is printed about a seed that failed: everything needed to understand it and to see it again."""

from __future__ import annotations

import textwrap
from typing import Any

from dalsegno.testing.simulation.kinds import kind_of
from dalsegno.testing.simulation.verdict import Verdict


def describe(case: Any, verdict: Verdict, *, seed: int) -> str:
    """``case`` is the shortest form that was found of what ``seed`` draws."""
    kind = kind_of(case)
    findings = "\n".join(f"  - {textwrap.shorten(finding, 1000)}" for finding in verdict.findings[:10])
    schedule = ", ".join(str(fault) for fault in case.schedule) or "none"
    order = "first come, first served" if case.order is None else f"drawn from {case.order}"
    return "\n".join(
        [
            f"seed {seed} broke a promise:",
            findings,
            "",
            f"the {kind.noun}, as short as it could be made:",
            textwrap.indent(kind.text(case.scenario), "  "),
            f"around it: {kind.surroundings(case.scenario)}",
            f"the faults: {schedule}",
            f"the order of steps: {order}",
            "",
            f"see it again: {command(seed, kind.option)}",
        ]
    )


def command(seed: int, option: str = "") -> str:
    return f"python -m dalsegno.testing.simulation{option} --start {seed} --seeds 1"

"""Small programs for the simulator, written by hand."""

from __future__ import annotations

from typing import Any

from dalsegno.testing.simulation.programs.program import MAIN, Program, Statement, Work
from dalsegno.testing.simulation.programs.scenario import ScriptScenario, SentSignal


def program(*body: Statement, timeout: float | None = None, **children: tuple[Statement, ...]) -> Program:
    return Program({**children, MAIN: body}, timeout)


def scenario(
    *body: Statement,
    signals: tuple[tuple[float, str], ...] = (),
    timeout: float | None = None,
    children: dict[str, tuple[Statement, ...]] | None = None,
    **setting: Any,
) -> ScriptScenario:
    sent = tuple(SentSignal(after, name, 100 + place) for place, (after, name) in enumerate(signals))
    return ScriptScenario(program(*body, timeout=timeout, **(children or {})), sent, **setting)


def work(site: int, **fields: Any) -> Work:
    return Work(site, **fields)

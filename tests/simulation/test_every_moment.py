"""One fault at every moment of one run, exhaustively: what random schedules may take long to hit."""

from __future__ import annotations

from functools import cache

import pytest

from dalsegno.testing.simulation.environment.faults import Fault, FaultKind
from dalsegno.testing.simulation.run_graph import Observation, differences, observe, outcome_of
from tests.effort import every
from tests.simulation.graphs import diamond

CALLS = 120
STEPS = 400


def findings(*schedule: Fault, news: bool = False) -> list[str]:
    """What went wrong in a run with these faults, which must end as one without them."""
    run = observe(diamond(news=news), schedule)
    return run.findings + differences(outcome_of(observe_calm()), outcome_of(run))


@cache
def observe_calm() -> Observation:
    return observe(diamond())


@pytest.mark.parametrize("news", [False, True], ids=["messages", "claims"])
@pytest.mark.parametrize("kind", ["fail", "lose-reply", "twice"])
def test_any_call_of_the_store_may_go_wrong(kind: FaultKind, news: bool) -> None:
    for at in range(1, CALLS, every(1 + news)):
        assert findings(Fault(kind, at), news=news) == [], f"{kind} at call {at}"


@pytest.mark.parametrize("kind", ["crash", "stop"])
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_may_end_between_any_two_awaits(kind: FaultKind, process: int) -> None:
    for at in range(1 + process, STEPS, every(2)):
        assert findings(Fault(kind, at, process)) == [], f"{kind} of process {process} at step {at}"


def test_the_clock_may_jump_over_every_lease_at_any_moment() -> None:
    for at in range(1, STEPS, every(2)):
        assert findings(Fault("jump", at, 90.0)) == [], f"jump at step {at}"


@pytest.mark.parametrize("message", range(1, 25))
def test_any_announcement_may_be_lost(message: int) -> None:
    for kind in ("drop", "duplicate"):
        assert findings(Fault(kind, message)) == []


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, STEPS, 10))
def test_two_processes_may_end_at_any_two_moments(first: int) -> None:
    for second in range(first, STEPS, 10):
        schedule = (Fault("crash", first, 0), Fault("crash", second + 1, 1))
        assert findings(*schedule) == [], f"crashes at steps {first} and {second + 1}"

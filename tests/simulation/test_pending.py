"""One fault at every few moments of a delayed start, with a trigger that comes when its time does: it begins once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache

import pytest

from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import Conflict
from dalsegno.testing.simulation.environment.faults import Fault, FaultKind
from dalsegno.testing.simulation.environment.system import KEY
from dalsegno.testing.simulation.run_graph import Observation, World, differences, outcome_of
from tests.effort import every
from tests.simulation.graphs import diamond

DELAY = 20.0
CALLS = 80
STEPS = 420


class DelayedWorld(World):
    """``triggered_after``: seconds until somebody begins it early, or at the very moment."""

    def __init__(self, schedule: Sequence[Fault], triggered_after: float | None) -> None:
        super().__init__(diamond(), schedule)
        self.triggered_after = triggered_after

    async def begin(self) -> str:
        definition, _ = await self.client.deploy(self.scenario.document)
        options = StartOptions(idempotency_key=KEY, delay=DELAY)
        execution = await self.client.start(definition.name, self.scenario.input, options)
        if self.triggered_after is not None:
            self.spawn(self._trigger(execution, self.triggered_after))
            self.spawn(self._trigger(execution, self.triggered_after))
        return execution

    async def _trigger(self, execution: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            await self.client.trigger(execution)
        except Conflict as error:
            assert "cancelled" in str(error)  # noqa: PT017 - it has no other reason


def run(*schedule: Fault, triggered_after: float | None = None) -> Observation:
    return DelayedWorld(schedule, triggered_after).run()


@cache
def calm() -> Observation:
    return run()


def findings(*schedule: Fault, triggered_after: float | None = None) -> list[str]:
    observed = run(*schedule, triggered_after=triggered_after)
    begun = [event.kind for event in observed.events].count("ExecutionStarted")
    return observed.findings + differences(outcome_of(calm()), outcome_of(observed)) + ["twice"] * (begun - 1)


def test_without_faults_it_begins_when_its_time_has_come() -> None:
    observed = calm()
    assert observed.findings == []
    submitted, started = observed.events[:2]
    assert (submitted.kind, started.kind) == ("ExecutionSubmitted", "ExecutionStarted")
    assert started.at - submitted.at >= DELAY
    assert observed.view is not None
    assert observed.view.state == "COMPLETED"


def test_triggered_early_it_begins_early() -> None:
    observed = run(triggered_after=5.0)
    assert observed.findings == []
    assert observed.events[1].at - observed.events[0].at < DELAY


@pytest.mark.parametrize("triggered_after", [None, DELAY - 1, DELAY])
@pytest.mark.parametrize("kind", ["fail", "lose-reply", "twice"])
def test_any_call_of_the_store_may_go_wrong(kind: FaultKind, triggered_after: float | None) -> None:
    for at in range(1, CALLS, every(4)):
        assert findings(Fault(kind, at), triggered_after=triggered_after) == [], f"{kind} at call {at}"


@pytest.mark.parametrize("triggered_after", [None, DELAY - 1, DELAY])
@pytest.mark.parametrize("process", [0, 1])
def test_a_process_may_die_between_any_two_awaits(process: int, triggered_after: float | None) -> None:
    for at in range(1 + process, STEPS, every(9)):
        found = findings(Fault("crash", at, process), triggered_after=triggered_after)
        assert found == [], f"crash of process {process} at step {at}"


@pytest.mark.parametrize("seconds", [-30.0, 30.0, 3600.0])
def test_a_clock_that_jumps_starts_nothing_twice(seconds: float) -> None:
    for at in range(1, STEPS, every(13)):
        found = findings(Fault("jump", at, seconds), triggered_after=DELAY - 1)
        assert found == [], f"a jump by {seconds:g} s at step {at}"


def test_whenever_it_is_cancelled_it_ends_once() -> None:
    for at in range(1, STEPS, every(7)):
        observed = run(Fault("cancel", at), triggered_after=DELAY)
        assert observed.findings == [], f"cancel at step {at}"
        assert observed.view is not None
        assert observed.view.state in ("CANCELLED", "COMPLETED")

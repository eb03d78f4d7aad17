"""One fault at every moment of one program, exhaustively, as a script and as a Python workflow."""

from __future__ import annotations

from functools import cache

import pytest

from dalsegno.testing.simulation.environment.faults import Fault, FaultKind
from dalsegno.testing.simulation.programs.judge import ScriptCase, judge_script
from dalsegno.testing.simulation.programs.program import (
    Attempt,
    Await,
    Begin,
    Child,
    Fan,
    Fire,
    Group,
    Repeat,
    Saved,
    Signal,
    Timer,
)
from dalsegno.testing.simulation.programs.run_program import ScriptObservation, observe_script
from dalsegno.testing.simulation.programs.scenario import Language, ScriptScenario
from tests.effort import every
from tests.simulation.programs import scenario, work

CALLS = 120
STEPS = 420
IDLE = 500
"""What the system does after the end of the program, until the run is over."""
LANGUAGES: tuple[Language, ...] = ("flow", "python")


@cache
def everything(language: Language, *, news: bool = False) -> ScriptScenario:
    """Every way to wait, in one program whose outcome does not depend on who is quicker."""
    return scenario(
        Begin("p1", work(1, seconds=1.0)),
        Await(Fan("all", 3, work(2, given="index", seconds=0.4))),
        Fire(work(3, seconds=2.0)),
        Attempt((Await(Group("all", (work(4, fails=1000), Timer(1.5)))),), caught=(Await(Timer(0.2)),)),
        Repeat(2, (Await(Signal("a")),)),
        Await(Group("all_settled", (Saved("p1"), work(5, fails=2, retries=1, pause=0.3), Child("child0")))),
        Await(Child("child0", "last")),
        signals=((0.0, "a"), (2.0, "a")),
        children={"child0": (Await(work(6)), Await(Timer(0.2)))},
        language=language,
        news=news,
    )


def findings(program: ScriptScenario, *schedule: Fault) -> list[str]:
    """What went wrong in a run with these faults, which must end as one without them."""
    run, calm = observe_script(program, schedule), observe_calm(program.language)
    found = list(run.findings)
    if run.view is None or calm.view is None or run.view.output != calm.view.output:
        found.append(f"it came to {run.view}")
    return found


@cache
def observe_calm(language: Language) -> ScriptObservation:
    return observe_script(everything(language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_program_completes_without_faults(language: Language) -> None:
    run = observe_calm(language)
    assert run.findings == []
    assert run.view is not None
    assert run.view.state == "COMPLETED"
    assert run.view.output is not None
    assert run.view.output.count(b"fulfilled") == 4
    assert run.steps < STEPS + IDLE, "the program has outgrown the moments that are tested"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["fail", "lose-reply", "twice"])
def test_any_call_of_the_store_may_go_wrong(kind: FaultKind, language: Language) -> None:
    for number, at in enumerate(range(1 + (language == "python"), CALLS, every(2))):
        news = number % 2 == 1
        assert findings(everything(language, news=news), Fault(kind, at)) == [], f"{kind} at call {at}"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["crash", "stop"])
def test_a_process_may_end_between_any_two_awaits(kind: FaultKind, language: Language) -> None:
    for number, at in enumerate(range(1 + (language == "python"), STEPS, every(5))):
        process = number % 2
        assert findings(everything(language), Fault(kind, at, process)) == [], f"{kind} of {process} at {at}"


def test_the_clock_may_jump_over_every_lease_at_any_moment() -> None:
    for at in range(1, STEPS, every(8)):
        assert findings(everything("flow"), Fault("jump", at, 90.0)) == [], f"jump at step {at}"


def test_any_announcement_may_be_lost_or_come_twice() -> None:
    for message in range(1, 30):
        for kind in ("drop", "duplicate"):
            assert findings(everything("flow"), Fault(kind, message)) == [], f"{kind} of message {message}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_may_be_cancelled_at_any_moment(language: Language) -> None:
    for at in range(1 + (language == "python"), STEPS, every(16)):
        verdict = judge_script(ScriptCase(0, everything(language), (Fault("cancel", at),)))
        assert verdict.findings == (), f"cancel at step {at}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1, STEPS, 10))
def test_two_processes_may_end_at_any_two_moments(first: int) -> None:
    for second in range(first, STEPS, 10):
        schedule = (Fault("crash", first, 0), Fault("crash", second + 1, 1))
        assert findings(everything("flow"), *schedule) == [], f"crashes at steps {first} and {second + 1}"

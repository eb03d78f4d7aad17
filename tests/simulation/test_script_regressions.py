"""What the simulator has found in scripts, as small as it could be made, and the simulator of scripts itself."""

from __future__ import annotations

import msgspec
import pytest

from dalsegno.core.settlement import machines
from dalsegno.engine.scripts import advance
from dalsegno.engine.scripts.advance import Job
from dalsegno.lang.runtime.effects import Awaitable
from dalsegno.testing.simulation.programs.judge import ScriptCase, draw_script, judge_script
from dalsegno.testing.simulation.programs.program import (
    Attempt,
    Await,
    Begin,
    Choose,
    Fan,
    Fire,
    Group,
    Inner,
    Saved,
    Signal,
    Throw,
    Timer,
)
from dalsegno.testing.simulation.programs.reference import predict
from dalsegno.testing.simulation.programs.run_program import observe_script
from dalsegno.testing.simulation.programs.scenario import Language
from dalsegno.testing.simulation.programs.sources import text_of
from dalsegno.testing.simulation.reference import OrderMattersError, UnforeseeableError
from dalsegno.testing.simulation.seeds import KINDS, describe
from dalsegno.testing.simulation.shrink import shrink_with
from tests.simulation.programs import program, scenario, work


def test_a_task_that_ends_while_a_signal_wakes_its_script_leaves_one_resume() -> None:
    """A fused commit passed by the resume that the signal had made ready, and a second one was spawned."""
    body = (Begin("p1", work(1)), Begin("p2", work(2)), Await(Signal("b")), Await(Signal("b")))
    for order in range(20):
        run = observe_script(scenario(*body, signals=((0.0, "b"), (0.0, "b"))), order=order)
        assert run.findings == [], f"order {order}"


def test_a_task_that_is_handed_over_while_its_lease_is_given_back_is_not_lost() -> None:
    """A worker without a free slot gave back a lease under the name of the script, which had ended meanwhile."""
    for concurrency in (1, 2, 3, 4):
        for news in (False, True):
            race = scenario(
                Await(Fan("race", 4, work(1, fails=1))), concurrency=concurrency, news=news, bystander=True
            )
            verdict = judge_script(ScriptCase(0, race))
            assert verdict.findings == (), f"concurrency {concurrency}, news {news}"


def test_of_timers_that_are_overdue_the_earliest_has_fired_first() -> None:
    """They were taken in the order of a stack."""
    leaves = tuple(Awaitable("timer", f"p{number}", due=due) for number, due in enumerate((5.0, 3.0, 4.0)))
    job = Job("execution", 0, 0, 10.0, {})
    advance._expire_timers(Awaitable("race", items=leaves), job)
    assert list(job.known) == ["p1", "p2", "p0"]


# -- the simulator itself -----------------------------------------------------------------------------------------


def test_a_failing_program_is_shortened_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: what comes while a script runs does not wake it again."""

    def forget(_work: object, machine: machines.MachineRow, *_seen: object) -> None:
        machine.unread = machine.last_success = machine.last_failure = 0

    monkeypatch.setattr(machines, "_count_unread", forget)
    inner = (Attempt((Await(work(2)),), caught=(Await(Timer(1.5)),)),)
    nested = Group("all", (Fan("all", 4, work(3, given="index")), Group("all", (work(5), work(6)))))
    body = (Await(work(1)), Inner(inner), Await(nested), Await(work(4)))
    case = next(
        case
        for order in range(60)
        if judge_script(case := ScriptCase(7, scenario(*body, bystander=True), order=order)).findings
    )
    verdict = judge_script(case)
    assert any("L6" in finding for finding in verdict.findings)
    kind = KINDS["scripts"]
    smaller, finding = shrink_with(case, verdict, 25, kind.judge, kind.simpler)
    told = describe(smaller, finding, seed=7)
    assert "bystander False" in told
    assert "catch" not in told
    assert "site: 4" not in told  # which of the others can go depends on the order of steps
    assert "site: 3" in told
    assert "python -m dalsegno.testing.simulation --scripts --start 7 --seeds 1" in told


def test_a_drawn_program_is_the_same_every_time_and_in_both_languages() -> None:
    assert draw_script(42) == draw_script(42)
    texts = {
        language: text_of(msgspec.structs.replace(draw_script(42).scenario, language=language))
        for language in ("flow", "python")
    }
    assert "workflow main(inputs) {" in texts["flow"]
    assert "async def main(inputs):" in texts["python"]


@pytest.mark.parametrize("language", ["flow", "python"])
def test_both_languages_come_to_what_the_reference_foretells(language: Language) -> None:
    body = (
        Begin("p1", work(1)),
        Attempt((Await(Timer(0)), Throw(5)), caught=(Await(Saved("p1")),), lastly=(Await(work(2)),)),
        Choose(even=(Await(work(3)),), odd=(Await(work(4)),)),
        Await(Group("any", (work(6, fails=1000), work(7)))),
        Fire(work(8)),
    )
    run = observe_script(scenario(*body, language=language))
    expected = predict(program(*body), run.main, {})
    assert run.view is not None
    assert msgspec.json.decode(run.view.output or b"") == expected.result
    assert len(expected.tasks) == 6


def test_what_depends_on_who_is_quicker_is_not_foretold() -> None:
    with pytest.raises(OrderMattersError):
        predict(program(Await(Group("race", (work(1), work(2))))), "x", {})
    with pytest.raises(UnforeseeableError):
        predict(program(Await(Signal("a", timeout=1.0))), "x", {})


def test_the_order_in_which_things_happened_decides_a_race() -> None:
    body = (Await(Group("race", (work(1, seconds=2.0), work(2, seconds=1.0)))),)
    verdict = judge_script(ScriptCase(0, scenario(*body)))
    assert verdict.findings == ()
    assert not verdict.confluent
    assert verdict.predicted
    run = observe_script(scenario(*body))
    order = {run.main: {0: 9, 1: 3}}
    assert run.view is not None
    assert msgspec.json.decode(run.view.output or b"") == predict(program(*body), run.main, {}, order).result


def test_time_passes_for_the_program() -> None:
    run = observe_script(scenario(Await(Timer(1800))))
    assert run.findings == []
    assert run.seconds > 1800

"""When a suspended machine is worth resuming."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.core.scripts.turn import decided, describe, leaf_ids, wake_of, without_limits
from dalsegno.lang.runtime.effects import TIME_LIMITED, Awaitable, Err, ErrorValue, Ok, Outcome
from dalsegno.model.machine import Wake

FAILED = Err(ErrorValue("X", "x"))


def _task(number: int) -> Awaitable:
    return Awaitable("task", f"p{number}", "work")


def _group(kind: str, *items: Awaitable) -> Awaitable:
    return Awaitable(kind, items=items)  # type: ignore[arg-type]


def test_a_single_await_needs_that_promise() -> None:
    assert wake_of(_task(7), {}, ()) == Wake(1, awaited=((7, 8),))


def test_all_needs_what_is_missing_or_a_failure() -> None:
    group = _group("all", *(_task(number) for number in range(5)))
    assert wake_of(group, {"p1": Ok(1)}, ()) == Wake(4, on_failure=True, awaited=((0, 1), (2, 5)))


def test_any_needs_what_is_missing_or_a_success() -> None:
    group = _group("any", _task(0), _task(1))
    assert wake_of(group, {"p0": FAILED}, ()) == Wake(1, on_success=True, awaited=((1, 2),))


def test_all_settled_needs_what_is_missing_and_nothing_less() -> None:
    assert wake_of(_group("all_settled", _task(0), _task(1)), {}, ()) == Wake(2, awaited=((0, 2),))


def test_a_race_and_whatever_is_nested_need_one() -> None:
    race = _group("race", _task(0), _task(1))
    assert wake_of(race, {}, ()) == Wake(1, awaited=((0, 2),))
    assert wake_of(_group("all", race, _task(4)), {}, ()) == Wake(1, awaited=((0, 2), (4, 5)))


def test_the_same_promise_twice_is_missing_once() -> None:
    assert wake_of(_group("all", _task(3), _task(3)), {}, ()).need == 1


def test_signals_and_the_first_timer_are_noted() -> None:
    timers = (Awaitable("timer", "p1", due=9.0), Awaitable("timer", "p2", due=5.0))
    wake = wake_of(_group("race", *timers, Awaitable("signal", "p3", "go")), {}, ("go",))
    assert (wake.signals, wake.due) == (("go",), 5.0)


_leaves = st.integers(0, 5).map(_task)
_awaitables = st.recursive(
    _leaves,
    lambda inner: st.builds(
        _group, st.sampled_from(("all", "any", "race", "all_settled")), inner, inner, inner
    ),
    max_leaves=8,
)
_outcomes = st.dictionaries(
    st.integers(0, 5).map(lambda number: f"p{number}"), st.sampled_from((Ok(1), FAILED))
)


@given(_awaitables, st.lists(st.tuples(st.integers(0, 5), st.booleans()), unique_by=lambda one: one[0]))
def test_whatever_decides_an_await_has_woken_its_machine(
    awaiting: Awaitable, arriving: list[tuple[int, bool]]
) -> None:
    """Completions come one by one, as the ledger counts them: none that decides may leave the machine asleep."""
    wake, known, unread, flagged = wake_of(awaiting, {}, ()), dict[str, Outcome](), 0, False
    for promise, ok in arriving:
        known[f"p{promise}"] = Ok(1) if ok else FAILED
        if wake.counts(promise):
            unread += 1
            flagged = flagged or (wake.on_success if ok else wake.on_failure)
        if decided(awaiting, known) is not None:
            assert flagged or unread >= wake.need


@given(_awaitables, _outcomes)
def test_nothing_is_decided_by_what_is_not_below(awaiting: Awaitable, known: dict[str, Outcome]) -> None:
    below = leaf_ids(awaiting)
    relevant = {name: outcome for name, outcome in known.items() if name in below}
    assert decided(awaiting, known) == decided(awaiting, relevant)


def test_what_is_awaited_is_told_in_a_word() -> None:
    assert describe(_task(1)) == "task work"
    assert describe(_group("all", _task(1), _task(2))) == "all of 2"
    assert describe(_group("all_settled", _task(1), _task(2))) == "all of 2"
    assert describe(_group("any", _task(1), _task(2))) == "first success of 2"
    assert describe(Awaitable("timer", "p1", due=1.0)) == "timer"


def test_time_limits_are_told_apart_from_what_is_awaited() -> None:
    signal = Awaitable("signal", "p0", "go")
    timers = (Awaitable("timer", "p1", due=9.0), Awaitable("timer", "p2", due=5.0))
    limited = Awaitable("race", items=(signal, *timers), shape=TIME_LIMITED)
    assert describe(limited) == "signal go, with a time limit"
    assert without_limits(limited) == (signal, (5.0, 9.0))
    race = Awaitable("race", items=(signal, *timers))
    assert without_limits(race) == (race, ())
    assert describe(race) == "race of 3"

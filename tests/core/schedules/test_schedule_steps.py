"""The steps of a schedule: what they start, and how its token sleeps on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dalsegno.core.outbox_orders import StartOrder, decode_start
from dalsegno.core.schedules.spec import ScheduleSpec, make_spec, next_after
from dalsegno.core.schedules.step import (
    STARTS_PER_COMMIT,
    ScheduleState,
    change_schedule,
    create_schedule,
    decode_state,
    delay_of,
    encode_state,
    fire,
    give_up,
    started_id,
)
from dalsegno.errors import InternalError
from dalsegno.model.effect import CreateExecution, DropTokens, FinishExecution, SpawnToken, WriteOutbox
from dalsegno.model.execution import NewExecution
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition

NOW = 1_700_006_400.0
HOUR, DAY = 3600.0, 86_400.0
TWO = NOW + 2 * HOUR


def spec(timing: str = "0 2 * * *", **fields: Any) -> ScheduleSpec:
    return make_spec(ScheduleSpec("nightly", "report", **fields), timing, NOW)


def state(timing: str = "0 2 * * *", **fields: Any) -> ScheduleState:
    made = spec(timing, **fields)
    return ScheduleState(made, NOW, next_after(made, NOW))


def lease(given: ScheduleState, attempt: int = 1) -> Lease:
    return Lease(
        "token", "plan", 7, "", "schedule", "", encode_state(given), "", 0, attempt, 0, "", NOW, "", 0, False
    )


def orders(transition: Transition) -> list[StartOrder]:
    return [decode_start(effect.data) for effect in transition.effects if isinstance(effect, WriteOutbox)]


def parked(transition: Transition) -> ScheduleState:
    assert transition.park is not None
    return decode_state(transition.park.data)


def test_new_schedule_is_an_execution_with_one_parked_token() -> None:
    new = NewExecution("plan", "nightly", 1, "", b"{}", NOW, kind="schedule")
    created = create_schedule(new, spec(), NOW)
    (create, spawn), (event,) = created.effects, created.events
    assert isinstance(create, CreateExecution)
    assert isinstance(spawn, SpawnToken)
    assert (spawn.token.kind, spawn.token.due, spawn.token.live) == ("schedule", TWO, False)
    assert event.kind == "ExecutionStarted"


def test_due_time_orders_one_start_and_parks_until_the_next() -> None:
    given = state(version="stable", input=msgspec.Raw(b'{"day":1}'), priority=3, tags=(("team", "a"),))
    fired = fire(given, lease(given), TWO + 5)
    (order,) = orders(fired)
    assert (order.workflow, order.version, order.priority) == ("report", "stable", 3)
    assert bytes(order.input) == b'{"day":1}'
    assert (order.parent, order.relation, order.execution) == ("plan", "schedule", started_id("plan", TWO))
    assert order.tags == {"team": "a", "schedule": "nightly", "scheduled_at": "2023-11-15T02:00:00Z"}
    assert fired.park is not None
    assert fired.park.due == TWO + DAY
    assert fired.events == ()
    after = parked(fired)
    assert (after.settled, after.next, after.last, after.started) == (TWO, TWO + DAY, TWO, 1)
    assert after.execution == order.execution


def test_transition_shows_the_lease_it_was_made_under() -> None:
    given = state()
    fired = fire(given, lease(given), TWO)
    assert (fired.execution, fired.token, fired.fence, fired.live) == ("plan", "token", 7, False)


def test_step_that_wakes_too_early_starts_nothing_and_sleeps_on() -> None:
    given = state()
    fired = fire(given, lease(given), TWO - 1)
    assert fired.effects == ()
    assert fired.park is not None
    assert fired.park.due == TWO
    assert parked(fired) == given


def test_same_step_again_orders_the_same_start() -> None:
    given = state()
    assert fire(given, lease(given), TWO + 1).effects == fire(given, lease(given), TWO + 30).effects


def test_steps_of_one_token_differ_in_their_digests() -> None:
    given = state()
    first = fire(given, lease(given), TWO)
    second = fire(parked(first), lease(parked(first), first.park.attempt if first.park else 0), TWO + DAY)
    assert first.digest() != second.digest()


def test_names_of_starts_differ_by_schedule_and_time() -> None:
    assert len({started_id("a", TWO), started_id("b", TWO), started_id("a", TWO + 1)}) == 3


def test_long_catching_up_is_done_in_several_commits() -> None:
    given, now = state("every 1m", missed="all"), NOW + 250 * 60
    times: list[float] = []
    for _ in range(3):
        fired = fire(given, lease(given), now)
        times += [float(start) for start in _times(fired)]
        given = parked(fired)
        assert len(orders(fired)) <= STARTS_PER_COMMIT
    assert times == [NOW + 60 * number for number in range(1, 251)]
    assert (given.next, given.started) == (now + 60, 250)


def _times(fired: Transition) -> list[float]:
    from datetime import datetime

    return [datetime.fromisoformat(order.tags["scheduled_at"]).timestamp() for order in orders(fired)]


def test_commit_in_between_sleeps_until_what_is_due_already() -> None:
    given, now = state("every 1m", missed="all"), NOW + 250 * 60
    fired = fire(given, lease(given), now)
    assert fired.park is not None
    assert fired.park.due == NOW + 60 * (STARTS_PER_COMMIT + 1)


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_nothing_starts_while_the_last_one_runs_if_overlap_is_skipped(missed: Any) -> None:
    given = state(overlap="skip", missed=missed)
    fired = fire(given, lease(given), TWO, busy=True)
    assert orders(fired) == []
    assert (parked(fired).settled, parked(fired).passed) == (TWO, 1)
    assert len(orders(fire(given, lease(given), TWO, busy=False))) == 1


def test_several_at_once_would_overlap() -> None:
    given = state(overlap="skip", missed="all")
    fired = fire(given, lease(given), NOW + 3.5 * DAY)
    assert _times(fired) == [TWO + 3 * DAY]
    assert parked(fired).passed == 3


def test_running_predecessor_does_not_matter_where_overlap_is_allowed() -> None:
    given = state()
    assert len(orders(fire(given, lease(given), TWO, busy=True))) == 1


def test_schedule_without_further_times_completes() -> None:
    given = state(end=TWO)
    fired = fire(given, lease(given), TWO)
    assert fired.park is None
    *starts, finish = fired.effects
    assert len(starts) == 1
    assert isinstance(finish, FinishExecution)
    assert finish.state == "COMPLETED"
    assert msgspec.json.decode(finish.output or b"") == {
        "started": 1,
        "passed": 0,
        "last": "2023-11-15T02:00:00Z",
    }


def test_schedule_that_cannot_go_on_fails_with_its_reason() -> None:
    given = state()
    (finish,) = give_up(lease(given), NOW, Failure("no such zone")).effects
    assert isinstance(finish, FinishExecution)
    assert finish.state == "FAILED"
    assert b"no such zone" in (finish.error or b"")


# -- changes --------------------------------------------------------------------------------------------------


def changed(before: ScheduleState, after: ScheduleSpec, now: float) -> ScheduleState:
    drop, spawn = change_schedule("plan", ("old",), before, after, now).effects
    assert drop == DropTokens(("old",))
    assert isinstance(spawn, SpawnToken)
    return decode_state(spawn.token.data)


def test_change_keeps_what_was_started_and_what_is_due() -> None:
    given = parked(fire(state("every 1h"), lease(state("every 1h")), NOW + HOUR))
    other = make_spec(
        ScheduleSpec("nightly", "report", input=msgspec.Raw(b"1")), "every 1h", NOW + 1.7 * HOUR
    )
    after = changed(given, other, NOW + 5.5 * HOUR)
    assert (after.next, after.settled, after.started, after.last) == (
        NOW + 2 * HOUR,
        NOW + HOUR,
        1,
        NOW + HOUR,
    )
    assert (bytes(after.spec.input), after.revision) == (b"1", 1)


def test_change_of_the_times_begins_now() -> None:
    after = changed(state(), spec("0 3 * * *", missed="all"), NOW + 5.5 * DAY)
    assert (after.settled, after.next) == (NOW + 5.5 * DAY, NOW + 6 * DAY + 3 * HOUR)


def test_change_makes_a_token_of_its_own() -> None:
    first = change_schedule("plan", (), state(), spec(), NOW).effects[1]
    second = change_schedule("plan", (), changed(state(), spec(), NOW), spec(), NOW).effects[1]
    assert isinstance(first, SpawnToken)
    assert isinstance(second, SpawnToken)
    assert first.token.id != second.token.id


# -- jitter ---------------------------------------------------------------------------------------------------


def test_jitter_is_part_of_the_time_and_always_the_same() -> None:
    delay = delay_of("plan", spec(jitter=300))
    delays = [delay(TWO + day * DAY) for day in range(200)]
    assert delays == [delay_of("plan", spec(jitter=300))(TWO + day * DAY) for day in range(200)]
    assert all(0 <= each < 300 for each in delays)
    assert max(delays) - min(delays) > 200
    assert delay(TWO) != delay_of("other", spec(jitter=300))(TWO)


def test_token_sleeps_until_the_delayed_time() -> None:
    given = state(jitter=300)
    fired = fire(given, lease(given), TWO + delay_of("plan", given.spec)(TWO))
    assert fired.park is not None
    assert len(orders(fired)) == 1
    assert fired.park.due == TWO + DAY + delay_of("plan", given.spec)(TWO + DAY)


def test_state_that_cannot_be_read_is_our_own_error() -> None:
    with pytest.raises(InternalError, match="the state of a schedule cannot be read"):
        decode_state(b"{}")

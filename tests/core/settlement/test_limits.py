"""Limits as values: rates, what definitions say, which rule holds, and whose turn it is."""

from __future__ import annotations

import pytest

from dalsegno.core.settlement.claims import Choice, Place
from dalsegno.core.settlement.limits import bound_of, room, stored_allowance
from dalsegno.model.limits import (
    UNBOUNDED,
    Allowance,
    Concurrency,
    Rate,
    as_option,
    parse_rate,
    read_concurrency,
    show_rate,
)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/s", Rate(10, 1.0)),
        ("100/m", Rate(100, 60.0)),
        ("5/30s", Rate(5, 30.0)),
        ("1 / day", Rate(1, 86400.0)),
        ("2/500ms", Rate(2, 0.5)),
        ("3/7 milliseconds", Rate(3, 0.007)),
        ("4/2 Min", Rate(4, 120.0)),
    ],
)
def test_a_rate_is_read_and_shown(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate
    assert parse_rate(show_rate(rate)) == rate


@pytest.mark.parametrize(
    "text", ["", "fast", "10", "0/s", "10/0s", "-1/s", "1000000/s", "10/x", "10/month", "10/mss"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        parse_rate(text)


def test_what_definitions_say_survives_being_an_option() -> None:
    for given in (3, "gmail", {"key": "gmail", "limit": 5, "rate": "10/s"}, {"rate": "1/m"}):
        read = read_concurrency(given)
        assert read_concurrency(as_option(read)) == read
    assert read_concurrency(3) == Concurrency(None, Allowance(3))


def test_operators_go_before_definitions_number_by_number() -> None:
    own = stored_allowance(Allowance(5, Rate(10, 1.0)))

    assert bound_of(own, UNBOUNDED) == Allowance(5, Rate(10, 1.0))
    assert bound_of(own, Allowance(concurrency=2)) == Allowance(2, Rate(10, 1.0))
    assert bound_of(None, Allowance(rate=Rate(1, 1.0))) == Allowance(None, Rate(1, 1.0))


def test_room_is_judged_by_slots_first_and_then_by_the_rate() -> None:
    starts = {1: 9.0, 2: 5.0}.get
    assert room(UNBOUNDED, 1000, starts, 10.0).free
    assert not room(Allowance(0), 0, starts, 10.0).free
    assert not room(Allowance(2), 2, starts, 10.0).free
    assert room(Allowance(3, Rate(2, 5.0)), 2, starts, 10.0).free
    held = room(Allowance(3, Rate(2, 6.0)), 2, starts, 10.0)
    assert (held.free, held.opens_at) == (False, 11.0)
    assert room(Allowance(rate=Rate(3, 6.0)), 2, starts, 10.0).free


class Queue:
    """A line of names; ``slots`` is shared with other lines of its key."""

    def __init__(
        self, turn: int, names: list[tuple[str, int, float]], slots: list[int] | None = None
    ) -> None:
        self.turn = (0.0, turn, "", "")
        self.names = names
        self.slots = slots if slots is not None else [100]

    def place(self) -> Place | None:
        if not self.names or not self.slots[0]:
            return None
        _, priority, since = self.names[0]
        return -priority, since, 0

    def take(self) -> str:
        self.slots[0] -= 1
        return self.names.pop(0)[0]


def test_lines_take_turns_after_priorities() -> None:
    first = Queue(1, [("a1", 0, 1.0), ("a2", 0, 1.0), ("a3", 0, 1.0)])
    second = Queue(2, [("b1", 0, 9.0), ("b2", 0, 9.0)])
    urgent = Queue(3, [("c1", 5, 9.0), ("c2", 0, 9.0)])

    assert Choice([], [first, second, urgent]).take(10) == ["c1", "a1", "b1", "a2", "b2", "c2", "a3"]


def test_age_decides_between_tokens_with_a_key_and_without() -> None:
    plain: list[tuple[Place, str]] = [((0, 2.0, 0), "x"), ((0, 6.0, 0), "y")]
    old, young = Queue(2, [("old", 0, 1.0)]), Queue(1, [("young", 0, 4.0), ("younger", 0, 7.0)])

    # The keys' turn comes because of the oldest among them; which of them goes is decided by turns.
    assert Choice(plain, [young, old]).take(10) == ["young", "old", "x", "y", "younger"]


def test_two_lines_of_one_key_share_its_slots() -> None:
    slots = [1]
    lines = [Queue(1, [("a", 0, 1.0)], slots), Queue(2, [("b", 0, 1.0)], slots)]

    assert Choice([], lines).take(10) == ["a"]

"""Machines kept warm: only while they are worth it, and never more than they may weigh."""

from __future__ import annotations

from typing import Any

from dalsegno.engine.scripts.machine_cache import LARGEST, MOST_BYTES, CachedMachine, MachineCache, size_of
from dalsegno.model.machine import Completion, Wake

NO_MACHINE: Any = None


def _warm(wake: Wake = Wake(), weight: int = 100) -> CachedMachine:  # noqa: B008 - a frozen value
    return CachedMachine(NO_MACHINE, 1, 0, wake, {}, weight=weight, definition="v1")


def _done(promise: int, *, ok: bool = True) -> Completion:
    return Completion(promise, ok, b"v1")


def test_a_machine_is_taken_out_once() -> None:
    hot = MachineCache()
    hot.keep("a", warm := _warm())
    assert hot.take("a") is warm
    assert hot.take("a") is None


def test_the_oldest_goes_when_there_are_too_many() -> None:
    hot = MachineCache(capacity=2)
    for name in "abc":
        hot.keep(name, _warm())
    assert [name for name in "abc" if hot.take(name) is not None] == ["b", "c"]


def test_the_oldest_go_when_they_weigh_too_much_together() -> None:
    hot = MachineCache()
    names = [str(number) for number in range(MOST_BYTES // LARGEST + 2)]
    for name in names:
        hot.keep(name, _warm(weight=LARGEST))
    assert [name for name in names if hot.take(name) is not None] == names[2:]
    hot.keep("again", _warm(weight=LARGEST))
    assert hot.take("again") is not None


def test_one_that_is_too_large_is_not_kept_nor_is_what_was_there_before() -> None:
    hot = MachineCache()
    hot.keep("a", _warm())
    hot.keep("a", _warm(weight=LARGEST + 1))
    assert hot.take("a") is None


def test_a_blob_counts_as_large() -> None:
    assert size_of(Completion(1, True, b"bname")) > LARGEST
    assert size_of(_done(1)) == 2


def test_a_completion_that_is_awaited_wakes() -> None:
    hot = MachineCache()
    hot.keep("a", warm := _warm(Wake(awaited=((3, 4),))))
    assert hot.take_if_woken("a", "v1", _done(3)) is warm


def test_a_completion_that_is_not_awaited_leaves_it_behind() -> None:
    """A fused commit would be refused from then on; the machine is still good for a resume."""
    hot = MachineCache()
    hot.keep("a", warm := _warm(Wake(awaited=((3, 4),))))
    assert hot.take_if_woken("a", "v1", _done(5)) is None
    assert hot.take_if_woken("a", "v1", _done(3)) is None
    assert hot.take("a") is warm


def test_a_group_is_woken_by_what_decides_it() -> None:
    everything, anything = Wake(2, on_failure=True), Wake(2, on_success=True)
    for wake, ok, woken in (
        (everything, False, True),
        (everything, True, False),
        (anything, True, True),
        (anything, False, False),
    ):
        hot = MachineCache()
        hot.keep("a", _warm(wake))
        assert (hot.take_if_woken("a", "v1", _done(1, ok=ok)) is not None) == woken


def test_a_machine_of_another_version_is_not_woken_by_a_lease_of_the_one_before() -> None:
    hot = MachineCache()
    hot.keep("a", warm := _warm(Wake(awaited=((3, 4),))))
    assert hot.take_if_woken("a", "v0", _done(3)) is None
    assert hot.take_if_woken("a", "v1", _done(3)) is warm

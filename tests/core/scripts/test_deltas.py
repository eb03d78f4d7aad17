"""Differences between two versions of the same bytes."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.core.scripts.deltas import difference, restored

MEGABYTE = random.Random(1).randbytes(1024 * 1024)


@given(st.binary(max_size=2000), st.binary(max_size=2000))
def test_any_two_versions(base: bytes, new: bytes) -> None:
    assert restored(base, difference(base, new)) == new


@given(
    st.binary(min_size=200, max_size=3000),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 90), st.binary(max_size=90)), max_size=6),
)
def test_versions_that_have_much_in_common(base: bytes, changes: list[tuple[int, int, bytes]]) -> None:
    new = base
    for place, length, put in changes:
        new = new[:place] + put + new[place + length :]
    assert restored(base, difference(base, new)) == new


def changed(data: bytes, place: int, put: bytes, length: int) -> bytes:
    return data[:place] + put + data[place + length :]


@pytest.mark.parametrize("length", [0, 50, 100], ids=["inserted", "shorter", "same length"])
def test_hundred_bytes_in_a_megabyte_take_little(length: int) -> None:
    put = random.Random(2).randbytes(100)
    new = changed(MEGABYTE, 400_000, put, length)
    assert len(difference(MEGABYTE, new)) < 200
    assert restored(MEGABYTE, difference(MEGABYTE, new)) == new


def test_many_changes_all_over_a_megabyte() -> None:
    new, source = MEGABYTE, random.Random(3)
    for _ in range(40):
        new = changed(new, source.randrange(len(new)), source.randbytes(100), source.randrange(100))
    found = difference(MEGABYTE, new)
    assert restored(MEGABYTE, found) == new
    assert len(zlib.compress(found)) < 12_000


def test_what_has_nothing_in_common_is_stored_as_it_is() -> None:
    other = random.Random(4).randbytes(300_000)
    assert len(difference(MEGABYTE, other)) < len(other) + 100


def test_difference_of_another_base_is_refused() -> None:
    found = difference(MEGABYTE, MEGABYTE + b"more")
    with pytest.raises(ValueError, match="copies what its base does not have"):
        restored(b"short", found)

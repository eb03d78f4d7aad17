"""Differences between two versions of the same bytes: copies from the base, and what is new.

A machine changes little between two turns, but it may be of any size, and what changes may move the rest. So what
the versions have in common at both ends is found by comparison, and in between by blocks of the base at any place.
"""

from __future__ import annotations

import msgspec

BLOCK = 64
"""Bytes of the blocks that are looked for."""
MOST_TRIES = 50_000
"""Places of the new version at which a block is looked for. The rest is stored as it is: time is bounded, not size."""

Step = tuple[int, int] | bytes
"""A copy of the base's bytes from one offset to another, or new bytes."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, int] | bytes]).decode


def difference(base: bytes, new: bytes) -> bytes:
    """Return what `restored` needs beside the base."""
    start = _common(base, new)
    most = min(len(base), len(new)) - start
    end = _common_at_end(base, new, most)
    steps: list[Step] = []
    if start:
        steps.append((0, start))
    steps += _between(base[start : len(base) - end], new[start : len(new) - end], start)
    if end:
        steps.append((len(base) - end, len(base)))
    return _encode(steps)


def restored(base: bytes, stored: bytes) -> bytes:
    """Return the new version. Raises ValueError or `msgspec.DecodeError` for bytes that are no difference."""
    parts: list[bytes] = []
    for step in _decode(stored):
        if isinstance(step, bytes):
            parts.append(step)
            continue
        start, end = step
        if not 0 <= start <= end <= len(base):
            raise ValueError("a difference copies what its base does not have")
        parts.append(base[start:end])
    return b"".join(parts)


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes both have in common from the start: compared in halves, not byte by byte."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_at_end(one: bytes, other: bytes, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low


def _between(base: bytes, new: bytes, shift: int) -> list[Step]:
    """Return the steps for the parts in the middle. ``shift``: the base's place in the whole base."""
    if not new:
        return []
    if len(base) < BLOCK or len(new) < BLOCK:
        return [new]
    blocks = {base[place : place + BLOCK]: place for place in range(0, len(base) - BLOCK + 1, BLOCK)}
    steps: list[Step] = []
    written = place = tries = 0
    find = blocks.get
    while place <= len(new) - BLOCK and tries < MOST_TRIES:
        tries += 1
        found = find(new[place : place + BLOCK])
        if found is None:
            place += 1
            continue
        before = _common_before(base, found, new, place, written)
        length = before + _matching(base, found, new, place)
        if place - before > written:
            steps.append(new[written : place - before])
        steps.append((shift + found - before, shift + found - before + length))
        place = written = place - before + length
    if written < len(new):
        steps.append(new[written:])
    return steps


def _matching(base: bytes, found: int, new: bytes, place: int) -> int:
    """Return how many bytes are the same from these places on. The parts that are compared double."""
    length, step = 0, BLOCK
    most = min(len(base) - found, len(new) - place)
    while length < most:
        step = min(step * 2, most - length)
        ours, theirs = (
            base[found + length : found + length + step],
            new[place + length : place + length + step],
        )
        if ours != theirs:
            return length + _common(ours, theirs)
        length += step
    return length


def _common_before(base: bytes, found: int, new: bytes, place: int, written: int) -> int:
    """Return how far a match extends to the left."""
    length = 0
    most = min(found, place - written, BLOCK - 1)
    while length < most and base[found - length - 1] == new[place - length - 1]:
        length += 1
    return length

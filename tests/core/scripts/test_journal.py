"""What is kept of a turn, and how turns are stored."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from dalsegno.core.scripts.journal import (
    LARGE,
    Entry,
    Received,
    Turned,
    chunk_number,
    decode_entry,
    encode_chunk,
    encode_entry,
    encoded_entries,
    ends_chunk,
    entry_of,
    machine_of,
    pack_key,
    read_chunk,
    unpack_key,
)
from dalsegno.core.scripts.token_bodies import TaskBody, TimerBody, encode_body
from dalsegno.model.effect import Effect, SaveMachine, SettlePromise, SpawnToken
from dalsegno.model.machine import (
    ALL,
    FAILURES,
    OFF,
    Completion,
    JournalSetting,
    Ranges,
    SignalView,
    TakenSignal,
    Wake,
    read_journal,
)
from dalsegno.model.token import NewToken

SOURCE = random.Random(5)


def task(promise: int) -> SpawnToken:
    return SpawnToken(
        NewToken(f"t{promise}", "", "task", "charge", encode_body(TaskBody(promise=promise)), "default")
    )


def timer(promise: int, due: float) -> SpawnToken:
    body = encode_body(TimerBody(promise))
    return SpawnToken(NewToken(f"t{promise}", "", "timer", "", body, "system", due=due))


def saved(version: int, reachable: Ranges, read: int = 0, **more: object) -> SaveMachine:
    return SaveMachine(version, b"machine %d" % version, read, Wake(), reachable, **more)  # type: ignore[arg-type]


def turned(*effects: Effect, received: Received | None = None) -> Turned:
    return Turned(1.0, "task charge", "", "", effects, received)


def test_turns_of_a_cached_machine_follow_from_one_another() -> None:
    first = entry_of(None, turned(task(0), task(1), timer(2, 9.0), saved(0, ((0, 3),))))
    assert (first.turn, [each.promise for each in first.tasks]) == (1, [0, 1])
    assert [(each.promise, each.due) for each in first.timers] == [(2, 9.0)]

    done = Completion(0, True, b"v1")
    second = entry_of(first, turned(task(3), saved(1, ((0, 4),), settled=done)))
    assert second.known == second.arrived == (replace(done, number=1),)
    assert [each.promise for each in second.tasks] == [1, 3]

    third = entry_of(second, turned(saved(2, ((3, 4),), 1, settled=Completion(1, False, b"vno"))))
    assert (third.known, [each.promise for each in third.arrived]) == ((), [1])
    assert ([each.promise for each in third.tasks], third.timers) == ([3], ())


def test_turn_of_a_loaded_machine_receives_what_was_unread_and_the_signals_it_took() -> None:
    old, new = Completion(0, True, b"v0", 1), Completion(1, True, b"v1", 2)
    signals = (SignalView("s1", "go", b'v"a"', 7, 3), SignalView("s2", "go", b'v"b"', 8, 4))
    received = Received(1, (old, new), signals)
    effects = (saved(4, ((0, 3),), 2, taken=(TakenSignal("s1", 2),)),)

    found = entry_of(None, turned(*effects, received=received))

    assert [(each.promise, each.number) for each in found.arrived] == [(1, 2), (2, 3)]
    assert {each.promise for each in found.known} == {0, 1, 2}
    assert [each.id for each in found.signals] == ["s2"]


def test_call_that_a_turn_cancels_is_no_longer_pending() -> None:
    first = entry_of(None, turned(task(0), task(1), saved(0, ((0, 2),))))
    cancelled = SettlePromise(Completion(1, False, b"vcancelled"))
    second = entry_of(first, turned(saved(1, ((0, 2),)), cancelled))
    assert [each.promise for each in second.tasks] == [0]
    assert [each.promise for each in second.known] == [1]


def test_another_execution_starts_with_what_is_known_by_now() -> None:
    first = entry_of(None, turned(task(0), task(1), timer(2, 9.0), saved(0, ((0, 3),))))
    later = {1: Completion(1, True, b"v1", 5)}
    kept = machine_of(first, later)
    assert kept.completions == (later[1],)
    assert [each.promise for each in kept.tasks] == [0]
    assert [(each.promise, each.due) for each in kept.timers] == [(2, 9.0)]
    assert (kept.snapshot, kept.cancel, kept.failed) == (b"machine 0", "", ())


def large(turn: int, data: bytes) -> Entry:
    return replace(entry_of(None, turned(saved(turn - 1, ()))), snapshot=data)


def changed(data: bytes) -> bytes:
    place = SOURCE.randrange(len(data))
    return data[:place] + SOURCE.randbytes(100) + data[place + SOURCE.randrange(150) :]


def test_small_machines_are_stored_together() -> None:
    entries = [
        entry_of(None, turned(task(turn), saved(turn - 1, ((turn, turn + 1),)))) for turn in range(1, 11)
    ]
    encoded = [(entry.turn, encode_entry(entry)) for entry in entries]
    stored = encode_chunk(encoded, ["b"], None)
    chunk = read_chunk(stored)
    assert chunk is not None
    assert (chunk.first, chunk.last, chunk.key, chunk.blobs) == (1, 10, 0, ("b",))
    assert [decode_entry(data) for data in encoded_entries(chunk, None)] == entries
    assert len(stored) < sum(len(data) for _, data in encoded) / 2


def test_hundred_bytes_of_a_machine_of_a_megabyte_take_less_than_two_kibibytes() -> None:
    data = SOURCE.randbytes(1024 * 1024)
    key = encode_entry(large(1, data))
    entries = [(1, key)]
    for turn in range(2, 11):
        data = changed(data)
        entries.append((turn, encode_entry(large(turn, data))))
    stored = encode_chunk(entries, (), (1, key))
    assert len(stored) < 10 * 2048
    chunk = read_chunk(stored)
    assert chunk is not None
    assert chunk.key == 1
    assert encoded_entries(chunk, key) == [data for _, data in entries]
    assert unpack_key(pack_key(1, key)) == (1, key)


def test_damaged_or_unknown_rows_are_no_turns() -> None:
    assert read_chunk(b"") is None
    assert read_chunk(b"\x00\x01nonsense") is None
    assert (unpack_key(b""), unpack_key(b"nonsense")) == (None, None)
    entry = encode_entry(large(1, SOURCE.randbytes(2 * LARGE)))
    chunk = read_chunk(encode_chunk([(1, entry)], (), (1, entry)))
    assert chunk is not None
    with pytest.raises(ValueError, match="no longer kept"):
        encoded_entries(chunk, None)
    with pytest.raises(ValueError, match="damaged"):
        encoded_entries(replace(chunk, data=b"nonsense"), entry)
    with pytest.raises(ValueError, match="damaged"):
        decode_entry(b"\x00")


def test_chunks_follow_the_numbers_of_the_turns() -> None:
    assert [chunk_number(turn) for turn in (1, 10, 11, 20, 21)] == [0, 0, 1, 1, 2]
    assert [turn for turn in range(1, 31) if ends_chunk(turn)] == [10, 20, 30]


def test_settings() -> None:
    named = {
        "off": OFF,
        False: OFF,
        "failures": FAILURES,
        None: OFF,
        "7": JournalSetting(7, True),
        "all": ALL,
        7: JournalSetting(7, True),
    }
    assert {given: read_journal(given) for given in named} == named
    for wrong in ("some", 0, -3, 2.5, True, [], 10**9):
        with pytest.raises(ValueError, match="the journal cannot be"):
            read_journal(wrong)

"""Tasks handed out over a broker: how many, what is repaired, and what a result says."""

from __future__ import annotations

import json
import re
from typing import Any
from unittest.mock import ANY

import msgspec
import pytest

from dalsegno.core.foreign_tasks import (
    BadResult,
    Capacity,
    Copy,
    Repairs,
    packed_result,
    queues_of_others,
    read_result,
    repairs,
    room,
    unpacked_result,
)
from tests.rows import rows

A, B, C = ("run.a", 1), ("run.b", 4), ("run.c", 2)


@pytest.mark.parametrize(
    ("workers", "handed_out", "expected"),
    [
        ([], {}, 0),
        ([Capacity(("images",), 3)], {}, 6),
        ([Capacity(("images",), 0)], {}, 10),  # a worker that does not state its concurrency
        ([Capacity(("images",), 3), Capacity(("images",), 1)], {"images": 5}, 3),
        ([Capacity(("mails",), 3)], {}, 0),
        ([Capacity(("images",), 3)], {"images": 9}, 0),  # another worker has died
        ([Capacity(("images", "mails"), 3)], {"mails": 4}, 2),  # one limit for both
        (
            [Capacity(("images", "mails"), 3), Capacity(("mails",), 2)],
            {"mails": 4},
            6,
        ),  # those that serve fewer first
        ([Capacity(("images", "mails"), 3), Capacity(("mails",), 2)], {"mails": 7}, 3),
        ([Capacity(("images", "mails"), 2), Capacity(("mails",), 2)], {"images": 1, "mails": 5}, 2),
    ],
)
def test_room_is_twice_what_living_workers_run_at_once(
    workers: list[Capacity], handed_out: dict[str, int], expected: int
) -> None:
    assert room("images", workers, handed_out) == expected


def test_queues_that_our_workers_serve_are_not_handed_out() -> None:
    assert queues_of_others({"images", "mails", "ours"}, {"ours", "default"}) == ["images", "mails"]


@rows(
    ("leased", "copies", "expected"),
    [
        ({A: 5.0}, [Copy(A, "waiting")], Repairs()),
        ({A: 5.0}, [Copy(A, "running", "w", 900.0)], Repairs()),
        ({A: 5.0}, [Copy(A, "running", "dead", 14.0)], Repairs()),  # it may not have sent its first heartbeat
        ({A: 5.0}, [Copy(A, "running", "dead", 15.0)], Repairs(lost=(A,), withdrawn=(A,))),
        ({A: 5.0}, [Copy(A, "acknowledged", seconds=59.0)], Repairs()),  # its result is on its way
        ({A: 5.0}, [Copy(A, "acknowledged", seconds=60.0)], Repairs(lost=(A,), withdrawn=(A,))),
        ({A: 2.0}, [], Repairs()),  # the copy is on its way
        ({A: 3.0}, [], Repairs(again=(A,), withdrawn=(A,))),
        ({}, [Copy(A, "waiting")], Repairs(withdrawn=(A,))),  # answered, cancelled, settled by hand
        ({}, [Copy(A, "running", "w", 1.0)], Repairs(withdrawn=(A,))),
        (
            {("run.a", 2): 9.0},
            [Copy(A, "waiting")],
            Repairs(again=(("run.a", 2),), withdrawn=(A, ("run.a", 2))),
        ),
        (
            {A: 9.0, B: 9.0, C: 9.0},
            [Copy(A, "running", "dead", 20.0), Copy(B, "running", "w", 20.0)],
            Repairs(lost=(A,), again=(C,), withdrawn=(A, C)),
        ),
    ],
)
def test_what_is_repaired(leased: dict[Any, float], copies: list[Copy], expected: Repairs) -> None:
    assert repairs(leased, copies, {"w"}) == expected


def test_copies_that_nobody_has_taken_come_back_from_a_queue_without_workers() -> None:
    copies = [Copy(A, "waiting"), Copy(B, "running", "w", 1.0)]
    assert repairs({A: 9.0, B: 9.0}, copies, {"w"}, served=False) == Repairs(again=(A,), withdrawn=(A,))


def test_result_names_its_task_and_its_output() -> None:
    result = read_result(
        b'{"id": "run.a", "fence": 3, "success": true, "output": {"n": 1}, "worker": "w", "x": 0}'
    )
    assert (result.id, result.fence, result.output, result.failure) == ("run.a", 3, {"n": 1}, None)


def test_failed_result_keeps_what_the_retry_policy_reads() -> None:
    error = {"message": "no", "code": "E7", "type": "IOError", "details": {"a": 1}, "retryable": False}
    result = read_result(json.dumps({"id": "run.a", "fence": 1, "success": False, "error": error}).encode())
    assert result.failure is not None
    assert (result.failure.message, result.failure.code, result.failure.retryable) == ("no", "E7", False)
    assert (result.failure.type, result.failure.details) == ("IOError", {"a": 1})


def test_older_form_names_execution_and_node_and_writes_its_error_as_a_text() -> None:
    body = {"workflow_execution_id": "run", "node_id": "n", "success": False, "output": None, "error": "boom"}
    result = read_result(json.dumps(body).encode())
    assert (result.id, result.execution, result.node) == ("", "run", "n")
    assert result.failure is not None
    assert result.failure.message == "boom"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json",
        b"[]",
        b'{"id": "run.a", "fence": 1}',  # neither success nor failure
        b'{"id": "run.a", "success": true}',  # no fence
        b'{"id": "run.a", "fence": "1", "success": true}',
        b'{"id": 7, "fence": 1, "success": true}',
        b'{"success": true}',
        b'{"workflow_execution_id": "run", "success": true}',
        b'{"id": "run.a", "fence": 1, "success": false, "error": 7}',
        b'{"id": "run.a", "fence": 1, "success": true, "output": "\xff"}',
    ],
)
def test_what_cannot_be_read_is_a_bad_result(body: bytes) -> None:
    with pytest.raises(BadResult):
        read_result(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": "e.t", "fence": 1, "success": true, "output": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id": "e.t", "fence": 1, "success": true, "output": "' + b"x" * 10 * 1024 * 1024 + b'"}',
    ],
    ids=["nested deeply", "too large"],
)
def test_result_beyond_the_limits_is_bad(body: bytes) -> None:
    with pytest.raises(BadResult):
        read_result(body)


@pytest.mark.parametrize(
    "written",
    [
        {"id": "run.a", "fence": 3, "success": True, "output": {"n": [2**70, "é"]}, "worker": "w"},
        {"id": "run.a", "fence": 3, "success": True},
        {"workflow_execution_id": "run", "node_id": "n", "success": False, "error": "boom"},
        {
            "id": "run.a",
            "fence": 3,
            "success": False,
            "error": {"message": "no", "details": {"n": 2**70}, "retryable": False},
        },
        {"success": True},
        {"id": "run.a", "success": True, "output": "no fence"},
    ],
)
def test_a_result_read_in_another_process_is_the_same(written: dict[str, Any]) -> None:
    body = json.dumps(written).encode()
    reply = msgspec.msgpack.decode(msgspec.msgpack.encode(packed_result(body)))
    try:
        expected = read_result(body)
    except BadResult as error:
        with pytest.raises(BadResult, match=re.escape(str(error))):
            unpacked_result(reply)
        return

    found = unpacked_result(reply)

    output = msgspec.json.decode(found.output) if found.output is not None else None
    assert msgspec.structs.replace(found, output=output) == expected


@pytest.mark.parametrize(
    "details", [{"text": "x" * 300_000}, {"parts": [[]] * 5_000}], ids=["bytes", "parts"]
)
def test_large_details_of_an_error_are_left_out(details: dict[str, Any]) -> None:
    error = {"message": "no", "code": "NO", "details": details}
    body = json.dumps({"id": "run.a", "fence": 3, "success": False, "error": error}).encode()
    failure = unpacked_result(packed_result(body)).failure
    assert failure is not None
    assert (failure.message, failure.code) == ("no", "NO")
    assert failure.details == {"too_large": ANY}


def test_a_large_error_is_refused() -> None:
    error = {"message": "no", "code": "x" * 2_000_000}
    body = json.dumps({"id": "run.a", "fence": 3, "success": False, "error": error}).encode()
    with pytest.raises(BadResult, match="the error of the result takes more than"):
        unpacked_result(packed_result(body))


def test_a_deep_output_is_refused() -> None:
    body = b'{"id": "run.a", "fence": 3, "success": true, "output": %b1%b}' % (b"[" * 300, b"]" * 300)
    with pytest.raises(BadResult, match="nested"):
        unpacked_result(packed_result(body))

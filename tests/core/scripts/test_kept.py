"""What is kept of a failed machine, and what a retry makes of it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from dalsegno.core.scripts.earlier_calls import begun_calls, find_begun, post_begun, read_begun, take_up
from dalsegno.core.scripts.kept import (
    FailedTurn,
    KeptMachine,
    decode_kept,
    keeps_machine,
    kept_machine,
    known_before,
)
from dalsegno.core.scripts.token_bodies import (
    AskedTask,
    EarlierCall,
    StartBody,
    TaskBody,
    decode_start_body,
    decode_timer,
    encode_body,
    failed,
)
from dalsegno.core.scripts.turn import Turn
from dalsegno.lang.runtime.effects import APPROVAL, Cancel, ErrorValue, StartTask, StartWorkflow
from dalsegno.model.effect import PostSignal, SettlePromise
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import child_execution_id, promise_token_id, task_execution_id
from dalsegno.model.machine import Completion, MachineView, Ranges, SignalView, Wake

ERROR = ErrorValue("BROKEN", "it broke")
OTHER = "another"


def completion(promise: int, *, ok: bool, number: int) -> Completion:
    if ok:
        return Completion(promise, True, b"v1", number)
    asked = AskedTask(promise, "ship", TaskBody(Raw(b"1"), promise), promise_token_id(OTHER, promise))
    return msgspec.structs.replace(failed(promise, ERROR, asked), number=number)


def view(
    *completions: Completion, awaited: Ranges = ((0, 9),), signals: tuple[SignalView, ...] = ()
) -> MachineView:
    wake = Wake(awaited=awaited)
    return MachineView(3, b"bytes", ((0, 9),), wake, 5, 5, 4, "", False, completions, signals)


def execution(relation: str | None = None) -> ExecutionView:
    return ExecutionView(
        OTHER, "w", 1, "d", "RUNNING", b"{}", 0.0, 0.0, 0, 0, 1, 0, (), None, None, relation,
        None, None, None, None, None, "script",
    )  # fmt: skip


def kept(machine: MachineView, failure: FailedTurn) -> KeptMachine:
    data = kept_machine(execution(), machine, (), "why", failure)
    assert data is not None
    return decode_kept(data)


@pytest.mark.parametrize(
    ("raised", "asked"), [(((1, 2),), [1]), (((1, 3),), [1, 2]), ((), []), (None, [1, 2])]
)
def test_only_what_raised_is_asked_again(raised: Ranges | None, asked: list[int]) -> None:
    machine = view(
        completion(0, ok=True, number=1), completion(1, ok=False, number=2), completion(2, ok=False, number=3)
    )
    found = kept(machine, FailedTurn(raised))
    assert ([task.promise for task in found.tasks], list(found.failed)) == (asked, asked)
    settled = [
        effect.completion.promise
        for effect in known_before(found, ((0, 9),), 1.0)
        if isinstance(effect, SettlePromise)
    ]
    assert settled == [promise for promise in (0, 1, 2) if promise not in asked]


def test_what_the_failed_turn_brought_along_comes_last() -> None:
    found = kept(view(completion(0, ok=True, number=5)), FailedTurn(settled=Completion(1, True, b"v2")))
    assert [(each.promise, each.number) for each in found.completions] == [(0, 5), (1, 6)]


def test_signals_and_results_keep_their_order() -> None:
    signals = (SignalView("s", "go", b"v1", 9, place=2),)
    machine = view(completion(0, ok=True, number=1), completion(1, ok=True, number=3), signals=signals)
    effects = known_before(kept(machine, FailedTurn(())), ((0, 9),), 1.0)
    assert [type(effect) for effect in effects] == [SettlePromise, PostSignal, SettlePromise]


def turn(*requests: StartTask | StartWorkflow | Cancel) -> Turn:
    return Turn("failed", 3, 5, [(each, b"7") for each in requests], error=ERROR)


def test_the_calls_that_go_on_without_a_failed_turn() -> None:
    calls = begun_calls(
        "e",
        turn(
            StartTask("p4", "charge", 7),
            StartTask("p5", "dropped", 7),
            Cancel("p5", "task"),
            StartTask("p6", APPROVAL, 7),
            StartWorkflow("p7", "awaited", 7),
            StartWorkflow("p8", "detached", 7, detached=True),
        ),
    )
    charge, detached = task_execution_id(promise_token_id("e", 4)), child_execution_id("e", "p8")
    named = [(call.promise, call.name, call.execution) for call in calls if call.name != APPROVAL]
    assert named == [(4, "charge", charge), (8, "detached", detached)]
    assert [call.detached for call in calls] == [False, True]


def test_the_same_calls_are_taken_up_in_order_and_others_made() -> None:
    first = begun_calls("e", turn(StartTask("p4", "charge", 7), StartTask("p5", "charge", 7)))
    again = turn(StartTask("p4", "charge", 7), StartTask("p5", "mail", 7), StartTask("p6", "charge", 7))
    again.requests = [*again.requests, (StartTask("p7", "charge", 8), b"8")]
    assert take_up(again, first) == []
    assert [request.id for request, _ in again.requests if isinstance(request, StartTask)] == ["p5", "p7"]
    assert [(each.promise, each.execution) for each in again.taken_up] == [
        (4, first[0].execution),
        (6, first[1].execution),
    ]
    own = {n: task_execution_id(promise_token_id("retry", n)) for n in (4, 5, 6, 7)}
    kept_again = begun_calls("retry", again)
    assert [call.promise for call in kept_again if call.execution == own[call.promise]] == [5, 7]
    assert [call.promise for call in kept_again] == [4, 5, 6, 7]


def test_calls_that_were_not_made_again_stay_for_the_next_retry() -> None:
    left = take_up(turn(), (call := EarlierCall(4, "charge", "digest", "other"),))
    assert begun_calls("retry", turn(), left) == (call,)


def test_calls_wait_in_the_mailbox() -> None:
    call = EarlierCall(4, "charge", "digest", "other")
    posted = post_begun("e", (call,), NewEvent("Suspended", "", "", 1.0))
    entry = SignalView(posted.id, posted.name, posted.data, 1)
    other = SignalView("mine", posted.name, b"v1", 2)
    assert read_begun(find_begun("e", (other, entry))) == (call,)
    assert find_begun("e", (other,)) is None
    machine = view(signals=(entry,))
    data = kept_machine(msgspec.structs.replace(execution(), id="e"), machine, (), "lost")
    assert data is not None
    assert decode_kept(data).begun == (call,)


@pytest.mark.parametrize(
    ("version", "error", "cancel", "keeps"),
    [(1, ERROR, "", True), (0, ERROR, "", False), (1, None, "", False), (1, ERROR, "cancel", False)],
)
def test_a_failure_after_the_first_turn_keeps_the_machine(
    version: int, error: ErrorValue | None, cancel: str, keeps: bool
) -> None:
    assert keeps_machine(Turn("failed", version, 0, error=error, cancel=cancel)) is keeps  # type: ignore[arg-type]


def test_earlier_releases_refuse_the_start_of_a_retry_and_its_waits() -> None:
    """They require these fields. So they start nothing over, and settle nothing."""
    start = msgspec.json.decode(encode_body(StartBody(started_at=1.0, continues="e")))
    assert "input" not in start
    assert decode_start_body(encode_body(StartBody(started_at=1.0, continues="e"))).continues == "e"
    assert decode_timer(b'{"promise":3}').promise == 3


def test_kept_machines_of_earlier_releases_are_read() -> None:
    earlier = b'{"snapshot":"Ynl0ZXM=","cancel":"","interrupted":false,"message":"why"}'
    found = decode_kept(earlier)
    assert (found.failed, found.begun, found.line, found.raises_again) == ((), (), 0, False)

"""The calls of a turn that failed: they go on without it, and the same turn of a retry takes them up.

They are kept with the machine. While the retry has not run the turn, they are in its mailbox, where every resume reads
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from dalsegno.core.scripts.token_bodies import INLINE, AwaitedExecution, EarlierCall, encode_body
from dalsegno.core.scripts.turn import Turn
from dalsegno.lang.runtime.effects import Cancel, StartTask, StartWorkflow, asks_people, promise_number
from dalsegno.lang.runtime.effects import Effect as Request
from dalsegno.model.effect import PostSignal
from dalsegno.model.event import NewEvent
from dalsegno.model.ids import child_execution_id, derive, promise_token_id, task_execution_id
from dalsegno.model.machine import SignalView, TakenSignal

BEGUN = "the calls of the failed turn"
"""Name of the entry in the mailbox."""
NO_PROMISE = -1

_decode_begun = msgspec.json.Decoder(tuple[EarlierCall, ...]).decode


def input_digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=16).hexdigest()


def begun_calls(execution: str, turn: Turn, left: Sequence[EarlierCall] = ()) -> tuple[EarlierCall, ...]:
    """Return the calls of a turn that failed: those that go on without it. ``left``: those of an earlier failure that
    it has not made again.
    """
    dropped = {request.id for request, _ in turn.requests if isinstance(request, Cancel)}
    others = {awaited.promise: awaited.execution for awaited in turn.taken_up}
    found: list[EarlierCall] = []
    for request, raw in (*turn.requests, *turn.made_before):
        if isinstance(request, StartTask | StartWorkflow) and request.id not in dropped:
            number = promise_number(request.id)
            other = others.get(number) or _own_execution(execution, request)
            if other is not None:
                detached = isinstance(request, StartWorkflow)
                found.append(EarlierCall(number, request.name, input_digest(raw), other, detached))
    return (*sorted(found, key=lambda call: call.promise), *left)


def cancelled_tasks(turn: Turn) -> tuple[int, ...]:
    """Return the promises of the tasks that a turn cancelled."""
    return tuple(
        [
            promise_number(request.id)
            for request, _ in turn.requests
            if isinstance(request, Cancel) and request.kind == "task"
        ]
    )


def _own_execution(execution: str, request: StartTask | StartWorkflow) -> str | None:
    """Return the execution that runs the call after its script has failed. Questions to people and children that are
    waited for end with it.
    """
    if isinstance(request, StartWorkflow):
        return child_execution_id(execution, request.id) if request.detached else None
    if asks_people(request.name):
        return None
    return task_execution_id(promise_token_id(execution, promise_number(request.id)))


def take_up(turn: Turn, begun: Sequence[EarlierCall]) -> list[EarlierCall]:
    """Replace the calls of a turn that were begun before, and return those that the turn has not made."""
    left = list(begun)
    requests: list[tuple[Request, bytes]] = []
    taken: list[AwaitedExecution] = []
    before: list[tuple[Request, bytes]] = []
    for request, raw in turn.requests:
        if isinstance(request, StartTask | StartWorkflow):
            call = _same(left, request.name, raw)
            if call is not None:
                left.remove(call)
                taken.append(AwaitedExecution(promise_number(request.id), call.execution, call.name))
                before.append((request, raw))
                continue
        requests.append((request, raw))
    turn.requests, turn.taken_up, turn.made_before = requests, taken, before
    return left


def _same(left: Sequence[EarlierCall], name: str, raw: bytes) -> EarlierCall | None:
    """Return the first call of the same with the same input."""
    named = [call for call in left if call.name == name]
    if not named:
        return None
    digest = input_digest(raw)
    return next((call for call in named if call.input == digest), None)


def post_begun(execution: str, begun: Sequence[EarlierCall], event: NewEvent) -> PostSignal:
    """Keep the calls in the mailbox of the execution that makes them again. No program can wait for their name."""
    return PostSignal(begun_signal(execution), BEGUN, INLINE + encode_body(begun), event)


def took_begun(signal: SignalView) -> TakenSignal:
    """Remove the entry: no promise receives it."""
    return TakenSignal(signal.id, NO_PROMISE)


def begun_signal(execution: str) -> str:
    """Return the id of the entry in the mailbox."""
    return derive(execution, "begun")


def find_begun(execution: str, signals: Sequence[SignalView]) -> SignalView | None:
    if not signals:
        return None
    name = begun_signal(execution)
    return next((signal for signal in signals if signal.id == name), None)


def read_begun(signal: SignalView | None) -> tuple[EarlierCall, ...]:
    return _decode_begun(signal.data[1:]) if signal is not None else ()

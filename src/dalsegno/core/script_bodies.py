"""What the tokens of a script carry, and how outcomes travel through the inbox. Opaque to every store."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.body import Awaiting
from dalsegno.core.situation import Result
from dalsegno.lang.effects import Err, ErrorValue
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import Completion

INLINE, BLOB = b"v", b"b"


class TaskBody(Struct, frozen=True, omit_defaults=True, gc=False):
    """A task of a script. ``promise`` is None for a task that is an execution of its own."""

    input: Raw
    promise: int | None = None
    options: dict[str, Any] | None = None
    line: int = 0
    awaiting: Awaiting | None = None
    """Of a task that was parked until somebody has decided."""


class TimerBody(Struct, frozen=True, omit_defaults=True, gc=False):
    """A timer, or the time limit of a wait for ``signal``."""

    promise: int
    signal: str | None = None


class StartBody(Struct, frozen=True, omit_defaults=True, gc=False):
    """The first resume token: saves reading back what was just written, where that is small."""

    input: Raw
    workflow: str
    version: int
    started_at: float
    attempt: int = 1
    """One more than the executions it retries."""
    cleanup_of: str | None = None
    """The execution whose machine it begins with, to go on with the clean-up."""


class AskedTask(Struct, frozen=True, array_like=True, gc=False):
    """A task of a script as its token says it, so that it can be asked again."""

    promise: int
    node: str
    body: TaskBody
    token: str
    """The idempotency key of its runs, unless the script has given one."""
    priority: int = 0


class FailedTask(Struct, frozen=True, gc=False):
    """What the completion of a failed task says beside its error."""

    asked: AskedTask | None = None


encode_body = msgspec.json.Encoder().encode
decode_task = msgspec.json.Decoder(TaskBody).decode
decode_timer = msgspec.json.Decoder(TimerBody).decode
decode_start_body = msgspec.json.Decoder(StartBody).decode
_decode_error = msgspec.json.Decoder(ErrorValue).decode
_decode_failed_task = msgspec.json.Decoder(FailedTask).decode

LARGEST_ASKED = 64 * 1024
"""Bytes of a failed task that are kept for asking it again."""


def with_own_input(view: ExecutionView) -> ExecutionView:
    """A task that a script handed over is recorded with what its token carried; people look for its input there."""
    if view.relation != "task":
        return view
    return msgspec.structs.replace(view, input=bytes(decode_task(view.input).input))


def succeeded(promise: int, result: Result) -> Completion:
    data = INLINE + result.raw if result.blob is None else BLOB + result.blob.encode()
    return Completion(promise, True, data)


def failed(promise: int, error: ErrorValue, asked: AskedTask | None = None) -> Completion:
    data = encode_body(error)
    if asked is not None:
        data = b'%b,"asked":%b}' % (data[:-1], encode_body(asked))
    return Completion(promise, False, INLINE + data)


def asked_again(completion: Completion) -> AskedTask | None:
    """The task behind a failure, if that is known."""
    if completion.ok:
        return None
    return _decode_failed_task(completion.data[1:]).asked


def error_in(completion: Completion) -> Err:
    return Err(_decode_error(completion.data[1:]))


def blob_of(completion: Completion) -> str | None:
    """The blob a completion's value is in, if it is not inline."""
    return completion.data[1:].decode() if completion.data[:1] == BLOB else None

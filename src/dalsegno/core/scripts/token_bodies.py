"""Token bodies of scripts, and outcomes in the inbox. Opaque to every store."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.step_input import Awaiting, Result
from dalsegno.lang.runtime.effects import Err, ErrorValue
from dalsegno.model.machine import Completion

INLINE, BLOB = b"v", b"b"
NO_INPUT = Raw(b"")


class StoredInput(Struct, frozen=True, array_like=True, gc=False):
    """Where a task's input is that its token does not carry."""

    owner: str
    """The execution that called the task, also after the task was handed over; of a task started alone its own."""
    blob: str
    """The blob of the owner with the input; empty if the input is the owner's own."""
    size: int


class TaskBody(Struct, frozen=True, omit_defaults=True, gc=False):
    """A task of a script. ``promise`` is None for a task that is an execution of its own.

    Stores write a token's row each time the token is claimed, parked or consumed. So a large input is not in it, but
    ``stored`` elsewhere.
    """

    input: Raw = NO_INPUT
    """Left out if it is elsewhere: a release that does not know that refuses the body, and runs nothing."""
    promise: int | None = None
    options: dict[str, Any] | None = None
    line: int = 0
    awaiting: Awaiting | None = None
    """For a task that is parked until a decision arrives."""
    stored: StoredInput | None = None


class AwaitedExecution(Struct, frozen=True, array_like=True, gc=False):
    """A task that goes on as an execution of its own, for a script that did not call it itself."""

    promise: int
    execution: str
    name: str


class TimerBody(Struct, frozen=True, omit_defaults=True, gc=False):
    """A timer, the time limit of a wait for ``signal``, or a look at an execution whose ending is awaited."""

    promise: int = -1
    signal: str | None = None
    awaited: AwaitedExecution | None = None
    """Then without ``promise``: a release that does not know this refuses the body."""


class StartBody(Struct, frozen=True, omit_defaults=True, gc=False):
    """The body of the first resume token: a small start payload need not be read back."""

    input: Raw = NO_INPUT
    workflow: str = ""
    version: int = 0
    started_at: float = 0.0
    attempt: int = 1
    """One more than the number of executions it retries."""
    cleanup_of: str | None = None
    """The execution whose machine it starts from, to continue its clean-up."""
    continues: str | None = None
    """The failed execution whose machine it starts from. It has no ``input`` then: a release that does not know this
    refuses the body.
    """
    branches: str | None = None
    """The execution from an earlier turn of which it starts; likewise without ``input``."""


class AskedTask(Struct, frozen=True, array_like=True, gc=False):
    """A script's call of a task as its token carries it, so that it can be requested again."""

    promise: int
    node: str
    body: TaskBody
    token: str
    """The idempotency key of its runs, unless the script gave one."""
    priority: int = 0


class EarlierCall(Struct, frozen=True, array_like=True, gc=False):
    """A call that the failed turn made: its task is an execution of its own by now, its detached workflow another."""

    promise: int
    name: str
    input: str
    """Digest of the input."""
    execution: str
    detached: bool = False
    """For a workflow that was started without waiting for it."""


class FailedTask(Struct, frozen=True, gc=False):
    """The completion of a failed task, without its error."""

    asked: AskedTask | None = None


encode_body = msgspec.json.Encoder().encode
decode_task = msgspec.json.Decoder(TaskBody).decode
decode_timer = msgspec.json.Decoder(TimerBody).decode
decode_start_body = msgspec.json.Decoder(StartBody).decode
_decode_error = msgspec.json.Decoder(ErrorValue).decode
_decode_failed_task = msgspec.json.Decoder(FailedTask).decode

LARGEST_ASKED = 64 * 1024
"""Bytes of a failed task up to which its call is kept."""
LARGEST_INLINE = 64 * 1024
"""Bytes of a task's input up to which its token carries it."""


def input_as_blob(promise: int, raw: bytes) -> bytes:
    """Return the content of a blob with a task's input. No other task of its script has the same, so that the blob can
    be removed with the task.
    """
    return b"[%d,%b]" % (promise, raw)


def input_in_blob(data: bytes) -> bytes:
    return data[data.index(b",") + 1 : -1]


def succeeded(promise: int, result: Result) -> Completion:
    data = INLINE + result.raw if result.blob is None else BLOB + result.blob.encode()
    return Completion(promise, True, data)


def failed(promise: int, error: ErrorValue, asked: AskedTask | None = None) -> Completion:
    data = encode_body(error)
    if asked is not None:
        data = b'%b,"asked":%b}' % (data[:-1], encode_body(asked))
    return Completion(promise, False, INLINE + data)


def asked_again(completion: Completion) -> AskedTask | None:
    """Return the task behind a failure, if it is known."""
    if completion.ok:
        return None
    return _decode_failed_task(completion.data[1:]).asked


def error_in(completion: Completion) -> Err:
    return Err(_decode_error(completion.data[1:]))


def blob_of(completion: Completion) -> str | None:
    """Return the blob that holds a completion's value, if the value is not inline."""
    return completion.data[1:].decode() if completion.data[:1] == BLOB else None

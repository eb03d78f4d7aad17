"""Requests to a running script or Python workflow, and their answers.

A request is kept in the execution's mailbox until the workflow receives it; the answer takes its place there, and both
are in the history, where they stay after the execution has ended. So whoever asks may wait in another process, or ask
again with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.scripts.token_bodies import succeeded
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.committer import Outage
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.operations.signals import COPIES, LONGEST_SIGNAL_NAME, Signals
from dalsegno.engine.process import end, in_background, is_under_way
from dalsegno.engine.steps.values import SMALL
from dalsegno.engine.subprocesses.job_pool import digest
from dalsegno.errors import (
    Conflict,
    InternalError,
    InvalidInput,
    KeyReused,
    LimitExceeded,
    NotFound,
    OperatorError,
    RequestRejected,
    UsageError,
)
from dalsegno.model.effect import AnswerRequest, PostSignal
from dalsegno.model.event import Event, NewEvent
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionView
from dalsegno.model.ids import new_execution_id
from dalsegno.model.machine import REQUEST, PostedView, in_mailbox, request_in
from dalsegno.model.transition import AlreadyApplied, Applied, Transition
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.requests")

LONGEST_REQUEST_ID = 500
MOST_OPEN = 1000
"""Unanswered requests of an execution that are listed."""
PAGE = 1000
FIRST_POLL, LONGEST_POLL = 0.01, 0.25
"""Seconds between two reads, while anybody waits for an answer that another process may give."""
LONGEST_PAUSE = 2.0
"""The same during an outage."""
ASKED_AT_ONCE = 500
"""Requests per read; the others follow with the next one."""

RequestState = Literal["waiting", "received", "answered", "rejected", "unanswered"]
"""``waiting``: the workflow has not received it. ``unanswered``: its execution has ended without an answer."""


class RequestView(Struct, frozen=True):
    """A request, and its answer once it has one."""

    execution: str
    id: str
    name: str
    state: RequestState
    value: Raw = Raw(b"null")
    """The answer."""
    message: str | None = None
    """Why the workflow refused it; of one without an answer, the state in which its execution ended."""

    @property
    def is_open(self) -> bool:
        return self.state in ("waiting", "received")

    def answer(self) -> Any:
        """Return the answer as plain data, or raise the error that the asker gets."""
        if self.state == "answered":
            return decode_value(bytes(self.value))
        if self.state == "rejected":
            raise RequestRejected(self.message or "the workflow refused the request")
        if self.state == "unanswered":
            raise unanswered(self.execution, self.name, self.id, self.message)
        raise InternalError(f"request '{self.name}' ({self.id}) has no answer yet")


def unanswered(execution: str, name: str, id: str, ended: str | None) -> Conflict:
    state = f" ({ended})" if ended else ""
    return Conflict(f"execution {execution} ended{state} before it answered request '{name}' ({id})")


class _Received(Struct, frozen=True):
    id: str
    digest: str = ""


class _Answered(Struct, frozen=True):
    id: str
    value: Raw = Raw(b"null")
    error: _Refusal | None = None


class _Refusal(Struct, frozen=True):
    message: str = ""


encode = msgspec.json.Encoder().encode
_decode_received = msgspec.json.Decoder(_Received).decode
_decode_answered = msgspec.json.Decoder(_Answered).decode

Key: TypeAlias = tuple[str, str]
"""An execution, and the id of a request to it in its mailbox."""
Awaited: TypeAlias = "asyncio.Future[bytes]"
"""An answer as it is stored."""


class Requests:
    def __init__(self, stored: StoredExecutions, signals: Signals) -> None:
        self.stored = stored
        self.answers = Answers(stored.stack.ledger)
        self._signals = signals

    async def ask(
        self,
        execution: str,
        name: str,
        payload: Any,
        id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as users know it
    ) -> Any:
        """Send a request and return its answer; see `send`. Raises TimeoutError, RequestRejected, or Conflict if the
        execution ends without an answer.
        """
        found = await self.asked(execution, name, payload, id, timeout)
        if found.is_open:
            raise TimeoutError(too_late(found, timeout))
        return found.answer()

    async def asked(
        self,
        execution: str,
        name: str,
        payload: Any,
        id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as users know it
    ) -> RequestView:
        """Send a request, and return it with its answer or as it is after ``timeout``."""
        own = id or new_execution_id(self.stored.stack.ledger.now())
        with self.answers.awaited((execution, in_mailbox(own))) as answer:
            if not await self.send(execution, name, payload, own):
                known = await self.get(execution, own)
                if not known.is_open:
                    return known
            return await self._wait(RequestView(execution, own, name, "waiting"), answer, timeout)

    async def send(self, execution: str, name: str, payload: Any, id: str) -> bool:
        """Send a request. The same ``id`` with the same name and payload is the same request, also after the execution
        has ended; with another name or payload it is refused. Return False if it was sent before.
        """
        check_request(name, id)
        await self._check_receiver(execution)
        raw = encode_value(payload, "the request's payload")
        try:
            await self._signals.refuse_many(execution)
            body = b'{"id":%b,"name":%b,"payload":%b}' % (encode(id), encode(name), raw)
            result = await self.stored.results.of_raw(execution, body, "the request's payload")
            charged = COPIES * len(raw) if result.blob is None and len(raw) > SMALL else 0
            if charged:
                await self._signals.storage.charge(execution, charged)
        except LimitExceeded:
            if await self._was_received(execution, name, raw, id):
                return False
            raise
        now = self.stored.stack.ledger.now()
        fields: dict[str, Any] = {"id": id, "digest": await digest(raw, self.stored.offload)}
        if result.blob is None:
            fields["payload"] = Raw(raw)
        event = NewEvent("RequestReceived", name, "", now, encode(fields))
        posted = PostSignal(in_mailbox(id), in_mailbox(name), succeeded(0, result).data, event)
        outcome = await self.stored.committer.commit(Transition(execution, (posted,)), wait_for_store=False)
        if isinstance(outcome, Applied):
            return True
        if charged:
            await self._signals.storage.charge(execution, -charged)
        if await self._was_received(execution, name, raw, id):
            return False
        if isinstance(outcome, AlreadyApplied):
            raise KeyReused(f"the id {id[:100]!r} is in use in execution {execution}; choose another one")
        raise await self.stored.refusal(outcome, execution, "ask")

    async def _check_receiver(self, execution: str) -> None:
        kind = (await self.stored.outline(execution)).kind
        if kind not in SCRIPTED:
            what = {"graph": "runs a graph, which receives signals and answers no requests"}
            told = what.get(kind, f"is a {kind} and answers no requests; ask its workflow")
            raise Conflict(f"execution {execution} {told}")

    # -- reading ----------------------------------------------------------------------------------------------

    async def get(self, execution: str, id: str) -> RequestView:
        """Return a request. Raises NotFound if there is none with this id."""
        key = (execution, in_mailbox(id))
        posted = (await self.stored.stack.ledger.posted([key])).get(key)
        found = view_of(execution, posted) if posted is not None else None
        if found is not None and not found.is_open:
            return found
        view = await self.stored.outline(execution)
        if found is not None and view.state not in ENDED:
            return found
        return await self._in_history(view, id)

    async def open(self, execution: str) -> list[RequestView]:
        """Return the requests that wait for an answer, oldest first."""
        if (await self.stored.outline(execution)).state in ENDED:
            return []
        found = await self.stored.stack.ledger.unanswered(execution, REQUEST, MOST_OPEN)
        return [view_of(execution, each) for each in found]

    async def _in_history(self, view: ExecutionView, id: str) -> RequestView:
        """Look for a request of an execution whose rows may be removed."""
        received: Event | None = None
        after = 0
        while page := await self.stored.events(view.id, after, PAGE):
            for event in page:
                if event.kind == "RequestReceived" and _id_in(event) == id:
                    received = event
                elif event.kind == "RequestAnswered" and event.data and _id_in(event) == id:
                    return _answered(view.id, id, event.node, event.data)
            after = page[-1].seq
        if received is None:
            raise NotFound(f"execution {view.id} has received no request with the id {id[:100]!r}")
        if view.state not in ENDED:
            return RequestView(view.id, id, received.node, "waiting")
        return RequestView(view.id, id, received.node, "unanswered", message=view.state)

    async def _was_received(self, execution: str, name: str, raw: bytes, id: str) -> bool:
        """Return True if exactly this request is on record. Raises KeyReused if the id belongs to another one."""
        found = await self._event_of(execution, id)
        if found is None:
            return False
        same = _decode_received(found.data or b"{}").digest == await digest(raw, self.stored.offload)
        if found.node != name or not same:
            raise KeyReused(
                f"the id {id[:100]!r} was used for another request to execution {execution}: '{found.node}', received"
                f" as event {found.seq}; send the same name and payload again, or choose another id or key"
            )
        return True

    async def _event_of(self, execution: str, id: str) -> Event | None:
        """Return the event of a request. While its row is there, that tells the number."""
        key = (execution, in_mailbox(id))
        posted = (await self.stored.stack.ledger.posted([key])).get(key)
        after, limit = (posted.number - 1, 1) if posted is not None else (0, PAGE)
        while page := await self.stored.events(execution, after, limit):
            for event in page:
                if event.kind == "RequestReceived" and _id_in(event) == id:
                    return event
            if posted is not None:
                return None
            after = page[-1].seq
        return None

    # -- waiting ----------------------------------------------------------------------------------------------

    async def wait(self, execution: str, id: str, timeout: float | None) -> RequestView:  # noqa: ASYNC109 - as users know it
        """Return the request as soon as it has an answer or its execution has ended, or as it is after ``timeout``."""
        with self.answers.awaited((execution, in_mailbox(id))) as answer:
            found = await self.get(execution, id)
            return await self._wait(found, answer, timeout) if found.is_open else found

    async def _wait(self, request: RequestView, answer: Awaited, seconds: float | None) -> RequestView:
        over = asyncio.ensure_future(self.stored.endings.no_answer(request.execution))
        try:
            await asyncio.wait((answer, over), timeout=seconds, return_when="FIRST_COMPLETED")
            if answer.done():
                return _answered(request.execution, request.id, request.name, answer.result())
            if over.done():
                over.result()  # raises what made waiting futile
        finally:
            over.cancel()
        return await self.get(request.execution, request.id)


def too_late(view: RequestView, timeout: float | None) -> str:
    did = "received, and not answered" if view.state == "received" else "not received by the workflow"
    after = f" within {timeout:g} s" if timeout is not None else ""
    return (
        f"request '{view.name}' to execution {view.execution} was {did}{after}; it stays open: ask again with the same "
        f"name and payload and id={view.id!r} to wait for its answer"
    )


def check_request(name: str, id: str) -> None:
    for what, text, most in (
        ("name", name, LONGEST_SIGNAL_NAME - len(REQUEST)),
        ("id", id, LONGEST_REQUEST_ID),
    ):
        if not 0 < len(text) <= most:
            raise InvalidInput(f"a request's {what} has 1 to {most} characters")
        if "\0" in text:
            raise InvalidInput(f"a request's {what} contains a NUL character, which some stores cannot hold")


def view_of(execution: str, posted: PostedView) -> RequestView:
    own, name = request_in(posted.id) or "", request_in(posted.name) or ""
    if posted.taken and posted.data:
        return _answered(execution, own, name, posted.data)
    return RequestView(execution, own, name, "received" if posted.taken else "waiting")


def _answered(execution: str, id: str, name: str, data: bytes) -> RequestView:
    found = _decode_answered(data)
    if found.error is not None:
        return RequestView(execution, id, name, "rejected", message=found.error.message)
    return RequestView(execution, id, name, "answered", found.value)


def _id_in(event: Event) -> str | None:
    return _decode_received(event.data).id if event.data is not None else None


# -- waiting for answers ------------------------------------------------------------------------------------------


class Answers:
    """Waiting for answers. Those committed by this process are reported at once, others by hints and by polling."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.outage = Outage()
        self.waiting: Callable[[], None] = lambda: None
        """Called while anybody waits, so that other processes announce answers."""
        self._waiters: dict[Key, list[Awaited]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._closed = False

    @contextlib.contextmanager
    def awaited(self, key: Key) -> Iterator[Awaited]:
        """Give a future of the answer. It is only certain to come if there was none before."""
        if self._closed:
            raise _stopped()
        answer: Awaited = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(key, []).append(answer)
        self.waiting()
        if not is_under_way(self._watch):
            self._watch = in_background(self._watch_others())
        try:
            yield answer
        finally:
            answer.cancel()
            left = [other for other in self._waiters.get(key, ()) if other is not answer]
            if left:
                self._waiters[key] = left
            else:
                self._waiters.pop(key, None)

    def committed(self, transition: Transition, applied: Applied) -> None:
        """Note the answers in a commit of this process."""
        recorded = {event.data for event, *_ in applied.history if event.kind == "RequestAnswered"}
        for effect in transition.effects:
            if type(effect) is AnswerRequest and effect.data in recorded:  # otherwise there was one before
                self._tell((transition.execution, effect.id), effect.data)

    def poll_soon(self) -> None:
        """Poll soon: another process has committed something."""
        self._changed.set()

    def notice_elsewhere(self, execution: str) -> None:
        """Note that another process has announced an answer of this execution."""
        if any(own == execution for own, _ in self._waiters):
            self._changed.set()

    async def close(self) -> None:
        self._closed = True
        await end(self._watch)
        for waiters in self._waiters.values():
            for answer in waiters:
                if not answer.done():
                    answer.set_exception(_stopped())

    def _tell(self, key: Key, data: bytes) -> None:
        for answer in self._waiters.get(key, ()):
            if not answer.done():
                answer.set_result(data)

    async def _watch_others(self) -> None:
        pause = FIRST_POLL
        try:
            while self._waiters:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                self._changed.clear()
                self.waiting()
                pause = min(pause * 2, LONGEST_POLL if await self._poll() else LONGEST_PAUSE)
        finally:
            self.outage.gave_up(self)

    async def _poll(self) -> bool:
        try:
            for key, posted in (await self.ledger.posted(self._next_asked())).items():
                if posted.taken and posted.data:
                    self._tell(key, posted.data)
        except OperatorError as error:
            self.outage.failed(self, "the wait for answers to requests waits for the store", error)
            return False
        except Exception:
            logger.exception("cannot check for answers to requests; trying again")
            return False
        self.outage.answered(self)
        return True

    def _next_asked(self) -> Sequence[Key]:
        """Return the next requests to look for, and move them to the end of the queue."""
        asked = list(islice(self._waiters, ASKED_AT_ONCE))
        for key in asked:
            self._waiters[key] = self._waiters.pop(key)
        return asked


def _stopped() -> UsageError:
    return UsageError("the application was stopped while this call was waiting")

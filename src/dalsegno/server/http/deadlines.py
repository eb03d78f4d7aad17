"""Deadlines of calls: every call is answered in time, even while the store does not respond.

A call waits for the store, or for a connection to it, and both may take minutes when PostgreSQL hangs. A call that
only reads is cancelled at its deadline. A call that may change something is never cancelled half-way: its caller
receives "outcome unknown", the call continues in its task, as it does when a caller disconnects, and its outcome is
logged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextvars import ContextVar

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.errors import Unavailable
from dalsegno.server.http.problems import OutcomeUnknown, ProblemResponse, problem_of
from dalsegno.server.http.request import KEY_HEADER, GuardedRequest, may_change, takes_key, without_secrets
from dalsegno.server.services import ServerServices, no_answer_within
from dalsegno.server.settings import ServerSettings

logger = logging.getLogger("dalsegno.server")

CLOSE_CONNECTION = "hang_up"
"""Key in the state of a request: a function that closes its connection at once."""
MOST_LEFT = 1_000
"""Abandoned calls that still wait for the store, each with its body. Their callers may soon call again."""
OVERLOADED = "too many calls wait for the store, which did not answer them in time; nothing was done"


class Call:
    """A call in progress and what is known about it."""

    def __init__(self, scope: Scope, settings: ServerSettings) -> None:
        self.path = scope["path"]
        """The path as received; routing may decode and change it meanwhile."""
        self.text = f"{scope['method']} {without_secrets(self.path)}"
        self.task: asyncio.Task[None] | None = None
        self.changes = may_change(scope["method"], scope["path"])
        self.seconds = seconds = settings.change_seconds if self.changes else settings.read_seconds
        self.until = time.monotonic() + seconds
        self.made: list[str] = []
        """Ids of executions that the call may have created."""
        self.has_reply = False
        self.is_given_up = False
        self.at_end: list[Callable[[], None]] = []
        self.close_connection: Callable[[], None] = scope.get("state", {}).get(CLOSE_CONNECTION, lambda: None)

    def execution(self) -> str | None:
        """The execution that the call may have created; None if there are several."""
        return self.made[0] if len(set(self.made)) == 1 else None

    def left(self) -> float:
        """The seconds left. A reply that has begun has no deadline here: `connections` limits it."""
        return math.inf if self.has_reply else self.until - time.monotonic()


_current: ContextVar[Call | None] = ContextVar("dalsegno-call", default=None)


def allow(more: float = 0.0) -> None:
    """Extend the deadline of the current call, for work that waits for something other than the store and for work
    that has made progress: the call gets its whole time again, plus ``more`` seconds."""
    if (call := _current.get()) is not None:
        call.until = time.monotonic() + call.seconds + more


def will_make(execution: str) -> None:
    """Note that the current call is about to create an execution, so that a caller with an unknown outcome can look
    it up by id. Executions that others create meanwhile, such as children of running steps, do not count."""
    if (call := _current.get()) is not None and call.task is asyncio.current_task():
        call.made.append(execution)


def at_end(done: Callable[[], None]) -> None:
    """Register a function to run at the end of the current call: its reply was sent, or the call was abandoned."""
    if (call := _current.get()) is None:
        raise RuntimeError("no call is being served")
    call.at_end.append(done)


def closing_connection() -> Callable[[], None]:
    """Return a function that closes the connection of the current call at any time; without a connection it does
    nothing."""
    call = _current.get()
    return call.close_connection if call is not None else lambda: None


class Deadlines:
    """Middleware around the routes, inside the guard: the time in which a body arrives does not count."""

    def __init__(self, app: ASGIApp, services: ServerServices) -> None:
        self.app = app
        self.services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = Call(scope, self.services.settings)
        if call.changes and self.services.background_tasks.left >= MOST_LEFT:
            await problem_of(Unavailable(OVERLOADED))(scope, receive, send)
            return
        task = call.task = self.services.background_tasks.begin(
            self._serve(call, scope, receive, send), call.text
        )
        try:
            while not task.done() and (left := call.left()) > 0:
                await asyncio.wait({task}, timeout=None if left == math.inf else left)
        finally:  # also if the server stops and cancels the waiting calls
            if not task.done():
                call.is_given_up = True
                self.services.background_tasks.leave(task, continues=call.changes)
        if call.is_given_up:
            scope["path"] = call.path  # the access log reads it when the reply is sent
            await _refusal(call, scope)(scope, receive, send)
        else:
            task.result()

    async def _serve(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        _current.set(call)

        async def received() -> Message:
            """Receive a message. A call that waits for a disconnect, such as a worker's poll, receives one when it
            is abandoned."""
            return {"type": "http.disconnect"} if call.is_given_up else await receive()

        async def sent(message: Message) -> None:
            if not call.is_given_up:
                call.has_reply = True
                await send(message)
            elif message["type"] == "http.response.start" and call.changes:
                _log_outcome(call, message["status"])

        try:
            await self.app(scope, received, sent)
        finally:
            for done in call.at_end:
                done()


def _log_outcome(call: Call, status: int) -> None:
    """Log the outcome of an abandoned call. An internal error was logged with its cause when it became a reply."""
    level = logging.WARNING if status >= 400 else logging.INFO
    logger.log(level, "%s, whose outcome was reported as unknown to its caller: %d", call.text, status)


# -- replies to abandoned calls -------------------------------------------------------------------------------


def _refusal(call: Call, scope: Scope) -> ProblemResponse:
    error = _unknown(call, scope) if call.changes else no_answer_within(call.seconds)
    logger.warning("%s: %s", call.text, error)
    return problem_of(error)


def _unknown(call: Call, scope: Scope) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the store did not confirm this within {call.seconds:g} s; it may have taken effect, may "
        "do so later, or not at all. " + _advice(call, scope),
        call.execution(),
    )


def _advice(call: Call, scope: Scope) -> str:
    if takes_key(scope.get("route")):
        if KEY_HEADER.lower() in GuardedRequest(scope).headers:
            return f"Send it again with the same {KEY_HEADER}: it takes effect once"
        return f"If it names a key in its body, repeat it unchanged: it takes effect once. If not, {_where(call)}"
    if scope["method"] in ("PUT", "DELETE"):
        return "Send it again: a second call has no further effect"
    return "Check whether it took effect before you send it again"


def _where(call: Call) -> str:
    if (execution := call.execution()) is not None:
        return f"look for GET /v1/executions/{execution} before you send it again"
    return "look for it in GET /v1/executions, which has the newest first, before you send it again"

"""Calls are answered in time, also while the store is silent.

A call waits for the store, or for a connection to ask it on, and both may take minutes when PostgreSQL hangs. One that
only reads is given up after a while. One that may change something is never given up half-way: its caller is told that
the outcome is unknown, it goes on in its task, as it does when a caller hangs up, and how it ended is logged.
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
from dalsegno.server import paths
from dalsegno.server.connections import HANG_UP
from dalsegno.server.errands import no_answer_within
from dalsegno.server.office import Office
from dalsegno.server.problems import OutcomeUnknown, ProblemResponse, problem_of
from dalsegno.server.repeating import KEY_HEADER, takes_key
from dalsegno.server.settings import ServerSettings
from dalsegno.server.visit import Visit

logger = logging.getLogger("dalsegno.server")

MOST_LEFT = 1_000
"""Calls that were given up and wait for the store still, each with its body. Their callers may come again soon."""
OVERLOADED = "too many calls wait for the store, which has not answered them in time; nothing was done"


class Call:
    """One that is being served, and what is known about it."""

    def __init__(self, scope: Scope, settings: ServerSettings) -> None:
        self.path = scope["path"]
        """As it came: the routes may see it otherwise, and change it meanwhile."""
        self.text = f"{scope['method']} {paths.without_secrets(self.path)}"
        self.task: asyncio.Task[None] | None = None
        self.changes = paths.may_change(scope["method"], scope["path"])
        self.seconds = seconds = settings.change_seconds if self.changes else settings.read_seconds
        self.until = time.monotonic() + seconds
        self.made: list[str] = []
        """Executions, perhaps: as far as is known."""
        self.has_reply = False
        self.is_given_up = False
        self.at_end: list[Callable[[], None]] = []
        self.hang_up: Callable[[], None] = scope.get("state", {}).get(HANG_UP, lambda: None)

    def execution(self) -> str | None:
        """The one that it may have made; none of several."""
        return self.made[0] if len(set(self.made)) == 1 else None

    def left(self) -> float:
        """A reply that has begun ends as quickly as its reader reads: that is watched elsewhere."""
        return math.inf if self.has_reply else self.until - time.monotonic()


_current: ContextVar[Call | None] = ContextVar("dalsegno-call", default=None)


def allow(more: float = 0.0) -> None:
    """For work that waits for something else than the store, and for work that has come further: the call that is being
    served has its whole time again, and so many seconds more."""
    if (call := _current.get()) is not None:
        call.until = time.monotonic() + call.seconds + more


def will_make(execution: str) -> None:
    """The call that is being served is about to make it: with its id one can look whether it was made. What others
    make, such as steps that began while it was served, is not its own."""
    if (call := _current.get()) is not None and call.task is asyncio.current_task():
        call.made.append(execution)


def at_end(done: Callable[[], None]) -> None:
    """Called when the call that is being served is over: its reply is out, or nobody waits for it."""
    if (call := _current.get()) is None:
        raise RuntimeError("no call is being served")
    call.at_end.append(done)


def hanging_up() -> Callable[[], None]:
    """What closes the connection of the call that is being served, whatever it is sending; without one, nothing."""
    call = _current.get()
    return call.hang_up if call is not None else lambda: None


class Deadlines:
    """Around the routes, within the guard: a body that comes slowly takes nothing of this time."""

    def __init__(self, app: ASGIApp, office: Office) -> None:
        self.app = app
        self.office = office

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call = Call(scope, self.office.settings)
        if call.changes and self.office.errands.left >= MOST_LEFT:
            await problem_of(Unavailable(OVERLOADED))(scope, receive, send)
            return
        task = call.task = self.office.errands.begin(self._serve(call, scope, receive, send), call.text)
        try:
            while not task.done() and (left := call.left()) > 0:
                await asyncio.wait({task}, timeout=None if left == math.inf else left)
        finally:  # also where the server stops, and gives up whoever waits here
            if not task.done():
                call.is_given_up = True
                self.office.errands.leave(task, going_on=call.changes)
        if call.is_given_up:
            scope["path"] = call.path  # whoever writes it down reads it when the reply is sent
            await _refusal(call, scope)(scope, receive, send)
        else:
            task.result()

    async def _serve(self, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        _current.set(call)

        async def received() -> Message:
            """Who waits for the caller to hang up, as remote workers' polls do, learns that nobody waits for them."""
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
    """What went wrong on our side has been logged with its reason where it was made a reply."""
    level = logging.WARNING if status >= 400 else logging.INFO
    logger.log(level, "%s, whose caller was told that its outcome is unknown: %d", call.text, status)


# -- what the caller is told ----------------------------------------------------------------------------------


def _refusal(call: Call, scope: Scope) -> ProblemResponse:
    error = _unknown(call, scope) if call.changes else no_answer_within(call.seconds)
    logger.warning("%s: %s", call.text, error)
    return problem_of(error)


def _unknown(call: Call, scope: Scope) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the store did not confirm this within {call.seconds:g} s; it may have been done, or be done later, or not. "
        + _advice(call, scope),
        call.execution(),
    )


def _advice(call: Call, scope: Scope) -> str:
    if takes_key(scope.get("route")):
        if KEY_HEADER.lower() in Visit(scope).headers:
            return f"Send it again with the same {KEY_HEADER}: it is done once"
        return (
            f"If it names a key in its body, send it again as it is: it is done once. If not, {_where(call)}"
        )
    if scope["method"] in ("PUT", "DELETE"):
        return "Send it again: what was done already is not done twice"
    return "Look whether it was done before you send it again"


def _where(call: Call) -> str:
    if (execution := call.execution()) is not None:
        return f"look for GET /v1/executions/{execution} before you send it again"
    return "look for it in GET /v1/executions, which has the newest first, before you send it again"

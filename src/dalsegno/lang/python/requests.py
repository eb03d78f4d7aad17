"""Requests as a Python workflow sees them: it receives them with ``request()`` or ``requests()`` and answers each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar, cast

from dalsegno.errors import InvalidInput, LimitExceeded
from dalsegno.lang.python.durable_calls import Caller, Promised, current_machine
from dalsegno.lang.python.errors import OutsideWorkflow
from dalsegno.lang.python.values.decisions import ClassNames
from dalsegno.lang.python.values.payload_types import payload_of
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.lang.runtime.promises import Promise
from dalsegno.model.machine import request_in

P = TypeVar("P")


class PayloadRefused(InvalidInput):
    """The payload of a request did not fit the type that the workflow asks for; its asker was told so."""


@dataclass(eq=False)
class Request(Generic[P]):
    """A request that somebody has sent, and who waits for the answer."""

    id: str
    name: str
    payload: P
    answered: bool = False
    """It was answered or refused by this workflow."""

    def reply(self, value: Any = None) -> None:
        """Answer the request: the asker gets this value. It is stored with everything else that the workflow does until
        its next ``await``, once.
        """
        machine = self._open("reply")
        plain = to_plain(value, f"the answer to request '{self.name}'")
        try:
            machine.reply(self.id, self.name, plain)
        except ValueError as error:
            raise LimitExceeded(str(error)) from None
        self.answered = True

    def reject(self, message: str) -> None:
        """Refuse the request: the asker gets a ``RequestRejected`` error with this message."""
        machine = self._open("reject")
        if not message:
            raise ValueError("reject() takes the reason as a text that is not empty")
        machine.reject(self.id, self.name, str(message))
        self.answered = True

    def _open(self, verb: str) -> Caller:
        machine = current_machine()
        if machine is None:
            raise OutsideWorkflow(
                f"{verb}() works only inside the workflow that received the request; a task returns a value, and its "
                "workflow answers with it"
            )
        if self.answered:
            raise RuntimeError(
                f"request '{self.name}' ({self.id}) has been answered already; a request is answered once"
            )
        return machine


class IncomingRequests(Generic[P]):
    """What ``async for`` takes the requests of one name from. It never ends: leave the loop with ``break``."""

    def __init__(self, name: str, payload: str | None) -> None:
        """``payload``: the type of the payloads, as text."""
        self.name = name
        self.payload = payload

    def __aiter__(self) -> AsyncIterator[Request[P]]:
        raise TypeError("write requests() into the loop itself: 'async for request in requests(…)'")

    def next(self) -> Promised[Request[P]]:
        """Wait for the next request: a round of the loop begins with this."""
        machine = current_machine()
        if machine is None:
            raise OutsideWorkflow("requests() works only inside a running workflow")
        return cast("Promised[Request[P]]", machine.wait_for_request(self.name, None, self.payload))


def received(value: Any, promise: Promise, naming: ClassNames) -> Request[Any]:
    """Return the request that a promise got. One whose payload does not fit is refused, and raises `PayloadRefused`."""
    name = request_in(promise.name or "") or ""
    found: Request[Any] = Request(value["id"], name, value["payload"])
    if promise.type is not None:
        try:
            found.payload = payload_of(value["payload"], name, promise.type, naming, "request")
        except InvalidInput as error:
            _refuse(found, str(error))
    return found


def _refuse(request: Request[Any], reason: str) -> NoReturn:
    request.reject(reason)
    raise PayloadRefused(reason)

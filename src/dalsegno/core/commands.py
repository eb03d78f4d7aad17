"""Commands from outside: transitions that consume no token."""

from __future__ import annotations

from dalsegno.core.orders import order_cancel_children
from dalsegno.core.situation import encode_record
from dalsegno.model.effect import FinishExecution, PauseExecution, ResumeExecution
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.transition import Transition


def cancel(execution: str, now: float, reason: str | None = None, *, children: bool = False) -> Transition:
    """A graph ends at once; whatever was running commits into the void. ``children``: it may have some to end, too."""
    message = f"the execution was cancelled: {reason}" if reason else "the execution was cancelled"
    error = encode_record(Failure(message, code="CANCELLED", type="CancelledError").as_dict())
    event = NewEvent("ExecutionCancelled", "", "", now, b'{"error":%b}' % error)
    finish = FinishExecution("CANCELLED", event, error=error)
    if not children:
        return Transition(execution, (finish,))
    return Transition(execution, (finish, order_cancel_children(execution, "its parent was cancelled")))


def pause(execution: str, now: float) -> Transition:
    return Transition(execution, (PauseExecution(NewEvent("ExecutionPaused", "", "", now)),))


def resume(execution: str, now: float) -> Transition:
    return Transition(execution, (ResumeExecution(NewEvent("ExecutionResumed", "", "", now)),))

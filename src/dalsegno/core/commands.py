"""Commands from outside the execution: transitions that consume no token."""

from __future__ import annotations

from dalsegno.core.graph.step_input import encode_record
from dalsegno.core.outbox_orders import order_cancel_children
from dalsegno.core.scripts.ending import TERMINATED, termination
from dalsegno.model.effect import FinishExecution, PauseExecution, ResumeExecution
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.transition import Transition


def cancel(execution: str, now: float, reason: str | None = None, *, children: bool = False) -> Transition:
    """Cancel a graph execution: it ends at once, and the commits of its running steps have no effect.

    ``children``: the execution may have children, which are cancelled too.
    """
    message = f"the execution was cancelled: {reason}" if reason else "the execution was cancelled"
    failure = Failure(message, code="CANCELLED", type="CancelledError")
    return _ended(execution, now, failure, "its parent was cancelled" if children else None)


def terminate(execution: str, now: float, reason: str | None = None, *, children: bool = False) -> Transition:
    """Terminate a graph execution. Only its event differs from a cancel's: a graph has no clean-up."""
    failure = Failure(termination(reason), code="TERMINATED", type="TerminatedError")
    return _ended(execution, now, failure, TERMINATED if children else None)


def _ended(execution: str, now: float, failure: Failure, for_children: str | None) -> Transition:
    error = encode_record(failure.as_dict())
    event = NewEvent("ExecutionCancelled", "", "", now, b'{"error":%b}' % error)
    finish = FinishExecution("CANCELLED", event, error=error)
    if for_children is None:
        return Transition(execution, (finish,))
    return Transition(execution, (finish, order_cancel_children(execution, for_children)))


def pause(execution: str, now: float) -> Transition:
    return Transition(execution, (PauseExecution(NewEvent("ExecutionPaused", "", "", now)),))


def resume(execution: str, now: float) -> Transition:
    return Transition(execution, (ResumeExecution(NewEvent("ExecutionResumed", "", "", now)),))

"""Tasks in the hands of remote workers, as values: how they are handed out, named, found again and lost."""

from __future__ import annotations

from msgspec import Struct

from dalsegno.engine.remote_sessions import Held
from dalsegno.engine.standin import Answer, Question
from dalsegno.errors import LeaseLost, NotFound
from dalsegno.model.failure import Failure
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import Outcome, Stale


class RemoteSettings(Struct, frozen=True):
    lease: float = 30.0
    """A remote worker that is silent for this long has lost its tasks."""
    first: float = 10.0
    """Within which it must show that it knows of a task that it was given: by a heartbeat, or by its result."""

    @property
    def interval(self) -> float:
        """How often a worker is asked to send heartbeats."""
        return self.lease / 3


class RemoteTask(Struct, frozen=True):
    """A task as it is handed out. ``id`` is opaque to workers."""

    id: str
    lease: Lease
    question: Question
    since: float
    deadline: float | None


class Settled(Struct, frozen=True):
    """An answer was taken: ``repeated`` if the same one had been taken before."""

    id: str
    verb: str
    repeated: bool = False


def task_of(held: Held) -> RemoteTask:
    lease = held.lease
    return RemoteTask(id_of(lease), lease, held.question, held.since, held.deadline)


def id_of(lease: Lease) -> str:
    return f"{lease.execution}.{lease.token}"


def parts_of(id: str) -> tuple[str, str]:
    execution, dot, token = id.partition(".")
    if not (execution and dot and token):
        raise NotFound(f"there is no task {id!r}; give the id as it was handed out")
    return execution, token


def token_in(inspection: Inspection | None, token: str) -> TokenView | None:
    tokens = inspection.tokens if inspection is not None else ()
    return next((view for view in tokens if view.id == token), None)


def lease_of(inspection: Inspection, view: TokenView, now: float) -> Lease:
    execution = inspection.execution
    return Lease(
        view.id,
        execution.id,
        view.fence,
        view.scope,
        view.kind,
        view.node,
        view.data,
        view.queue,
        view.priority,
        view.attempt,
        view.losses,
        view.reason,
        now,
        execution.definition,
        execution.epoch,
        view.live,
        execution.kind,
    )


def lost(id: str, outcome: Outcome) -> LeaseLost:
    reason = outcome.reason if isinstance(outcome, Stale) else ""
    if reason in ("finished", "scope", "unknown"):
        return LeaseLost(f"task {id} is not wanted any more: its execution, or its branch of it, has ended")
    return LeaseLost(f"task {id} is not yours any more: it was given to another worker, or answered before")


def timed_out(held: Held) -> Answer:
    scripted = held.lease.kind == "task"
    name = held.question.task if scripted else held.lease.node
    what = f"task '{name}'" if scripted else f"node '{name}'"
    message = f"{what} did not end within its timeout of {held.question.timeout:g} s"
    return Answer(failure=Failure(message, "TimeoutError" if scripted else "TIMEOUT", "TimeoutError"))


def not_storable(message: str) -> Answer:
    text = f"the store cannot hold this output: {message}"
    return Answer(failure=Failure(text, "NOT_STORABLE", "NotStorable", retryable=False))

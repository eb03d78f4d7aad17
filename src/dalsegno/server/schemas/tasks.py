"""Schemas of the remote worker protocol, of open tasks, and of their settlement by people."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dalsegno.core.manual_tasks import Action
from dalsegno.engine.operations.manual_tasks import OpenTask, TaskState
from dalsegno.engine.remote.sessions import RemoteSettings, RemoteTask, Settled, fields_of
from dalsegno.model.failure import Failure
from dalsegno.model.token import SYSTEM_QUEUE
from dalsegno.server.schemas.values import Asked, Kept, shown

EXAMPLE_TASK = "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4.5f1d3c2b4a6978801f2e3d4c5b6a7988"
LONGEST_WAIT = 30.0
LARGEST_BATCH = 100

WorkerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="One name per process: a heartbeat covers all tasks that were given to this name.",
        examples=["resizer-1"],
    ),
]
QueueName = Annotated[
    str, Field(min_length=1, max_length=200, json_schema_extra={"not": {"const": SYSTEM_QUEUE}})
]
Fence = Annotated[int, Field(ge=0, le=2**53, description="As it was handed out.")]


class ClaimRequest(Asked, BaseModel):
    """``queues`` or ``tasks``, or both; neither is refused (422). Without queues, each task is claimed from the
    queue of its own name."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {"worker": "resizer-1", "queues": ["images"], "limit": 1, "wait": 20},
        },
    )

    worker: WorkerName
    queues: list[QueueName] | None = Field(
        default=None, min_length=1, max_length=50, description="Queues from which it takes tasks."
    )
    tasks: list[QueueName] | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Names of tasks it can run; others are left to other workers.",
    )
    limit: int = Field(default=1, ge=1, le=LARGEST_BATCH)
    wait: float = Field(
        default=20.0, ge=0, le=LONGEST_WAIT, description="Seconds to wait for the first task; 0: do not wait."
    )

    @model_validator(mode="after")
    def _names_something(self) -> ClaimRequest:
        if self.queues is None and self.tasks is None:
            raise ValueError("give 'queues', 'tasks', or both")
        return self

    def served(self) -> list[str]:
        return self.queues if self.queues is not None else self.tasks or []


class TaskInfo(BaseModel):
    """One task to run. ``input`` comes from the workflow."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": EXAMPLE_TASK,
                "fence": 1,
                "execution": "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",
                "workflow": "thumbnails",
                "node": "resize",
                "name": "resize",
                "queue": "images",
                "input": {"file": "a.png"},
                "attempt": 1,
                "idempotency_key": "5f1d3c2b4a6978801f2e3d4c5b6a7988",
                "deadline": None,
                "heartbeat_seconds": 10.0,
                "lease_seconds": 30.0,
                "traceparent": "00-0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4-5f1d3c2b4a697880-01",
            }
        }
    )

    id: str
    fence: int
    execution: str
    workflow: str
    node: str
    name: str
    queue: str
    input: Any
    attempt: int = Field(description="1 is the first.")
    idempotency_key: str = Field(description="The same for every attempt: pass it to the services you call.")
    deadline: datetime | None = Field(description="After which the task has failed with a timeout.")
    heartbeat_seconds: float = Field(description="How often to send heartbeats while it runs.")
    lease_seconds: float = Field(
        description="Seconds without a heartbeat after which it is given to another worker."
    )
    traceparent: str = Field(description="W3C trace context: spans made under it belong to the execution.")

    @staticmethod
    def of(task: RemoteTask, settings: RemoteSettings) -> TaskInfo:
        return TaskInfo(**fields_of(task, settings))


class Claimed(BaseModel):
    """The claimed tasks. Empty if none became available in time: call again."""

    tasks: list[TaskInfo]


class CompleteRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"fence": 1, "output": {"file": "a-small.png"}}}
    )

    fence: Fence
    output: Annotated[Any, Kept("values", "the output")] = None


class TaskError(BaseModel):
    model_config = ConfigDict(extra="forbid")

    message: str = Field(min_length=1, max_length=100_000)
    type: str = Field(default="Error", min_length=1, max_length=1000, description="Its class, where it ran.")
    code: str = Field(default="NODE_FAILED", min_length=1, max_length=1000)
    details: dict[str, Any] | None = None
    retryable: bool = Field(default=True, description="False: do not retry.")
    retry_after: float | None = Field(default=None, ge=0, le=31_536_000, description="Seconds, at least.")
    traceback: str | None = Field(
        default=None,
        max_length=100_000,
        description="Traceback, for people; 8,192 characters are kept.",
    )

    def failure(self) -> Failure:
        return Failure(
            self.message,
            self.code,
            self.type,
            self.details,
            retryable=self.retryable,
            retry_after=self.retry_after,
            traceback=self.traceback or None,
        )


class FailRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "fence": 1,
                "error": {"type": "OSError", "message": "disk full", "retryable": True},
            }
        },
    )

    fence: Fence
    error: TaskError


class Accepted(BaseModel):
    """The answer was accepted, now or before."""

    model_config = ConfigDict(json_schema_extra={"example": {"id": EXAMPLE_TASK, "repeated": False}})

    id: str
    repeated: bool = Field(description="Whether this answer was accepted before; then nothing changed.")

    @staticmethod
    def of(settled: Settled) -> Accepted:
        return Accepted(id=settled.id, repeated=settled.repeated)


class HeldTask(Asked, BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: str = Field(min_length=1, max_length=200, examples=[EXAMPLE_TASK])
    fence: Fence


class HeartbeatRequest(Asked, BaseModel):
    """All tasks that the worker runs. A task that it omits goes to another worker."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"worker": "resizer-1", "tasks": [{"id": EXAMPLE_TASK, "fence": 1}]}},
    )

    worker: WorkerName
    tasks: list[HeldTask] = Field(default=[], max_length=1000)
    dropped: list[HeldTask] = Field(
        default=[],
        max_length=1000,
        description="Handed back: they go to other workers at once, and no loss is counted.",
    )


class HeartbeatReply(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"lost": [], "lease_seconds": 30.0}})

    lost: list[str] = Field(
        description="Tasks that the worker has lost: stop them, their answers are refused."
    )
    lease_seconds: float


By = Annotated[
    str | None,
    Field(max_length=200, description="Name of the person who decides; stored with the name of the key."),
]
Reason = Annotated[str | None, Field(max_length=4000, description="The reason; recorded in the history.")]
_TASK: dict[str, Any] = {
    "id": EXAMPLE_TASK,
    "execution": "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",
    "workflow": "certify",
    "node": "certificate",
    "task": "certificate",
    "state": "queued",
    "queue": "office",
    "attempt": 1,
    "due": None,
    "holder": None,
    "is_remote": True,
    "docs": "Prints a certificate.",
    "returns": {"type": "object", "properties": {"number": {"type": "integer"}}},
    "input": "Ada",
    "lost": None,
}


class OpenTaskInfo(BaseModel):
    """A task or a node that is pending or running."""

    model_config = ConfigDict(json_schema_extra={"example": _TASK})

    id: str = Field(description="The id that remote workers use, too.")
    execution: str
    workflow: str
    node: str
    task: str | None = Field(description="Name of the task; null for a node of another type.")
    state: TaskState = Field(
        description="waiting: asleep until its time, a retry's or its own, or for something from outside; paused: its "
        "execution is."
    )
    queue: str
    attempt: int
    due: datetime | None = Field(description="When it wakes.")
    holder: str | None = Field(description="The worker or the remote program that holds it.")
    is_remote: bool = Field(description="Whether other programs run it, and no worker of this application.")
    docs: str = Field(description="Description from the declaration of a remote task.")
    returns: dict[str, Any] | None = Field(description="JSON Schema of the output of a remote task.")
    input: Any = Field(default=None, description="Input of the task; only for a single task.")
    lost: str | None = Field(
        default=None,
        description="Why its holder will not finish it, as a sentence; null while the holder lives.",
    )

    @staticmethod
    def of(task: OpenTask) -> OpenTaskInfo:
        return shown(OpenTaskInfo, task)


class HandRequest(Asked, BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"reason": "the printer is broken"}}
    )

    by: By = None
    reason: Reason = None


class HandCompleteRequest(HandRequest):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"output": {"number": 7}, "reason": "printed at the desk"}},
    )

    output: Annotated[Any, Kept("values", "the output")] = None


class HandFailRequest(HandRequest):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"message": "there is no such person", "retry": False}}
    )

    message: str = Field(min_length=1, max_length=100_000)
    retry: bool = Field(
        default=False,
        description="Whether the retry policy applies, as after a failure of the task itself.",
    )


class HandSettled(BaseModel):
    """The action that was applied to the task."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": EXAMPLE_TASK,
                "execution": _TASK["execution"],
                "node": "certificate",
                "action": "complete",
                "by": "deploy",
            }
        }
    )

    id: str
    execution: str
    node: str
    action: Action
    by: str | None = Field(description="As the history names it.")

"""Schemas for operators: workers, queues, limits, dead letters, health and errors."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from dalsegno.engine.operations.dead_letters import DeadKind, DeadLetter
from dalsegno.engine.worker.directory import Running, WorkerSeen
from dalsegno.model.limits import LimitView, show_rate
from dalsegno.ports.ledger import QueueView
from dalsegno.server.schemas.values import Asked, maybe_moment, shown

RATE = "Maximum number of starts in a period: 10/s, 100/m, 5/30s, 2/500ms."


class LimitRequest(Asked, BaseModel):
    """The limit of a key. For omitted fields, the definitions apply again."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"concurrency": 5, "rate": "10/s"}]}
    )

    concurrency: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Maximum that run at once; 0: nothing starts."
    )
    rate: str | None = Field(default=None, max_length=40, description=RATE)


class LimitInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "key": "gmail",
                    "concurrency": 5,
                    "rate": "10/s",
                    "in_use": 5,
                    "waiting": 12,
                    "opens_at": None,
                }
            ]
        }
    )

    key: str
    concurrency: int | None = Field(description="As operators have set it; null: as definitions say.")
    rate: str | None = Field(description="As operators have set it; null: as definitions say.")
    in_use: int = Field(description="Slots that running steps and executions hold.")
    waiting: int = Field(description="Ready steps that wait for a slot; counted up to 1,000.")
    opens_at: float | None = Field(
        description="When the operators' rate allows the next start; null: at once."
    )

    @classmethod
    def of(cls, view: LimitView) -> Self:
        rate = view.rule.rate
        return cls(
            key=view.key,
            concurrency=view.rule.concurrency,
            rate=show_rate(rate) if rate is not None else None,
            in_use=view.in_use,
            waiting=view.waiting,
            opens_at=view.opens_at,
        )


class RunningInfo(BaseModel):
    execution: str
    node: str
    kind: str
    queue: str
    attempt: int

    @staticmethod
    def of(running: Running) -> RunningInfo:
        return shown(RunningInfo, running)


class WorkerStatus(BaseModel):
    """A worker process, or a remote worker."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "host:1c2d3e4f:4026531836:4711:123456:9a8b7c6d",
                "kind": "local",
                "state": "alive",
                "host": "host",
                "process": 4711,
                "version": "0.4.0",
                "via": None,
                "since": "2026-05-01T12:00:00Z",
                "heard_at": "2026-05-01T12:30:00Z",
                "expires_at": "2026-05-01T12:31:00Z",
                "queues": ["default", "system"],
                "concurrency": 100,
                "leases": 1,
                "running": [
                    {
                        "execution": "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",
                        "node": "resize",
                        "kind": "node",
                        "queue": "default",
                        "attempt": 1,
                    }
                ],
            }
        }
    )

    id: str
    kind: Literal["local", "remote"] = Field(description="remote: a worker of another program.")
    state: Literal["alive", "dead"]
    host: str | None = None
    process: int | None = None
    version: str | None = Field(
        default=None,
        description="Version of Dal Segno; for a remote worker, that of the server it is connected to.",
    )
    via: str | None = Field(
        default=None,
        description="For a remote worker: the broker that brings its tasks; null if it asks a server over HTTP.",
    )
    since: datetime | None = None
    heard_at: datetime | None = Field(default=None, description="Time of its last heartbeat.")
    expires_at: datetime = Field(description="When its lease expires without a further heartbeat.")
    queues: list[str]
    concurrency: int | None = None
    leases: int = Field(description="Tokens it holds now.")
    running: list[RunningInfo] = Field(description="Its running steps at its last heartbeat; at most 20.")

    @staticmethod
    def of(seen: WorkerSeen) -> WorkerStatus:
        return shown(WorkerStatus, seen, running=[RunningInfo.of(each) for each in seen.running])


class WorkerList(BaseModel):
    workers: list[WorkerStatus]


class QueueStatus(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "queue": "images",
                "ready": 12,
                "oldest_ready_at": "2026-05-01T12:00:00Z",
                "oldest_seconds": 3.5,
                "running": 4,
                "served": True,
            }
        }
    )

    queue: str
    ready: int
    oldest_ready_at: datetime | None
    oldest_seconds: float = Field(description="Age of the oldest waiting step; 0 if nothing waits.")
    running: int
    served: bool = Field(description="Whether any living worker serves it.")

    @staticmethod
    def of(view: QueueView, now: float, served: bool) -> QueueStatus:
        return QueueStatus(
            queue=view.queue,
            ready=view.ready,
            oldest_ready_at=maybe_moment(view.oldest),
            oldest_seconds=max(now - view.oldest, 0.0) if view.oldest is not None else 0.0,
            running=view.running,
            served=served,
        )


class QueueList(BaseModel):
    queues: list[QueueStatus]


class DeadLetterInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "execution:0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",
                "kind": "execution",
                "execution": "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",
                "workflow": "thumbnails",
                "reason": "the worker process died 5 times while it ran this node",
                "code": "WORKER_LOST",
                "since": "2026-05-01T12:00:00Z",
                "tries": 1,
            }
        }
    )

    id: str
    kind: DeadKind
    execution: str
    workflow: str
    reason: str
    code: str | None = None
    since: datetime
    tries: int

    @staticmethod
    def of(letter: DeadLetter) -> DeadLetterInfo:
        return shown(DeadLetterInfo, letter)


class Handled(BaseModel):
    """``execution``: the execution that continues, or was dropped."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": "execution:0198f3c2a1b4d6e8f0a2b4c6d8e0f2a4",
                "execution": "0198f3c2a1b4d6e8f0a2b4c6d8e0f2a5",
            }
        }
    )

    id: str
    execution: str


HealthStatus = Literal["ok", "degraded", "down"]


class Part(BaseModel):
    """One dependency of the server."""

    name: str
    status: HealthStatus
    detail: str
    seconds: float | None = Field(default=None, description="Its duration, or its delay.")


class Health(BaseModel):
    """The worst dependency determines the state: `down` if nothing can work, `degraded` if something does not."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "status": "ok",
                "version": "0.4.0",
                "parts": [
                    {"name": "store", "status": "ok", "detail": "answers", "seconds": 0.0012},
                    {"name": "timers", "status": "ok", "detail": "on time", "seconds": 0.0},
                ],
                "dead_workers": [],
            }
        }
    )

    status: HealthStatus
    version: str
    parts: list[Part]
    dead_workers: list[str] = Field(description="Dead workers that still hold leases.")


class Alive(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"status": "ok"}})

    status: Literal["ok", "stopping", "unavailable"]
    detail: str | None = None


class ErrorInfo(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "code": "DS-130",
                "name": "NotFound",
                "cause": "No definition, execution, node type or blob of that name in this store.",
                "cure": "Check the spelling and the store.",
            }
        }
    )

    code: str
    name: str | None = Field(description="The class that the Python client raises.")
    cause: str
    cure: str


class ErrorList(BaseModel):
    errors: list[ErrorInfo]

"""Tasks as they are handed out to other programs: the JSON object of ``/v1/tasks/claim``, of streams and of queues."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from dalsegno.core.values import encode_value
from dalsegno.engine.remote.sessions import Held, RemoteSettings, RemoteTask, id_of, task_of
from dalsegno.engine.tracing import traceparent_of
from dalsegno.ports.task_transport import TaskCopy

_encode = msgspec.json.Encoder().encode


def fields_of(task: RemoteTask, settings: RemoteSettings) -> dict[str, Any]:
    """Return the fields of a task as other programs see it."""
    lease, question = task.lease, task.question
    deadline = datetime.fromtimestamp(task.deadline, UTC) if task.deadline is not None else None
    return {
        "id": task.id,
        "fence": lease.fence,
        "execution": lease.execution,
        "workflow": question.workflow,
        "node": lease.node,
        "name": question.task,
        "queue": lease.queue,
        "input": question.input,
        "attempt": lease.attempt,
        "idempotency_key": question.key,
        "deadline": deadline,
        "heartbeat_seconds": settings.interval,
        "lease_seconds": settings.lease,
        "traceparent": traceparent_of(lease),
    }


def copy_of(held: Held, settings: RemoteSettings) -> TaskCopy:
    """Return the copy of a task that is handed out over a broker."""
    lease = held.lease
    fields = fields_of(task_of(held), settings)
    body = _encode({**fields, "input": Raw(encode_value(fields["input"], "the input"))})
    return TaskCopy(id_of(lease), lease.fence, lease.queue, lease.priority, body, held.deadline)

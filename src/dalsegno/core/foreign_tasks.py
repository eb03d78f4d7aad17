"""Decisions about tasks that are handed out to workers of other programs over a broker.

The ledger decides who may answer a task: the token is leased, and its copy in the broker shows the fence. What the
broker reports about copies is compared with the leases, and the differences are repaired:

- a copy without a lease is withdrawn: its task was answered, cancelled, or handed out again;
- a lease without a copy is handed out again: the broker has lost it, which is no loss of a worker;
- a copy whose worker is dead, or was acknowledged without a result, counts as a loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dalsegno.core.values import encode_parsed, storable_details
from dalsegno.errors import NotJson
from dalsegno.model.failure import Failure

UNSTATED = 10
"""Copies handed out at a time for a worker that does not state its concurrency."""
DEAD_AFTER = 15.0
"""Seconds without a heartbeat after which a worker is dead."""
UNANSWERED_AFTER = 60.0
"""Seconds after which a task that was acknowledged without a result counts as lost. Longer than a result that an
orchestrator took and did not take in waits for another one.
"""
MISSING_AFTER = 3.0
"""Seconds for which a lease may have no copy: it may be on its way to the broker."""
WORKER_LOST = "WORKER_LOST"
"""Code of a result that reports a loss instead of an outcome: the task came back from a connection that is gone."""


class Capacity(Struct, frozen=True):
    """How much a living worker takes, of which queues. ``concurrency``: 0 if it does not state it."""

    queues: tuple[str, ...]
    concurrency: int = 0

    @property
    def most(self) -> int:
        return 2 * self.concurrency if self.concurrency > 0 else UNSTATED


def room(queue: str, workers: Sequence[Capacity], handed_out: Mapping[str, int]) -> int:
    """Return how many more copies of this queue may be handed out.

    What is handed out is counted against the workers that serve the fewest queues first, so that it takes away as
    little as possible from the other queues.
    """
    ordered = sorted(workers, key=lambda worker: len(worker.queues))
    left = [worker.most for worker in ordered]
    serving = {
        name: [place for place, worker in enumerate(ordered) if name in worker.queues] for name in handed_out
    }
    for name in sorted(serving, key=lambda name: (len(serving[name]), name)):
        rest = handed_out[name]
        for place in serving[name]:
            used = min(rest, left[place])
            left[place] -= used
            rest -= used
    return sum(free for worker, free in zip(ordered, left, strict=True) if queue in worker.queues)


def queues_of_others(named: Iterable[str], taken: Collection[str]) -> list[str]:
    """Return the queues that may be handed out: none that the application's workers serve, or that is ``taken``."""
    return sorted({queue for queue in named if queue not in taken})


# -- what became of the copies ---------------------------------------------------------------------------------

Key = tuple[str, int]
"""A copy: the task's id and the fence it was handed out with."""


class Copy(Struct, frozen=True):
    """A copy as the broker reports it.

    ``waiting``: no worker has it. ``running``: ``worker`` has it, for ``seconds``. ``acknowledged``: its worker
    finished it ``seconds`` ago, and its result has not been taken in.
    """

    key: Key
    state: Literal["waiting", "running", "acknowledged"]
    worker: str = ""
    seconds: float = 0.0


class Repairs(Struct, frozen=True):
    lost: tuple[Key, ...] = ()
    """To be taken back, counting a loss each."""
    again: tuple[Key, ...] = ()
    """To be taken back without a loss."""
    withdrawn: tuple[Key, ...] = ()
    """Copies to be removed from the broker."""


def repairs(
    leased: Mapping[Key, float],
    copies: Iterable[Copy],
    living: Collection[str],
    *,
    dead_after: float = DEAD_AFTER,
    missing_after: float = MISSING_AFTER,
    served: bool = True,
) -> Repairs:
    """Return what is to be repaired in a queue.

    ``leased``: for how many seconds each lease is known. ``living``: ids of living workers. ``served``: whether the
    queue is still handed out; otherwise what no worker has taken is taken back for others.
    """
    lost: list[Key] = []
    again: list[Key] = []
    withdrawn: list[Key] = []
    found: set[Key] = set()
    for copy in copies:
        found.add(copy.key)
        if copy.key not in leased:
            withdrawn.append(copy.key)
        elif _is_lost(copy, living, dead_after):
            lost.append(copy.key)
        elif copy.state == "waiting" and not served:
            again.append(copy.key)
    again += [key for key, known in leased.items() if key not in found and known >= missing_after]
    return Repairs(tuple(lost), tuple(again), (*withdrawn, *lost, *again))


def _is_lost(copy: Copy, living: Collection[str], dead_after: float) -> bool:
    if copy.state == "running":
        return copy.worker not in living and copy.seconds >= dead_after
    return copy.state == "acknowledged" and copy.seconds >= UNANSWERED_AFTER


# -- results ---------------------------------------------------------------------------------------------------


class BadResult(ValueError):
    """A result that cannot be read. The message says what is wrong with it."""


class Result(Struct, frozen=True):
    """The result of a task. It names the task by ``id`` and ``fence``, or by execution and node in the older form."""

    id: str
    fence: int
    execution: str
    node: str
    output: Any
    failure: Failure | None
    worker: str

    @property
    def is_loss(self) -> bool:
        return self.failure is not None and self.failure.code == WORKER_LOST


class _Written(Struct):
    success: bool
    id: str | UnsetType | None = UNSET
    fence: int | UnsetType | None = UNSET
    workflow_execution_id: str | UnsetType | None = UNSET
    node_id: str | UnsetType | None = UNSET
    output: Any = None
    error: Any = None
    worker: str | None = None


class _Error(Struct):
    message: str = ""
    code: str = "NODE_FAILED"
    type: str = "Error"
    details: dict[str, Any] | None = None
    retryable: bool = True


_written = msgspec.json.Decoder(_Written).decode
LONGEST_MESSAGE = 100_000
LARGEST_RESULT = 10 * 1024 * 1024
LARGEST_ERROR = 1024 * 1024
"""Bytes of the error in a large result, nearly all of them in texts: the event loop decodes them."""


def read_result(body: bytes | Raw) -> Result:
    """Read the JSON object of a result. Raises BadResult; unknown fields are ignored."""
    if len(bytes(body)) > LARGEST_RESULT:
        raise BadResult(f"the result has {len(bytes(body)):,} bytes, more than {LARGEST_RESULT:,}")
    try:
        written = _written(body)
        failure = None if written.success else _failure(written.error)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise BadResult(f"the result is not the JSON object of a result: {error}") from error
    task, fence = written.id or "", written.fence
    execution, node = written.workflow_execution_id or "", written.node_id or ""
    if task and not isinstance(fence, int):
        raise BadResult("the result has an 'id' and no 'fence'; send both as they were handed out")
    if not task and not (execution and node):
        raise BadResult("the result names no task; send 'id' and 'fence' as they were handed out")
    output = written.output if failure is None else None
    return Result(
        task, fence if isinstance(fence, int) else 0, execution, node, output, failure, written.worker or ""
    )


def packed_result(body: bytes) -> dict[str, Any]:
    """Read a result for another process: plain values, with output and error as JSON; or why it is refused."""
    try:
        found = read_result(body)
        output = encode_parsed(found.output, "the output")
    except BadResult as error:
        return {"bad": str(error)}
    except NotJson as error:
        return {"bad": f"the result cannot be stored: {error}"}
    failed = found.failure
    if failed is not None:
        failed = msgspec.structs.replace(failed, details=storable_details(failed.details))
    failure = msgspec.json.encode(failed)
    if len(failure) > LARGEST_ERROR:
        return {"bad": f"the error of the result takes more than {LARGEST_ERROR:,} bytes"}
    return {
        "names": [found.id, found.fence, found.execution, found.node, found.worker],
        "output": output,
        "error": failure,
    }


def unpacked_result(reply: Mapping[str, Any]) -> Result:
    """Return what `read_result` would return, with the output as JSON; or raise what it would raise."""
    if "bad" in reply:
        raise BadResult(reply["bad"])
    task, fence, execution, node, worker = reply["names"]
    failure = msgspec.json.decode(reply["error"], type=Failure | None)
    output = Raw(reply["output"]) if failure is None else None
    return Result(task, fence, execution, node, output, failure, worker)


def _failure(error: Any) -> Failure:
    """Return the failure; the older form writes the error as a text."""
    if error is None or isinstance(error, str):
        return Failure((error or "the worker gave no reason")[:LONGEST_MESSAGE])
    given = msgspec.convert(error, _Error)
    message = (given.message or "the worker gave no reason")[:LONGEST_MESSAGE]
    return Failure(
        message, given.code or "NODE_FAILED", given.type or "Error", given.details, retryable=given.retryable
    )

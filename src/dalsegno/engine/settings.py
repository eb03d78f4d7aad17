"""Settings of one engine: limits and durations. The defaults suit a single machine."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

from dalsegno.core.graph.fail import MAX_LOSSES
from dalsegno.engine.upkeep.reconciler import Retention
from dalsegno.graph.documents.document import SCHEMA_STEPS, DocumentLimits
from dalsegno.lang import Limits
from dalsegno.ports.messages import Adopt

REMOTE_VARIABLE = "DALSEGNO_REMOTE"
"""Queues that are handed out to other programs also while no living worker names them, separated by commas."""


def remote_queues() -> tuple[str, ...]:
    """Return the queues named in the environment."""
    named = os.environ.get(REMOTE_VARIABLE, "").split(",")
    return tuple(dict.fromkeys(queue.strip() for queue in named if queue.strip()))


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Upper bounds on the cost of bad input. Exceeding one fails the node, the start or the deploy, and the error
    names the limit.
    """

    value_bytes: int = 64 * 1024 * 1024
    """Bytes of JSON of a start payload or of one output."""
    split_items: int = 1_000_000
    losses: int = MAX_LOSSES
    """How often a token may lose its worker before its node fails with ``WORKER_LOST``."""
    document: DocumentLimits = field(default_factory=DocumentLimits)
    expressions: Limits = field(default_factory=Limits)
    """Limits per evaluation of an expression, and for all expressions in the parameters of a node together."""
    key_instructions: int = 20_000
    """Instructions of the expression in ``concurrency.key`` of a workflow, which is evaluated when an execution is
    started.
    """
    step_instructions: int = 10_000_000
    """Instructions of all evaluations in one step: a list node evaluates its expression once per item."""
    step_bytes: int = 128 * 1024 * 1024
    """Bytes that all evaluations in one step may allocate."""
    scripts: Limits = field(default_factory=Limits)
    """Limits per turn of a script: from one await to the next."""
    child_depth: int = 100
    """Maximum nesting depth of child workflows that are waited for."""
    schema_steps: int = SCHEMA_STEPS
    """Steps of checking one value against a JSON Schema: subschemas, members, items and names visited."""
    snapshot_bytes: int = 4 * 1024 * 1024
    """Bytes of a suspended script. Values over 32 KiB in it are stored separately and do not count."""
    http_timeout: float = 300.0
    """Seconds that one run of an ``http`` node may take, including pages and redirects."""
    http_response_bytes: int = 64 * 1024 * 1024
    """Uncompressed bytes that one run of an ``http`` node may read, over all pages."""
    stored_bytes: int = 256 * 1024 * 1024
    """Bytes of one execution: its blobs, values over 1 KiB in its rows, and payloads of signals over 1 KiB."""
    waiting_signals: int = 10_000
    """Signals of one execution that were received and not yet consumed."""
    adopted_definitions: int = 10_000
    """Definitions in the store that messages of other programs carried, and the scripts inside them. A message with a
    further one is a dead letter.
    """


DEFAULT_LIMITS = EngineLimits()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 100
    """Steps in progress at the same time."""
    workflow_share: float = 0.8
    """Share of ``concurrency`` and of ``threads`` that the steps of one workflow may use; the rest is reserved for
    other workflows. The reserve is a whole number of slots: with the default share, fewer than five slots have none.
    """
    lease_seconds: float = 60.0
    """Seconds without a heartbeat after which a worker loses its leases."""
    grace: float = 10.0
    """Seconds that running steps may take to finish at shutdown before their leases are released."""
    reconcile_every: float = 15.0
    untouched_after: float = 300.0
    retention: Retention = None
    """Seconds after which ended executions are removed, by end state or for all states; None keeps them."""
    worker_name: str | None = None
    heavy_processes: int = 2
    """Subprocesses for steps that take long to compute or work on large values. 0: such steps run in the event loop
    and block everything else in this process.
    """
    heavy_memory: int = 320 * 1024 * 1024
    """Bytes of memory of each subprocess."""
    heavy_seconds: float = 30.0
    """Seconds of CPU time that one heavy step may use."""
    threads: int = 32
    """Threads for tasks that are ordinary functions."""
    limits: EngineLimits = DEFAULT_LIMITS
    unsealed_seconds: float = 90 * 86400.0
    """Seconds for which unsealed snapshots of Python workflows are accepted after sealing has begun in a store."""
    missing_tasks: Literal["wait", "fail"] = "wait"
    """What happens to a step whose task or node type no living worker has. ``wait``: it waits for a worker that has
    it, and is a dead letter meanwhile. ``fail``: it fails at once; for programs that are the only worker of their
    store.
    """
    adopt: Adopt | None = None
    """Which messages of other programs start executions or arrive in them. ``any``: also those that carry their own
    definition. ``known``: only with deployed definitions. ``off``: none. None: DALSEGNO_ADOPT of an application, else
    ``any``.
    """
    cancel_grace: float | None = None
    """Seconds for which a cancelled or timed-out script may clean up, unless its workflow sets its own limit. None:
    no limit.
    """

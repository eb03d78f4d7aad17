"""How one engine runs. Limits and durations have defaults that suit a single machine."""

from __future__ import annotations

from dataclasses import dataclass, field

from dalsegno.core.fail import MAX_LOSSES
from dalsegno.engine.retention import Retention
from dalsegno.graph.document import SCHEMA_STEPS, DocumentLimits
from dalsegno.lang import Limits


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What bad input may cost at most. Reaching one fails the node, the start or the deploy with its name."""

    value_bytes: int = 64 * 1024 * 1024
    """JSON of a start payload or of one output."""
    split_items: int = 1_000_000
    losses: int = MAX_LOSSES
    """How often a token may lose its worker before its node fails with ``WORKER_LOST``."""
    document: DocumentLimits = field(default_factory=DocumentLimits)
    expressions: Limits = field(default_factory=Limits)
    """Per evaluation of an expression, and for all expressions in the parameters of a node together."""
    key_instructions: int = 20_000
    """Of the expression in a workflow's ``concurrency.key``, which is evaluated when an execution is started."""
    step_instructions: int = 10_000_000
    """Of all evaluations in one step: a list node evaluates its expression once per item."""
    step_bytes: int = 128 * 1024 * 1024
    """What they may allocate."""
    scripts: Limits = field(default_factory=Limits)
    """Per turn of a script: from one await to the next."""
    child_depth: int = 100
    """How deep child workflows that are waited for may stand below each other."""
    schema_steps: int = SCHEMA_STEPS
    """Of checking one value against a JSON Schema: subschemas, members, items and names that are looked at."""
    snapshot_bytes: int = 4 * 1024 * 1024
    """Of a suspended script; values over 32 KiB in it are kept apart and do not count."""
    http_timeout: float = 300.0
    """Seconds that one run of an ``http`` node may take, pages and redirects included."""
    http_response_bytes: int = 64 * 1024 * 1024
    """Unpacked bytes that one run of an ``http`` node may read, over all pages."""
    stored_bytes: int = 256 * 1024 * 1024
    """Of one execution: its blobs, and values over 1 KiB in its rows."""


DEFAULT_LIMITS = EngineLimits()


@dataclass(frozen=True, slots=True)
class EngineSettings:
    queues: tuple[str, ...] = ("default",)
    concurrency: int = 100
    """Steps in progress at the same time."""
    workflow_share: float = 0.8
    """How much of ``concurrency`` and of ``threads`` the steps of one workflow may hold; the rest is for others. Held
    back is only a whole number of slots: none of fewer than five, with the default."""
    lease_seconds: float = 60.0
    """A worker that is silent for this long has lost its tokens."""
    grace: float = 10.0
    """How long running steps may take to finish at shutdown before they are handed back."""
    reconcile_every: float = 15.0
    untouched_after: float = 300.0
    retention: Retention = None
    """Seconds after which ended executions are removed, by the state they ended in or for all; None keeps them."""
    worker_name: str | None = None
    heavy_processes: int = 2
    """Processes in which steps are computed that take long or work on large values. 0: they are computed in the event
    loop, and everything else of this process waits for them."""
    heavy_memory: int = 320 * 1024 * 1024
    """Bytes of memory of each of them."""
    heavy_seconds: float = 30.0
    """Seconds of processor time that one heavy step may use."""
    threads: int = 32
    """Threads for tasks that are ordinary functions."""
    limits: EngineLimits = DEFAULT_LIMITS
    unsealed_seconds: float = 90 * 86400.0
    """How long snapshots of Python workflows without a seal are accepted after sealing has begun in a store."""
    cancel_grace: float | None = None
    """Seconds for which a cancelled or timed-out script may clean up, unless its workflow names its own. None: until it
    is done."""

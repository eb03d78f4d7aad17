"""A turn: one run of a machine from a stop to the next await that cannot be resolved yet, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from dalsegno.core.scripts.token_bodies import StoredInput
from dalsegno.lang.runtime.effects import Effect as Request
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.effect import Effect, ReplaceTags
from dalsegno.model.machine import CancelReason, Completion, Ranges, TakenSignal, Wake

TurnStatus = Literal["suspended", "completed", "failed"]


class Turn(Struct, gc=False):
    """The result of one run of a machine."""

    status: TurnStatus
    version: int
    """Version of the machine that ran."""
    read: int
    requests: Sequence[tuple[Request, bytes]] = ()
    """What the machine requested, with the encoded inputs if it has any."""
    snapshot: bytes = b""
    reachable: Ranges = ()
    wake: Wake = Wake()
    line: int = 0
    awaited: str = ""
    limits: tuple[float, ...] = ()
    """When the time limits around its await expire."""
    output: bytes = b"null"
    error: ErrorValue | None = None
    settled: Completion | None = None
    taken: tuple[TakenSignal, ...] = ()
    cancel: CancelReason = ""
    interrupted: bool = False
    weight: int = 0
    """Bytes that the machine takes while it waits: its snapshot and its blobs."""
    blobs: frozenset[str] = frozenset()
    """Blob names in the snapshot."""
    cut_short: bool = False
    """It failed without its handlers of errors: by a limit, or because its state cannot be stored."""
    unfinished: bytes | None = None
    """For a clean-up that failed, or that was not reached: what is kept of it."""
    grace_ends: float | None = None
    """When a clean-up is cut off."""
    carried: Sequence[Effect] = ()
    """What it waits for because another execution did."""
    tags: ReplaceTags | None = None
    """Changed tags of the execution."""
    input_bytes: int = 0
    """Bytes of the inputs of what it requested."""
    stored: Mapping[str, StoredInput] | None = None
    """Inputs of tasks that are in blobs, by the ids of their promises."""
    dropped: tuple[str, ...] = ()
    """Tokens of timers that nothing waits for any more."""

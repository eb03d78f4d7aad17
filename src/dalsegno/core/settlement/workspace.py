"""The workspace that the rules need from a store: rows by id, and a place to put what changed.

It also owns two rules: when a scope is closed, and the event of a token that is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from dalsegno.core.settlement.rows import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
)
from dalsegno.model.effect import AppendChunks, PublishValues, ReplaceTags, TakeMessage
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import scope_chain
from dalsegno.model.machine import Completion
from dalsegno.model.token import TokenKind
from dalsegno.model.transition import ReadyToken

Kept = tuple[int, bool]
"""The number of a stored completion, and True for a success."""


class Workspace(Protocol):
    """Rows of one batch: the same object on every access; ``save_…`` marks one as new or changed."""

    def execution(self, execution: str) -> ExecutionRow | None: ...

    def token(self, execution: str, token: str) -> TokenRow | None: ...

    def scope(self, execution: str, scope: str) -> ScopeRow | None: ...

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None: ...

    def gate(self, execution: str, gate: str) -> GateRow | None: ...

    def has_slot(self, execution: str, barrier: str, slot: int) -> bool: ...

    def has_left(self, execution: str, scope: str) -> bool: ...

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        """Return tokens that are neither consumed nor cancelled, in spawn order, of one scope or the whole
        execution.
        """

    def waiting_tokens(self, execution: str, awaits: str) -> Iterable[TokenRow]:
        """Return the tokens parked for this, those parked first before the others."""

    def machine(self, execution: str) -> MachineRow | None: ...

    def completions(self, execution: str) -> Mapping[int, Kept]:
        """Return the stored completions by promise."""

    def signal(self, execution: str, signal: str) -> SignalRow | None:
        """Return a signal, taken or not."""

    def next_signal(self, execution: str, names: Collection[str]) -> SignalRow | None:
        """Return the oldest signal of one of these names that is not taken."""

    def free_slot(self, key: str) -> Iterable[ReadyToken]:
        """Mark that a slot of this limit key may be free, so that claims look at its lines again.

        Return the first tokens of these lines, if they are stored.
        """

    def release_slots(self, execution: str) -> Collection[str]:
        """Free the slots of an execution that ends; return their limit keys."""

    def hold_slot(self, execution: str, key: str) -> None:
        """Let the execution itself hold a slot from now on to its end."""

    def create_execution(self, row: ExecutionRow, new: NewExecution) -> None: ...

    def replace_input(self, execution: str, data: bytes) -> None: ...

    def change_version(self, execution: str, version: int, definition: str) -> None:
        """Write another version of its workflow into the record of an execution."""

    def replace_tags(self, execution: str, change: ReplaceTags) -> None: ...

    def publish(self, execution: str, change: PublishValues, at: float) -> None: ...

    def append_chunks(self, execution: str, change: AppendChunks, at: float) -> None: ...

    def save_execution(self, row: ExecutionRow) -> None: ...

    def add_token(self, row: TokenRow) -> None: ...

    def save_token(self, row: TokenRow) -> None: ...

    def rewrite_token(self, row: TokenRow) -> None:
        """Save a stored token with every column that may have changed, its fence and its digest included."""

    def move_token(self, row: TokenRow, execution: str) -> None:
        """Move an unfinished token to another execution, and save it."""

    def save_machine(self, row: MachineRow) -> None: ...

    def add_completion(self, execution: str, completion: Completion) -> None: ...

    def remove_completions(self, execution: str, promises: Collection[int]) -> None: ...

    def save_signal(self, row: SignalRow) -> None: ...

    def save_scope(self, row: ScopeRow) -> None: ...

    def save_barrier(self, row: BarrierRow) -> None: ...

    def save_gate(self, row: GateRow) -> None: ...

    def add_slot(self, execution: str, barrier: str, slot: int, live: bool, data: bytes | None) -> None: ...

    def add_left(self, execution: str, scope: str, key: str, data: bytes) -> None: ...

    def add_output(self, execution: str, output: str, data: bytes) -> None: ...

    def add_outbox(self, execution: str, entry: str, topic: str, data: bytes) -> None: ...

    def is_owed(self, entry: str) -> bool:
        """Return True if this entry is in the outbox."""

    def take_order(self, entry: str) -> None: ...

    def add_publication(self, execution: str, owner: str | None, until: float | None) -> None:
        """Add the mark of how far the execution's statuses are published: not at all. ``owner`` has claimed it."""

    def add_event(
        self, execution: str, seq: int, event: NewEvent, arrived: int | None, expected: int | None
    ) -> None: ...


def is_closed(rows: Workspace, execution: str, scope: str) -> bool:
    """Return True if the scope, a scope around it, or the barrier any of them feeds has ended (L5)."""
    for path in scope_chain(scope):
        row = rows.scope(execution, path)
        if row is None or row.ended:
            return True
        barrier = rows.barrier(execution, row.barrier)
        if barrier is None or barrier.state != "waiting":
            return True
    return False


def is_over(rows: Workspace, execution: str, message: TakeMessage) -> bool:
    """Return True if the scope of a message, or one around it, has ended; those that do not exist have not."""
    for name in message.barriers:
        barrier = rows.barrier(execution, name)
        if barrier is not None and barrier.state != "waiting":
            return True
    scopes = (rows.scope(execution, path) for path in scope_chain(message.scope))
    return any(scope is not None and scope.ended for scope in scopes)


def cancelled_event(
    kind: TokenKind, live: bool, node: str, scope: str, token: str, now: float
) -> NewEvent | None:
    """Return the event for a cancelled node or task that was running or waiting; None for bookkeeping."""
    event_kind: EventKind
    if kind == "task":
        event_kind = "TaskCancelled"
    elif live and kind in ("node", "join"):
        event_kind = "NodeCancelled"
    else:
        return None
    return NewEvent(event_kind, node, scope, now, token=token)

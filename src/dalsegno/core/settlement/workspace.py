"""What the rules ask of a store: rows by id, and a place to put what changed."""

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
from dalsegno.model.effect import ReplaceTags
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.machine import Completion
from dalsegno.model.transition import ReadyToken

Kept = tuple[int, bool]
"""The number of a stored completion, and whether it is a success."""


class Workspace(Protocol):
    """Rows are the same object whenever asked for within one batch; ``save_…`` marks one as new or changed."""

    def execution(self, execution: str) -> ExecutionRow | None: ...

    def token(self, execution: str, token: str) -> TokenRow | None: ...

    def scope(self, execution: str, scope: str) -> ScopeRow | None: ...

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None: ...

    def gate(self, execution: str, gate: str) -> GateRow | None: ...

    def has_slot(self, execution: str, barrier: str, slot: int) -> bool: ...

    def has_left(self, execution: str, scope: str) -> bool: ...

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        """Tokens that are neither consumed nor cancelled, of one scope or of the whole execution, in the order in
        which they were spawned."""

    def waiting_tokens(self, execution: str, awaits: str) -> Iterable[TokenRow]:
        """Tokens parked for this, those that were parked first before the others."""

    def machine(self, execution: str) -> MachineRow | None: ...

    def completions(self, execution: str) -> Mapping[int, Kept]:
        """The stored completions by promise."""

    def signal(self, execution: str, signal: str) -> SignalRow | None:
        """Also one that was taken."""

    def next_signal(self, execution: str, names: Collection[str]) -> SignalRow | None:
        """The oldest signal of one of these names that nobody has taken."""

    def free_slot(self, key: str) -> Iterable[ReadyToken]:
        """A slot of this limit key may be free: claims look at its lines again. The tokens that stand first in them, as
        far as they are stored."""

    def let_go(self, execution: str) -> Collection[str]:
        """The limit keys of which an execution that ends holds slots, by its leases or by itself."""

    def hold_slot(self, execution: str, key: str) -> None:
        """The execution itself holds a slot from now on to its end."""

    def create_execution(self, row: ExecutionRow, new: NewExecution) -> None: ...

    def replace_input(self, execution: str, data: bytes) -> None: ...

    def replace_tags(self, execution: str, change: ReplaceTags) -> None: ...

    def save_execution(self, row: ExecutionRow) -> None: ...

    def add_token(self, row: TokenRow) -> None: ...

    def save_token(self, row: TokenRow) -> None: ...

    def move_token(self, row: TokenRow, execution: str) -> None:
        """Gives an unfinished token to another execution, and saves it."""

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
        """Whether this entry is in the outbox."""

    def take_order(self, entry: str) -> None: ...

    def add_event(
        self, execution: str, seq: int, event: NewEvent, arrived: int | None, expected: int | None
    ) -> None: ...

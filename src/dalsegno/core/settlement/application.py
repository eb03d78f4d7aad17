"""One transition that is being applied to the rows of its execution."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.settlement.claims import resume_execution
from dalsegno.core.settlement.limits import stored_allowance
from dalsegno.core.settlement.rows import ExecutionRow, MachineRow, TokenRow, ready_token
from dalsegno.core.settlement.workspace import Workspace
from dalsegno.model.barrier import GateSpec
from dalsegno.model.effect import EndIfLast, WriteOutbox
from dalsegno.model.event import NewEvent, Numbered
from dalsegno.model.token import NewToken, TokenState
from dalsegno.model.transition import ReadyToken, Transition


class Application(Struct, eq=False):
    """One transition being applied: counters are summed here and written once at the end."""

    transition: Transition
    execution: ExecutionRow
    rows: Workspace
    now: float
    earliest: float = 0.0
    latest: float = 0.0
    """Events are dated between the previous commit and this one, regardless of the clocks of processes."""
    counts: dict[str, int] = {}
    gates: dict[str, GateSpec] = {}
    endings: list[EndIfLast] = []
    events: list[Numbered] = []
    kept: list[str] = []
    ready: list[ReadyToken] = []
    next_due: float | None = None
    machine: MachineRow | None = None
    """The script's machine, once an effect concerns it."""
    resumed: str | None = None
    """The resume token that this transition consumes."""
    spawned_resume: str | None = None
    owes: bool = False
    wake: bool = False
    """The machine is to be resumed, regardless of its wake condition."""

    def __post_init__(self) -> None:
        before = self.execution.touched_at if self.execution.seq else 0.0
        self.earliest, self.latest = before, max(before, self.now)

    def record(self, event: NewEvent, arrived: int | None = None, expected: int | None = None) -> None:
        execution = self.execution
        execution.seq = seq = execution.seq + 1
        at = event.at
        if at < self.earliest or at > self.latest:
            at = max(min(at, self.latest), self.earliest)
            event = replace(event, at=at)
        self.earliest = at
        self.rows.add_event(execution.id, seq, event, arrived, expected)
        self.events.append((event, seq, arrived, expected))

    def machine_row(self) -> MachineRow | None:
        """Return the machine, which is judged and saved once all effects are applied."""
        if self.machine is None:
            self.machine = self.rows.machine(self.execution.id)
        return self.machine

    def count(self, scope: str, delta: int) -> None:
        """Add to a live counter. The root's is in memory; those of items are summed, so that each row is fetched
        once.
        """
        if not scope:
            self.execution.live += delta
        else:
            self.counts[scope] = self.counts.get(scope, 0) + delta

    def write_counts(self) -> None:
        for scope, delta in self.counts.items():
            row = self.rows.scope(self.execution.id, scope) if delta else None
            if row is not None:
                row.live += delta
                self.rows.save_scope(row)
        self.counts.clear()

    def live(self, scope: str) -> int:
        if not scope:
            return self.execution.live
        row = self.rows.scope(self.execution.id, scope)
        return row.live if row is not None else 0

    def park(self, token: TokenRow) -> None:
        """Park the token until its due time; if that has passed, make it ready."""
        token.state = "parked"
        if token.due is not None:
            self.due(token.due)

    def due(self, due: float) -> None:
        if self.next_due is None or due < self.next_due:
            self.next_due = due

    def write_outbox(self, order: WriteOutbox) -> None:
        self.owes = True
        self.rows.add_outbox(self.execution.id, order.id, order.topic, order.data)

    def make_ready(self, token: TokenRow) -> None:
        """Make the token ready, or held while the execution is paused."""
        token.ready_at = self.now
        if self.execution.state == "PAUSED":
            token.state = "held"
            return
        token.state = "ready"
        self.ready.append(ready_token(token))

    def end_pause(self, event: NewEvent) -> None:
        self.record(event)
        for token in resume_execution(self.execution, self.rows, self.now):
            if token.state == "ready":
                self.ready.append(ready_token(token))
            elif token.due is not None:
                self.due(token.due)

    def spawn(self, new: NewToken) -> TokenRow:
        """Add a new token, which counts for its scope from now on. One with a limit key must queue for its slot."""
        execution = self.execution
        row = token_row(execution.id, new, "ready", self.now)
        if not new.priority and new.kind in ("task", "timer"):
            row.priority = execution.priority
        if new.live:
            self.count(new.scope, 1)
        if new.due is not None:
            self.park(row)
        elif new.id in self.transition.keep and new.limit_key is None and execution.state == "RUNNING":
            row.state, row.owner, row.fence = "leased", self.transition.worker, 1
            self.kept.append(new.id)
        else:
            self.make_ready(row)
        self.rows.add_token(row)
        return row

    # -- slots of limit keys ----------------------------------------------------------------------------------

    def give_up_slot(self, key: str | None) -> None:
        """Free the slot of a token that is no longer leased: the next in its lines is worth announcing."""
        if key is not None:
            self.ready.extend(self.rows.free_slot(key))

    def keep_slot(self, key: str | None) -> None:
        """Pass the slot of the token that begins an execution to the execution."""
        if key is not None:
            self.rows.hold_slot(self.execution.id, key)

    def give_up_all_slots(self) -> None:
        """Free the slots that the ending execution and its tokens held."""
        for key in self.rows.release_slots(self.execution.id):
            self.give_up_slot(key)


def token_row(execution: str, token: NewToken, state: TokenState, now: float) -> TokenRow:
    return TokenRow(
        execution,
        token.id,
        token.scope,
        token.kind,
        token.node,
        token.data,
        token.queue,
        token.priority,
        token.limit_key,
        token.live,
        state,
        token.due,
        ready_at=now,
        allowance=stored_allowance(token.allowance) if token.allowance is not None else None,
    )

"""MemoryLedger: the reference implementation of the ledger's contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop
from typing import Any

from msgspec.structs import replace

from dalsegno.adapters.excluding_claims import lease_in_turn
from dalsegno.adapters.memory.limit_queues import LimitQueueCursor, PlainTokens, may_claim, next_opening
from dalsegno.adapters.memory.store import MemoryExecution, MemoryStore, execution_view, outline
from dalsegno.core.settlement import (
    TokenRow,
    barrier_view,
    cancelled_event,
    claimable,
    lease_of,
    machine_view,
    ready_token,
    release_row,
    settle,
    token_view,
    wake_row,
)
from dalsegno.core.settlement.claims import SUSPECT_LOSSES, Choice, Suspicion
from dalsegno.core.settlement.limits import bound_of, room
from dalsegno.core.settlement.workspace import is_closed
from dalsegno.model.barrier import BarrierView, LeftView, SlotView, open_slots
from dalsegno.model.execution import ENDED
from dalsegno.model.inspection import Inspection, Untouched
from dalsegno.model.limits import UNBOUNDED
from dalsegno.model.machine import MachineView, PostedView
from dalsegno.model.token import UNFINISHED, Lease, may_run_long, not_among, with_handed_over
from dalsegno.model.transition import Outcome, ReadyToken, Transition
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import (
    MOST_BARRIERS,
    MOST_OPEN_SLOTS,
    NO_RECORDS,
    SLOTS_PAGE,
    Examination,
    Examined,
    OutboxEntry,
    QueueView,
    RecordsAsked,
    Woken,
    WorkerView,
)
from dalsegno.ports.records import Record


class MemoryLedger:
    """One process, one event loop: nothing here awaits, so every call is atomic."""

    def __init__(self, clock: Clock, store: MemoryStore | None = None) -> None:
        self.clock = clock
        self.store = store if store is not None else MemoryStore()

    def now(self) -> float:
        return self.clock.now()

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        now = self.now()
        return [settle(transition, self.store, now) for transition in batch]

    # -- leases -----------------------------------------------------------------------------------------------

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        holds_one = any(token.losses >= SUSPECT_LOSSES for token in self._leased_by(worker))
        suspicion = Suspicion(allowed=not holds_one)
        now, limits = self.now(), self.store.limits
        plain = PlainTokens(self.store, queues, suspicion)
        first = plain.first(limit)
        lines = [LimitQueueCursor(line, self.store, now, suspicion) for line in limits.of(queues)]
        leases = [self._give(worker, token) for token in Choice(first, lines).take(limit)]
        plain.put_back()
        opens = [line.line.opens_at for line in lines if line.line.opens_at is not None]
        if opens:
            limits.tell(min(opens))
        return leases

    def ready_queues(self) -> tuple[str, ...]:
        """Return the queues of all ready tokens, with a limit key or without."""
        return tuple({*self.store.ready, *(line.queue for line in self.store.limits.lines.values())})

    def may_claim(self) -> bool:
        """Return True if a claim for all queues would find something now."""
        return may_claim(self.store, self.now())

    def next_opening(self) -> float | None:
        """Return when a rate lets the next ready token start; None if no rate stops one."""
        return next_opening(self.store, self.now())

    async def claim_others(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        pass_over: Collection[str],
        *,
        only_long: bool = True,
    ) -> list[Lease]:
        ready = [
            token
            for token in self._tokens(lambda token: token.state == "ready" and token.queue in queues)
            if token.losses < SUSPECT_LOSSES and not self._is_passed_over(token, pass_over, only_long)
        ]
        ready.sort(key=lambda token: (-token.priority, token.ready_at))
        return await lease_in_turn(self.lease, worker, [ready_token(token) for token in ready], limit)

    def _is_passed_over(self, token: TokenRow, workflows: Collection[str], only_long: bool) -> bool:
        execution = self.store.executions[token.execution]
        if execution.new.workflow not in workflows:
            return False
        if not only_long:
            return True
        if not may_run_long(token.kind, execution.row.kind):
            return False
        return token.kind != "resume" or execution.machine is None or not execution.machine.cancel

    def _leased_by(self, worker: str) -> Iterator[TokenRow]:
        return self._tokens(lambda token: token.state == "leased" and token.owner == worker)

    def _tokens(self, wanted: Callable[[TokenRow], bool]) -> Iterator[TokenRow]:
        for execution in self.store.executions.values():
            if not execution.swept:
                yield from (token for token in execution.tokens.values() if wanted(token))

    def _give(self, worker: str, token: TokenRow) -> Lease:
        token.state = "leased"
        token.owner = worker
        token.fence += 1
        execution = self.store.executions[token.execution].row
        return lease_of(token, execution)

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        leases = []
        for ready in tokens:
            token = self.store.token(ready.execution, ready.token)
            free = token is not None and token.state == "ready" and claimable(token, self.store)
            if token is not None and free and (token.limit_key is None or self._has_room(token)):
                leases.append(self._give(worker, token))
        return leases

    def _has_room(self, token: TokenRow) -> bool:
        """Return True if its limit lets it start; it then uses a slot."""
        limits, key, now = self.store.limits, token.limit_key or "", self.now()
        bound = bound_of(token.allowance, limits.rules.get(key, UNBOUNDED))
        free = room(bound, limits.in_use(key, self.store), limits.nth_start(key), now).free
        if free:
            limits.take(token, bound, now)
        return free

    async def obsolete(self, leases: Sequence[Lease]) -> list[Lease]:
        every = [lease for lease in with_handed_over(leases) if self._is_leased(lease)]
        valid = {(lease.execution, lease.token, lease.fence) for lease in every}
        return not_among(leases, valid)

    def _is_leased(self, lease: Lease) -> bool:
        execution = self.store.execution(lease.execution)
        token = self.store.token(lease.execution, lease.token)
        return (
            execution is not None
            and token is not None
            and (token.state, token.fence) == ("leased", lease.fence)
            and execution.state not in ENDED
            and not is_closed(self.store, lease.execution, lease.scope)
        )

    async def held_by(self, worker: str) -> list[Lease]:
        found = ((token, self.store.execution(token.execution)) for token in self._leased_by(worker))
        held = [(token, execution) for token, execution in found if execution is not None]
        running = [lease_of(token, execution) for token, execution in held if execution.state not in ENDED]
        return sorted(running, key=lambda lease: lease.ready_at)

    async def release(self, worker: str, leases: Sequence[Lease], *, lost: bool = False) -> None:
        for lease in leases:
            token = self.store.token(lease.execution, lease.token)
            held = token is not None and token.state == "leased" and token.owner == worker
            if token is not None and held and token.fence == lease.fence:
                self._take_back(token, lost=lost)

    def _take_back(self, token: TokenRow, *, lost: bool) -> ReadyToken:
        release_row(token, lost, self.store, self.now())
        return ready_token(token)

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        self.store.workers[worker] = (self.now() + lease_seconds, info)

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        now = self.now()
        workers = self.store.workers
        gone = {worker for worker, (expires, _) in workers.items() if expires < now} | set(dead)
        for worker in gone:
            workers.pop(worker, None)
        # A worker may have died before its first heartbeat, so an unknown owner counts as dead.
        lost = list(self._tokens(lambda token: token.state == "leased" and token.owner not in workers))
        return tuple(self._take_back(token, lost=True) for token in lost)

    # -- time -------------------------------------------------------------------------------------------------

    async def wake(self, limit: int = 500) -> Woken:
        now = self.now()
        ready: list[ReadyToken] = []
        parked = self.store.parked
        while parked and len(ready) < limit:
            due, _, execution, name = parked[0]
            token = self.store.token(execution, name)
            stale = token is None or token.state != "parked" or token.due != due
            if not stale and due > now:
                break
            heappop(parked)
            if token is not None and not stale and wake_row(token, self.store, now):
                ready.append(ready_token(token))
        ready += self._opened(now)
        dues = [parked[0][0]] if parked else []
        dues += [line.opens_at for line in self.store.limits.lines.values() if line.opens_at is not None]
        return Woken(tuple(ready), min(dues, default=None))

    def _opened(self, now: float) -> list[ReadyToken]:
        """Return the first token of each line that a rate had stopped until now."""
        opened = []
        for line in self.store.limits.lines.values():
            if line.opens_at is not None and line.opens_at <= now:
                line.opens_at = None
                head = line.head(self.store)
                opened += [ready_token(head)] if head is not None else []
        return opened

    # -- reading ----------------------------------------------------------------------------------------------

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        found = self._find(execution)
        slots = found.slots.get(barrier, {}) if found is not None else {}
        numbers = sorted(slot for slot in slots if slot > after)
        return [SlotView(slot, *slots[slot]) for slot in numbers[:limit]]

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        found = self._find(execution)
        left = found.left.get(scope, {}) if found is not None else {}
        return [LeftView(key, left[key]) for key in sorted(left)]

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        found = self._find(execution)
        row = found.gates.get(gate) if found is not None else None
        return tuple(sorted(row.used)) if row is not None else ()

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        found = self._find(execution)
        return {name: found.outputs[name] for name in ids if name in found.outputs} if found else {}

    async def machine(self, execution: str) -> MachineView | None:
        found = self._find(execution)
        if found is None or found.machine is None:
            return None
        completions = sorted(found.inbox.values(), key=lambda completion: completion.number)
        signals = [signal for signal in found.mailbox.values() if not signal.taken]
        return machine_view(found.machine, completions, signals)

    async def waiting_signals(self, execution: str, most: int) -> int:
        found = self._find(execution)
        return min(sum(not each.taken for each in found.mailbox.values()), most) if found is not None else 0

    async def posted(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PostedView]:
        found: dict[tuple[str, str], PostedView] = {}
        for execution, name in asked:
            stored = self._find(execution)
            row = stored.mailbox.get(name) if stored is not None else None
            if row is not None:
                data = row.data if row.taken else b""
                found[execution, name] = PostedView(name, row.name, row.number, row.taken, data)
        return found

    async def unanswered(self, execution: str, prefix: str, limit: int) -> list[PostedView]:
        stored = self._find(execution)
        rows = sorted(stored.mailbox.values(), key=lambda row: row.number) if stored is not None else []
        found = [row for row in rows if row.id.startswith(prefix) and not (row.taken and row.data)]
        return [PostedView(row.id, row.name, row.number, row.taken, b"") for row in found[:limit]]

    def _find(self, execution: str) -> MemoryExecution | None:
        return self.store.executions.get(execution)

    async def inspect(self, execution: str) -> Inspection | None:
        found = self._find(execution)
        if found is None:
            return None
        tokens = tuple(token_view(token) for token in found.tokens.values() if token.state in UNFINISHED)
        barriers = tuple(barrier_view(barrier) for barrier in found.barriers.values())
        waiting = {(token.limit_key, token.allowance) for token in tokens if token.state == "ready"}
        now, limits = self.now(), self.store.limits
        views = [limits.view(key, own, self.store, now) for key, own in waiting if key is not None]
        return Inspection(execution_view(found), tokens, barriers, tuple(views))

    async def visit(self, execution: str, prefix: str) -> BarrierView | None:
        found = self._find(execution)
        stored = sorted(found.barriers.items()) if found is not None else []
        visits = [row for name, row in stored if name.startswith(prefix) and name != prefix]
        visits.sort(key=lambda row: row.state != "waiting")
        return barrier_view(visits[0]) if visits else None

    async def examine(self, executions: Sequence[str], records: RecordsAsked = NO_RECORDS) -> Examined:
        found = []
        for execution in executions:
            inspection = await self.inspect(execution)
            if inspection is not None:
                inspection = replace(inspection, execution=outline(self.store.executions[execution]))
                slots, found_records = (
                    self._open_slots(execution),
                    tuple(self._records_of(inspection, records)),
                )
                found.append(Examination(inspection, await self.machine(execution), slots, found_records))
        return Examined(tuple(found), tuple(await self.workers()) if found else ())

    def _open_slots(self, execution: str) -> dict[str, tuple[int, ...]]:
        found = self.store.executions[execution]
        waiting = [barrier for barrier in found.barriers.values() if barrier.state == "waiting"]
        return {
            barrier.id: open_slots(sorted(found.slots.get(barrier.id, ())), barrier.expected, MOST_OPEN_SLOTS)
            for barrier in waiting[:MOST_BARRIERS]
        }

    def _records_of(self, inspection: Inspection, asked: RecordsAsked) -> Iterator[Record]:
        queues = {token.queue for token in inspection.tokens if token.state == "ready"}
        names = [(asked.of_tokens, f"{asked.token_prefix}{token.id}") for token in inspection.tokens]
        names += [(asked.of_queues, queue) for queue in sorted(queues)]
        stored = self.store.records
        yield from (stored[name] for name in names if name in stored)
        if queues:
            yield from (record for record in stored.values() if record.kind == asked.where_ready)

    async def untouched(self, before: float, after: str, limit: int) -> Untouched:
        rows = [found.row for name, found in sorted(self.store.executions.items()) if name > after][:limit]
        names = tuple(row.id for row in rows if row.state not in ENDED and row.touched_at < before)
        return Untouched(names, rows[-1].id if len(rows) == limit else "")

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        found = self._find(execution)
        tokens = found.tokens.values() if found is not None else ()
        return tuple(ready_token(token) for token in tokens if token.state == "ready")

    async def workers(self) -> list[WorkerView]:
        return [
            WorkerView(worker, expires, sum(1 for _ in self._leased_by(worker)), info)
            for worker, (expires, info) in sorted(self.store.workers.items())
        ]

    async def known_workers(self) -> list[str]:
        return sorted(self.store.workers)

    async def queues(self) -> list[QueueView]:
        found: dict[str, list[TokenRow]] = {}
        for token in self._tokens(lambda token: token.state in ("ready", "leased")):
            found.setdefault(token.queue, []).append(token)
        return [_queue_view(queue, found[queue]) for queue in sorted(found)]

    # -- closing ------------------------------------------------------------------------------------------------

    async def sweep(self, limit: int = 500) -> int:
        gone = 0
        for execution in self.store.executions.values():
            if execution.swept or execution.row.state not in ENDED:
                continue
            gone += self._sweep(execution, limit - gone)
            if gone >= limit:
                break
        return gone

    def _sweep(self, execution: MemoryExecution, limit: int) -> int:
        tokens = list(execution.tokens.values())[:limit]
        for token in tokens:
            if token.state in UNFINISHED:
                self._record_cancelled(execution, token)
            del execution.tokens[token.id]
        gone = len(tokens)
        kept = {} if execution.row.state == "COMPLETED" else {"": execution.left.pop("", {})}
        others: tuple[dict[Any, Any], ...] = (
            execution.scopes,
            execution.barriers,
            execution.gates,
            execution.slots,
            execution.left,
            execution.inbox,
            execution.mailbox,
        )
        for rows in others:
            for key in list(rows)[: limit - gone]:
                del rows[key]
                gone += 1
        execution.swept = not execution.tokens and not any(others)
        if execution.swept:
            execution.machine = None
            execution.kept.clear()
        execution.left.update(kept)
        return gone

    def _record_cancelled(self, execution: MemoryExecution, token: TokenRow) -> None:
        at = execution.row.touched_at
        event = cancelled_event(token.kind, token.live, token.node, token.scope, token.id, at)
        if event is None:
            return
        execution.row.seq += 1
        self.store.add_event(execution.row.id, execution.row.seq, event, None, None)

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        return list(self.store.outbox.values())[:limit]

    async def delivered(self, ids: Sequence[str]) -> None:
        for name in ids:
            self.store.outbox.pop(name, None)

    async def close(self) -> None:
        """Do nothing: memory needs no closing."""


def _queue_view(queue: str, tokens: Sequence[TokenRow]) -> QueueView:
    waiting = [token.ready_at for token in tokens if token.state == "ready"]
    return QueueView(queue, len(waiting), len(tokens) - len(waiting), min(waiting, default=None))

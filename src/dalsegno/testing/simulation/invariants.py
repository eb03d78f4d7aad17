"""Invariants of every commit and of the end of every run: L1, L2, L3, L5, L7, L8 and the counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from dalsegno.adapters.memory import MemoryLedger, MemoryStore
from dalsegno.adapters.memory.store import MemoryExecution, execution_view
from dalsegno.core.settlement.workspace import is_closed
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import AlreadyApplied, Applied, Stale, Transition
from dalsegno.testing.histories import Asked, History, Rows, SignalFact, TokenFact, problems

MAX_FINDINGS = 20


class Watch:
    """Checks the store after every commit. Findings are messages that begin with the broken guarantee."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.findings: list[str] = []
        self._applied: list[Transition] = []
        self._consumed: set[tuple[str, str]] = set()
        self._slots: dict[tuple[str, str, int], tuple[bool, bytes | None]] = {}
        self._barriers: dict[tuple[str, str], str] = {}

    def _find(self, sentence: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(sentence)

    # -- before every commit --------------------------------------------------------------------------------------

    def before_commit(self, transition: Transition) -> str | None:
        """Return why this transition must be refused (L4, L5), or None."""
        token = self.store.token(transition.execution, transition.token or "")
        if token is None:
            return None
        execution = self.store.executions[transition.execution].row
        if token.state != "leased" or token.fence != transition.fence:
            return f"L4: a commit with fence {transition.fence} was applied to a token {token.state} with {token.fence}"
        if execution.state in ENDED or is_closed(self.store, execution.id, token.scope):
            return f"L5: a commit of token {token.id} was applied after the end of its scope"
        return None

    # -- after every commit ---------------------------------------------------------------------------------------

    def after_commit(self, transition: Transition, applied: Applied) -> None:
        self._applied.append(transition)
        self._check_once(transition)
        execution = self.store.executions[transition.execution]
        if execution.row.state in ENDED and applied.ended is None:
            self._find(f"L5: a transition of token {transition.token} was applied after the end")
        self._check_counters(execution)
        self._check_barriers(execution)

    def _check_once(self, transition: Transition) -> None:
        if transition.token is None or transition.park is not None:
            return
        key = (transition.execution, transition.token)
        if key in self._consumed:
            self._find(f"L1: token {transition.token} was consumed twice")
        self._consumed.add(key)

    def _check_counters(self, execution: MemoryExecution) -> None:
        if execution.row.state in ENDED:
            return
        counted: Counter[str] = Counter()
        for token in execution.tokens.values():
            if token.live and token.state in UNFINISHED:
                counted[token.scope] += 1
        if counted[""] != execution.row.live:
            self._find(
                f"counters: the root counts {execution.row.live} live tokens, but there are {counted['']}"
            )
        for scope in execution.scopes.values():
            if scope.live != counted[scope.scope] and not is_closed(
                self.store, execution.row.id, scope.scope
            ):
                self._find(
                    f"counters: scope {scope.scope} counts {scope.live}, but there are {counted[scope.scope]}"
                )
        for gate in execution.gates.values():
            if gate.count < 0:
                self._find(f"counters: gate {gate.id} counts {gate.count}")

    def _check_barriers(self, execution: MemoryExecution) -> None:
        for barrier in execution.barriers.values():
            key = (execution.row.id, barrier.id)
            before = self._barriers.get(key, "waiting")
            if before not in ("waiting", barrier.state):
                self._find(f"L7: barrier {barrier.id} went from {before} to {barrier.state}")
            self._barriers[key] = barrier.state
            slots = execution.slots.get(barrier.id, {})
            if len(slots) != barrier.resolved:
                self._find(f"L7: barrier {barrier.id} counts {barrier.resolved} slots, but has {len(slots)}")
            if barrier.state in ("open", "dead") and barrier.mode == "all" and len(slots) < barrier.expected:
                self._find(f"L7: barrier {barrier.id} opened with {len(slots)} of {barrier.expected} slots")
            for slot, resolution in slots.items():
                if self._slots.setdefault((*key, slot), resolution) != resolution:
                    self._find(f"L7: slot {slot} of barrier {barrier.id} changed")

    # -- at the end -----------------------------------------------------------------------------------------------

    def at_the_end(self, asked: Mapping[str, Asked]) -> None:
        """``asked``: the requests confirmed to callers, by execution."""
        views = {name: execution_view(found) for name, found in self.store.executions.items()}
        for name, execution in self.store.executions.items():
            self._check_history(execution, views, asked.get(name, Asked()), stored_rows(execution))
            self._check_timeouts(execution)

    def _check_history(
        self,
        execution: MemoryExecution,
        views: Mapping[str, ExecutionView],
        asked: Asked,
        rows: Rows | None = None,
    ) -> None:
        view = views[execution.row.id]
        history = History(view, execution.events, rows, asked, views, settled=not self.store.outbox)
        for problem in problems(history):
            self._find(f"L8: {problem}")

    def _check_timeouts(self, execution: MemoryExecution) -> None:
        """A barrier that timed out fails its node; partial arrivals must not count as complete."""
        completed = {event.token for event in execution.events if event.kind == "NodeCompleted"}
        for barrier in execution.barriers.values():
            if barrier.state == "timeout" and barrier.join in completed:
                self._find(f"L7: barrier {barrier.id} gave up, but its node completed")

    async def send_again(self, ledger: MemoryLedger) -> None:
        """L2, L3: send everything that was applied once more; it must change nothing."""
        before = _picture(self.store)
        for transition in self._applied:
            [outcome] = await MemoryLedger.commit(ledger, [transition])
            if not isinstance(outcome, AlreadyApplied | Stale):
                self._find(f"L3: sent again, a transition of token {transition.token} was {outcome}")
        if _picture(self.store) != before:
            self._find("L3: sending applied transitions again changed something")

    def after_the_end(self, ended: ExecutionView, later: ExecutionView, asked: Mapping[str, Asked]) -> None:
        """L5: later input changed nothing but the record of what was cancelled."""
        facts = [
            (view.state, view.output, view.context, view.error, view.ended_at) for view in (ended, later)
        ]
        if facts[0] != facts[1]:
            self._find(f"L5: the execution changed after its end: {facts}")
        views = {name: execution_view(found) for name, found in self.store.executions.items()}
        for name, execution in self.store.executions.items():
            self._check_history(execution, views, asked.get(name, Asked()))


def stored_rows(execution: MemoryExecution) -> Rows:
    return Rows(
        tuple(
            TokenFact(token.id, token.kind, token.node, token.scope, token.state, token.live, token.attempt)
            for token in execution.tokens.values()
        ),
        tuple(SignalFact(each.id, each.name, each.number) for each in execution.mailbox.values()),
        execution.machine.version if execution.machine is not None else None,
    )


def _picture(store: MemoryStore) -> Any:
    return [
        (
            execution.row.state,
            execution.row.seq,
            execution.row.live,
            [
                (token.id, token.state, token.fence, token.attempt, token.due)
                for token in execution.tokens.values()
            ],
            [(scope.scope, scope.live, scope.ended) for scope in execution.scopes.values()],
            [
                (barrier.id, barrier.state, barrier.resolved, barrier.live)
                for barrier in execution.barriers.values()
            ],
            [(gate.id, gate.count, gate.used) for gate in execution.gates.values()],
            {scope: sorted(left) for scope, left in execution.left.items()},
        )
        for execution in store.executions.values()
    ]

"""Invariants of scripts after every commit: one resume at a time, one result per promise, no lost completion."""

from __future__ import annotations

from dalsegno.adapters.memory import MemoryStore
from dalsegno.adapters.memory.store import MemoryExecution
from dalsegno.model.execution import ENDED
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import Transition

MAX_FINDINGS = 20


class MachineWatch:
    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.findings: list[str] = []
        self._versions: dict[str, int] = {}
        self._results: dict[tuple[str, int], bytes] = {}

    def _find(self, sentence: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(sentence)

    def after_commit(self, transition: Transition) -> None:
        execution = self.store.executions[transition.execution]
        if execution.machine is None or execution.row.state in ENDED:
            return
        self._check_resumes(execution)
        self._check_version(execution)
        self._check_results(execution)

    def _check_resumes(self, execution: MemoryExecution) -> None:
        pending = [
            token
            for token in execution.tokens.values()
            if token.kind == "resume" and token.state in UNFINISHED
        ]
        machine = execution.machine
        if len(pending) > 1:
            self._find(f"resume: {len(pending)} resumes of {execution.row.id} are pending")
        if machine is not None and machine.resuming != bool(pending):
            self._find(
                f"resume: {execution.row.id} believes resuming={machine.resuming}, but {len(pending)} are pending"
            )

    def _check_version(self, execution: MemoryExecution) -> None:
        machine = execution.machine
        if machine is not None:
            before = self._versions.get(execution.row.id, 0)
            if machine.version < before or machine.version > before + 1:
                self._find(f"version: {execution.row.id} went from {before} to {machine.version}")
            self._versions[execution.row.id] = machine.version

    def _check_results(self, execution: MemoryExecution) -> None:
        """A promise has one result, which never changes."""
        for promise, completion in execution.inbox.items():
            key = (execution.row.id, promise)
            if self._results.setdefault(key, completion.data) != completion.data:
                self._find(f"promise: p{promise} of {execution.row.id} was settled twice, differently")

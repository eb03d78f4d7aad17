"""Deliberate crashes: the commit at which a worker dies, and the ledger that causes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from dalsegno.adapters.memory import MemoryLedger
from dalsegno.model.effect import FinishExecution, SaveMachine
from dalsegno.model.transition import Applied, Outcome, Transition
from dalsegno.testing.kit.worker_run import WorkerRun

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker dies just before or just after its ``number``-th commit (the first is 1).

    * *Before*: the result of the step is lost and the step runs again: its task runs twice, with the same idempotency
      key.
    * *After*: the step is recorded, but no following step has started yet.
    """

    when: When
    number: int
    place: str = ""
    """The position of the workflow, for messages."""

    def __str__(self) -> str:
        at = f" ({self.place})" if self.place else ""
        return f"{self.when} commit {self.number}{at}"


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed step, as far as tests need it."""

    number: int
    transition: Transition

    @property
    def line(self) -> int:
        """Return the line of the script at which it stopped or called the task; 0 without a line."""
        saved = self._saved()
        if saved is not None and not self.ends:
            return saved.line
        data = [msgspec.json.decode(event.data) for event in self.transition.events if event.data]
        return next((record["line"] for record in data if "line" in record), 0)

    @property
    def suspends(self) -> bool:
        """Return True if a script has reached an await with this step."""
        return self._saved() is not None and not self.ends

    @property
    def ends(self) -> bool:
        return any(isinstance(effect, FinishExecution) for effect in self.transition.effects)

    def _saved(self) -> SaveMachine | None:
        found = [effect for effect in self.transition.effects if isinstance(effect, SaveMachine)]
        return found[0] if found else None


class CrashPlan:
    """The crashes to cause, by commit. All lives of one system share it; each crash happens once."""

    def __init__(self) -> None:
        self.committed: list[Committed] = []
        self.every: int | None = None
        """Crash after every n-th commit, and whenever a script has reached an await."""
        self.happened: list[tuple[Crash, Transition]] = []
        self._planned: list[Crash] = []
        self._base = 0

    def arm(self, crash: Crash) -> None:
        """Add a crash. Its commits are counted from now."""
        self._base = len(self.committed)
        self._planned.append(crash)

    @property
    def pending(self) -> tuple[Crash, ...]:
        return tuple(self._planned)

    def disarm(self) -> None:
        self._planned.clear()

    @property
    def commits(self) -> int:
        """Return the commits since the last crash was armed, or from the beginning."""
        return len(self.committed) - self._base

    def crashes_before(self, transition: Transition) -> bool:
        return self._crashes_now("before", self.commits + 1, transition)

    def crashes_after(self, transition: Transition) -> bool:
        committed = Committed(len(self.committed) + 1, transition)
        self.committed.append(committed)
        if self.every is not None and (committed.suspends or committed.number % self.every == 0):
            self.happened.append((Crash("after", self.commits), transition))
            return True
        return self._crashes_now("after", self.commits, transition)

    def _crashes_now(self, when: When, number: int, transition: Transition) -> bool:
        for crash in self._planned:
            if (crash.when, crash.number) == (when, number):
                self._planned.remove(crash)
                self.happened.append((crash, transition))
                return True
        return False


class CrashingLedger:
    """The ledger to which one run of the worker commits, one transition at a time."""

    def __init__(
        self, truth: MemoryLedger, run: WorkerRun, plan: CrashPlan, crash: Callable[[WorkerRun], None]
    ) -> None:
        self._truth = truth
        self._run = run
        self._plan = plan
        self._crash = crash

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for transition in batch:
            if transition.token is not None and self._plan.crashes_before(transition):
                await self._die()
            [outcome] = await self._truth.commit([transition])
            outcomes.append(outcome)
            counts = transition.token is not None and isinstance(outcome, Applied)
            if counts and self._plan.crashes_after(transition):
                await self._die()
        return outcomes

    async def _die(self) -> None:
        self._crash(self._run)
        await self._run.stop_here()

    def __getattr__(self, name: str) -> object:
        return getattr(self._truth, name)

"""Counters of a running server. Counting is cheap: additions to plain numbers, formatted as text only on request."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from dalsegno.engine.engine import Engine
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.model.effect import CreateExecution
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition

if TYPE_CHECKING:
    from dalsegno.engine.tracing import RemoteRun

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0)

WORKFLOWS = 200
"""Workflows with counters of their own; further ones are counted as ``other``."""
REMEMBERED = 10_000
OTHER = "other"


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulative buckets that Prometheus expects."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            so_far += count
            found.append(("+Inf" if bound is None else f"{bound:g}", float(so_far)))
        return found


class Meter:
    """Counters of the engine's events, as its observer, and of the server's replies."""

    def __init__(self) -> None:
        self.steps: Counter[str] = Counter()
        self.step_seconds = Histogram(SECONDS)
        self.commit_seconds = Histogram(SECONDS)
        self.batches = Histogram(SIZES)
        self.started: Counter[str] = Counter()
        self.ended: Counter[tuple[str, str]] = Counter()
        self.remote_tasks: Counter[tuple[str, str]] = Counter()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.request_seconds = Histogram(SECONDS)
        self.engine: Engine | None = None
        self._names: OrderedDict[str, str] = OrderedDict()
        """Workflow names of executions that were started in this process and have not ended in it."""
        self._known: set[str] = set()

    def watch(self, engine: Engine) -> None:
        self.engine = engine
        engine.observe(self)

    # -- the engine -------------------------------------------------------------------------------------------

    def began(self, lease: Lease) -> None:
        """Not counted here: a step is counted when it ends."""

    def stepped(self, lease: Lease, seconds: float) -> None:
        self.steps[lease.kind] += 1
        self.step_seconds.add(seconds)

    def committed(self, transitions: int, seconds: float) -> None:
        self.commit_seconds.add(seconds)
        self.batches.add(transitions)

    def applied(self, transition: Transition, applied: Applied) -> None:
        if transition.token is None:
            for effect in transition.effects:
                if type(effect) is CreateExecution:
                    self._start(effect.execution.id, effect.execution.workflow)
        if applied.ended is not None:
            name = self._names.pop(transition.execution, None) or self._name_of(transition)
            self.ended[self.label(name), applied.ended] += 1

    def _start(self, execution: str, workflow: str) -> None:
        self.started[self.label(workflow)] += 1
        self._names[execution] = workflow
        if len(self._names) > REMEMBERED:
            self._names.popitem(last=False)

    def _name_of(self, transition: Transition) -> str:
        """Return the workflow of a transition, from the definition of its last step if a worker of this process ran
        it."""
        worker = self.engine.worker if self.engine is not None else None
        lease = worker.running.get(transition.token or "") if worker is not None else None
        if self.engine is None or lease is None:
            return OTHER
        definitions = self.engine.definitions
        found = definitions.cached(lease.definition) or definitions.cached_script(lease.definition)
        if found is None:
            return lease.node if lease.execution_kind == "task" else OTHER
        return found.definition.name if isinstance(found, ScriptProgram) else found.plan.name

    def label(self, workflow: str) -> str:
        """Return the label of a workflow. The number of labels is bounded: user-defined names must not create
        unbounded series."""
        if workflow in self._known:
            return workflow
        if len(self._known) >= WORKFLOWS:
            return OTHER
        self._known.add(workflow)
        return workflow

    def remote(self, held: RemoteRun, failure: Failure | None, now: float) -> None:
        del now
        self.remote_tasks[self.label(held.task), "failed" if failure is not None else "completed"] += 1

    # -- the server -------------------------------------------------------------------------------------------

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests[method, route, status] += 1
        self.request_seconds.add(seconds)

"""Metrics in the Prometheus format, built on request from the process's counters and one query of the store."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.engine.engine import Engine
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.worker.directory import seen_among
from dalsegno.errors import OperatorError
from dalsegno.model.effect import CreateExecution
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.ledger import QueueView, WorkerView
from dalsegno.ports.stack import Measured, Server, Stack
from dalsegno.server.http.request import PREFIX
from dalsegno.server.operations import store_probe
from dalsegno.server.operations.store_probe import StoreProbe
from dalsegno.version import __version__

if TYPE_CHECKING:
    from dalsegno.engine.tracing import RemoteRun
    from dalsegno.server.streams.execution_feed import Broadcast

PATIENCE = 5.0
"""Seconds in which the store must answer. Longer than for health: the query is larger, and scrapers wait longer."""
LONGEST_OUTBOX = 10_000
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
SERVER_ERROR = 500
"""Status counted for a request that fails before it has replied, which is a bug."""
CLIENT_CLOSED = 499
"""Status counted for callers that disconnect before their request has arrived, or send no HTTP, as in nginx."""
QUEUES = 200
"""Queues with a series of their own: the longest ones."""


class Metered(Protocol):
    """A process that provides counters: a server's services, or the health port of a worker or scheduler."""

    @property
    def engine(self) -> Engine: ...

    @property
    def meter(self) -> Meter: ...

    @property
    def broadcast(self) -> Broadcast | None: ...


@dataclass(frozen=True, slots=True)
class Look:
    """The state of the store at one moment."""

    queues: Sequence[QueueView]
    workers: Sequence[WorkerView]
    owed: int
    now: float


async def exposition(services: Metered) -> bytes:
    stack = services.engine.stack
    look, measured = await asyncio.gather(_look_in_time(stack), _measure(stack.servers))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(services, look, measured))
    return generate_latest(registry)


async def _measure(servers: Sequence[Server]) -> dict[str, Measured]:
    """Return the figures of the servers that are connected and answer in time."""
    return {server.name: await _figures(server) for server in servers if server.connected()}


async def _figures(server: Server) -> Measured:
    try:
        async with asyncio.timeout(PATIENCE):
            return await server.measure()
    except (OperatorError, TimeoutError):
        return Measured()


async def end_look(stack: Stack) -> None:
    await _looks.end(stack, store_probe.END_SECONDS)


async def _look_in_time(stack: Stack) -> Look | None:
    """Query the store; None if it does not answer in time. The process's own metrics are returned in any case."""
    try:
        return await _looks.ask(stack, PATIENCE)
    except OperatorError:
        return None


async def _look(stack: Stack) -> Look:
    """Query the store. It only reads, so a standby can answer too."""
    ledger = stack.ledger
    queues, workers = await ledger.queues(), await ledger.workers()
    return Look(queues, workers, len(await ledger.outbox(LONGEST_OUTBOX)), ledger.now())


_looks = StoreProbe("dalsegno-metrics", _look)


class _Collector:
    def __init__(self, services: Metered, look: Look | None, measured: Mapping[str, Measured]) -> None:
        self.services = services
        self.look = look
        self.measured = measured
        """Measurements by the name of the server."""

    def collect(self) -> Iterator[Metric]:
        meter, engine = self.services.meter, self.services.engine
        yield InfoMetricFamily("dalsegno", "This process.", {"version": __version__})
        yield _counter(
            "executions_started", "Executions started by this process.", ("workflow",), meter.started
        )
        yield _counter(
            "executions_ended", "Executions ended by this process.", ("workflow", "state"), meter.ended
        )
        yield _counter("steps", "Steps run by this process's worker.", ("kind",), meter.steps)
        yield _counter(
            "remote_tasks", "Tasks answered by remote workers.", ("task", "outcome"), meter.remote_tasks
        )
        if engine.distribution is not None:
            results, lost = engine.distribution.results(), engine.distribution.lost()
            yield _counter("task_results", "Results that came over a broker.", ("broker", "verdict"), results)
            yield _single("tasks_lost", "Tasks handed out again over a broker: their worker was dead.", lost)
        if engine.publishing is not None:
            about = "Executions whose statuses or completion this process has to publish."
            yield _gauge("executions_unpublished", about, engine.publishing.waiting)
        yield _histogram("step_seconds", "A step, with its commit.", meter.step_seconds)
        yield _histogram("commit_seconds", "A batch written to the store.", meter.commit_seconds)
        yield _histogram("commit_transitions", "Transitions in a batch.", meter.batches)
        yield _counter("repairs", "Repairs by the reconciler.", ("kind",), engine.reconciler.repairs)
        lost = engine.reconciler.repairs["expired-lease"]
        yield _single("leases_lost", "Leases released from dead or silent workers.", lost)
        yield _single("timers_fired", "Timers fired by this process.", engine.timers.fired)
        yield _gauge("timer_lag_seconds", "Delay of the next timer that is overdue.", engine.timers.lag())
        yield _gauge("executions_stuck", "Executions that cannot continue.", len(engine.reconciler.stuck))
        yield _gauge(
            "steps_running", "Steps in progress here.", len(engine.worker.running) if engine.worker else 0
        )
        yield _single(
            "outbox_delivered", "Outbox entries delivered by this process.", engine.outbox.delivered
        )
        broadcast = self.services.broadcast
        yield _gauge("streams_open", "Event streams.", broadcast.open if broadcast is not None else 0)
        yield from self._http(meter)
        yield _gauge("store_up", "Whether the store answered.", 1 if self.look is not None else 0)
        if self.look is not None:
            yield from self._store(self.look)
        yield from self._servers(engine.stack.servers)

    def _servers(self, servers: Sequence[Server]) -> Iterator[Metric]:
        if not servers:
            return
        up = GaugeMetricFamily(
            "dalsegno_server_up", "Whether this process is connected to the server.", labels=("server",)
        )
        for server in servers:
            up.add_metric((server.name,), 1 if server.connected() else 0)
        yield up
        yield from self._backlogs()
        figures = GaugeMetricFamily(
            "dalsegno_server_figure", "What the server reports, by name.", labels=("server", "figure")
        )
        for name, measured in self.measured.items():
            for figure, value in measured.figures.items():
                figures.add_metric((name, figure), value)
        yield figures

    def _backlogs(self) -> Iterator[Metric]:
        labels = ("server", "place", "kind")
        messages = GaugeMetricFamily(
            "dalsegno_broker_messages", "Messages that wait in a queue or stream.", labels=labels
        )
        waiting = GaugeMetricFamily(
            "dalsegno_broker_waiting_seconds",
            "Age of the oldest message there, if it is known.",
            labels=labels,
        )
        for name, measured in self.measured.items():
            for each in measured.backlogs:
                messages.add_metric((name, each.place, each.kind), each.messages)
                if each.waiting is not None:
                    waiting.add_metric((name, each.place, each.kind), each.waiting)
        yield messages
        yield waiting
        unconfirmed = GaugeMetricFamily(
            "dalsegno_broker_unconfirmed", "Messages sent and not confirmed yet.", labels=("server",)
        )
        for name, measured in self.measured.items():
            if measured.unconfirmed is not None:
                unconfirmed.add_metric((name,), measured.unconfirmed)
        yield unconfirmed

    def _http(self, meter: Meter) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "dalsegno_http_requests", "Requests by route and status.", labels=("method", "route", "status")
        )
        for (method, route, status), count in meter.requests.items():
            requests.add_metric((method, route, str(status)), count)
        yield requests
        yield _histogram(
            "http_request_seconds", "From request to the end of its reply.", meter.request_seconds
        )

    def _store(self, look: Look) -> Iterator[Metric]:
        longest = sorted(look.queues, key=lambda view: -(view.ready + view.running))[:QUEUES]
        yield _by_queue(
            "queue_ready", "Tokens that wait for a worker.", [(v.queue, v.ready) for v in longest]
        )
        yield _by_queue("queue_running", "Tokens in progress.", [(v.queue, v.running) for v in longest])
        ages = [(v.queue, max(look.now - v.oldest, 0.0) if v.oldest is not None else 0.0) for v in longest]
        yield _by_queue("queue_oldest_seconds", "Age of the oldest waiting token.", ages)
        workers_seen = seen_among(look.workers, look.now)
        dead = sum(each.state == "dead" for each in workers_seen)
        workers = GaugeMetricFamily("dalsegno_workers", "Workers of all processes.", labels=("state",))
        workers.add_metric(("alive",), len(workers_seen) - dead)
        workers.add_metric(("dead",), dead)
        yield workers
        yield _gauge(
            "outbox_entries", f"Entries to deliver; at most {LONGEST_OUTBOX} are counted.", look.owed
        )


def _single(name: str, about: str, count: float) -> Metric:
    return CounterMetricFamily(f"dalsegno_{name}", about, value=count)


def _counter(name: str, about: str, labels: Sequence[str], counts: dict[object, int] | object) -> Metric:
    family = CounterMetricFamily(f"dalsegno_{name}", about, labels=labels)
    for key, count in _items(counts):
        family.add_metric(key if isinstance(key, tuple) else (str(key),), count)
    return family


def _items(counts: object) -> Iterable[tuple[object, int]]:
    return list(counts.items()) if isinstance(counts, dict) else ()


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"dalsegno_{name}", about, value=value)


def _by_queue(name: str, about: str, values: Sequence[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"dalsegno_{name}", about, labels=("queue",))
    for queue, value in values:
        family.add_metric((queue,), value)
    return family


def _histogram(name: str, about: str, counts: Histogram) -> Metric:
    return HistogramMetricFamily(f"dalsegno_{name}", about, buckets=counts.buckets(), sum_value=counts.total)


class Counted:
    """Middleware that counts every reply by route and status; disconnected callers count as `CLIENT_CLOSED`."""

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self.app = app
        self.meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
            status = status or CLIENT_CLOSED
        finally:
            method = scope["method"] if scope["method"] in METHODS else "OTHER"
            self.meter.answered(method, _route(scope), status or SERVER_ERROR, time.perf_counter() - began)


def _route(scope: Scope) -> str:
    """Return the path pattern of the route, never the path itself, whose number of values is unbounded."""
    pattern: str | None = getattr(scope.get("route"), "path", None)
    if pattern is None:
        return "none"
    below = scope["path"].startswith(f"{PREFIX}/") and not pattern.startswith(f"{PREFIX}/")
    return PREFIX + pattern if below else pattern


# -- counters: additions to plain numbers, formatted as text only on request ---------------------------------


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

"""Runs separate from the test's own: the same workflow undisturbed and with crashes, on separate stores, for
comparison.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from dalsegno.app import App
from dalsegno.core.values import decode_value
from dalsegno.event_loop_host import Host
from dalsegno.handle import Handle
from dalsegno.lang.python import DurableTask, DurableWorkflow
from dalsegno.model.execution import ExecutionView
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.kit.crashes import Committed, Crash
from dalsegno.testing.kit.diagnosis import Stuck
from dalsegno.testing.kit.mocking import KitTasks, shown
from dalsegno.testing.kit.system import System, SystemParts

MOST_STOPS = 200
"""A workflow with more awaits is stopped at this number of them, evenly spread."""
MOST_ENDS = 50
"""In the run with many crashes a workflow is stopped at each await, and at this number of task completions."""
KEY = "check"
"""Runs with the same key have the same ids, and therefore their tasks the same idempotency keys."""

Target = str | DurableTask[..., Any] | DurableWorkflow[..., Any]


@dataclasses.dataclass(frozen=True, slots=True)
class ResumabilityCheck:
    """A workflow and its input, which can be run any number of times."""

    main: System
    app: App
    target: Callable[[], Awaitable[Target]]
    args: tuple[Any, ...]
    fields: Mapping[str, Any]
    signals: Sequence[tuple[str, Any]]
    parts: Callable[[], SystemParts]

    async def run(self, crash: Crash | None = None, *, crash_every: int | None = None) -> Run:
        target = await self.target()
        parts = _without_loss_limit(self.parts())
        system = System(parts, FakeClock(self.main.clock.now()), skips=True, patience=self.main.time.patience)
        system.ignores_verdicts = True
        host = Host(system.open)
        await host.open_here()
        _copy_definitions(self.main, system)
        try:
            with self.app.guest_of(host):
                return await self._observe(system, target, crash, crash_every)
        finally:
            await host.aclose()

    async def _observe(
        self, system: System, target: Target, crash: Crash | None, crash_every: int | None
    ) -> Run:
        if crash is not None:
            system.plan.arm(crash)
        system.plan.every = crash_every
        starter = self.app.with_options(idempotency_key=KEY)
        handle = await starter.astart(target, *self.args, **self.fields)
        for name, payload in self.signals:
            await handle.asignal(name, payload)
        view = await self._end_of(system, handle)
        await system.time.run_out()
        system.raise_verdict()
        tasks = system.parts.services["tasks"]
        assert isinstance(tasks, KitTasks)
        return Run(
            view,
            {call.key: f"{call.task}({shown(call.input)})" for call in tasks.calls},
            system.plan.committed,
            [await place_of(system, committed) for committed in system.plan.committed],
            system.store.executions[handle.id].row.kind == "graph",
        )

    async def _end_of(self, system: System, handle: Handle[Any]) -> ExecutionView:
        try:
            return await handle.await_()
        except Stuck as error:
            advice = "" if self.signals else "; if it waits for a signal, give it: signals={'name': payload}"
            stopped = [await place_of(system, Committed(0, each)) for _, each in system.plan.happened[-1:]]
            after = f" after a stop at {stopped[0]}" if stopped else ""
            raise Stuck(f"{error}\n  (in a run separate from the test{after}{advice})") from None


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """The result of one run."""

    view: ExecutionView
    calls: Mapping[str, str]
    """Calls of tasks, by idempotency key."""
    committed: Sequence[Committed]
    places: Sequence[str]
    is_graph: bool

    @property
    def outcome(self) -> tuple[str, Any]:
        view = self.view
        if view.error is not None:
            error = msgspec.json.decode(view.error)
            return view.state, {name: error.get(name) for name in ("code", "message", "type", "details")}
        return view.state, decode_value(view.output) if view.output is not None else None

    def stops(self) -> list[Committed]:
        """Return the commits after which the workflow was suspended, or between two nodes."""
        return [each for each in self.committed if not each.ends and (each.suspends or self.is_graph)]


def _without_loss_limit(parts: SystemParts) -> SystemParts:
    """Raise the limit of losses: the worker dies often here, and no task must be blamed."""
    limits = dataclasses.replace(parts.settings.limits, losses=1_000_000)
    return dataclasses.replace(parts, settings=dataclasses.replace(parts.settings, limits=limits))


def _copy_definitions(source: System, target: System) -> None:
    target.store.definitions.update(source.store.definitions)
    target.store.current.update(source.store.current)
    target.store.aliases.update(source.store.aliases)
    target.files.update(source.files)


async def place_of(system: System, committed: Committed) -> str:
    """Return the position of a workflow after a commit: ``file:line``, or the node of a graph."""
    transition = committed.transition
    execution = system.store.executions.get(transition.execution)
    words = [f"{event.kind} {event.node}".strip() for event in transition.events[:1]]
    if execution is not None and committed.line:
        words.insert(0, await system.explainer.place(execution.row.definition, committed.line))
    return ", ".join(word for word in words if word)


async def every_crash(check: ResumabilityCheck) -> list[Crash]:
    run = await check.run()
    points = []
    for committed, place in zip(run.committed, run.places, strict=True):
        points += [Crash("before", committed.number, place), Crash("after", committed.number, place)]
    return points


async def check_resumable(check: ResumabilityCheck) -> None:
    undisturbed = await check.run()
    stops = undisturbed.stops()
    chosen = stops if len(stops) <= MOST_STOPS else stops[:: -(-len(stops) // MOST_STOPS)]
    for stop in chosen:
        run = await check.run(Crash("after", stop.number))
        where = f"at stop {stops.index(stop) + 1} of {len(stops)} ({undisturbed.places[stop.number - 1]})"
        _compare(undisturbed, run, where)
    every = max(1, -(-len(undisturbed.committed) // MOST_ENDS))
    _compare(undisturbed, await check.run(crash_every=every), f"at each of its {len(stops)} stops")


def _compare(undisturbed: Run, run: Run, where: str) -> None:
    differences = _result_differs(undisturbed, run) + _calls_differ(undisturbed, run)
    if differences:
        workflow = undisturbed.view.workflow
        lines = [f"'{workflow}' does not give the same result when it is stopped {where} and loaded again:"]
        lines += [f"  {line}" for line in differences]
        raise AssertionError("\n".join(lines))


def _result_differs(undisturbed: Run, run: Run) -> list[str]:
    (state, result), (other_state, other_result) = undisturbed.outcome, run.outcome
    if (state, result) == (other_state, other_result):
        return []
    return [
        f"result undisturbed: {state} {shown(result)}",
        f"result resumed:     {other_state} {shown(other_result)}",
    ]


def _calls_differ(undisturbed: Run, run: Run) -> list[str]:
    lines = []
    for key in dict.fromkeys((*undisturbed.calls, *run.calls)):
        one, other = undisturbed.calls.get(key), run.calls.get(key)
        if one is None:
            lines.append(f"task called only when resumed: {other}")
        elif other is None:
            lines.append(f"task called only when undisturbed: {one}")
        elif one != other:
            lines.append(f"task called with other input: {one} undisturbed, {other} resumed")
    return lines[:20]

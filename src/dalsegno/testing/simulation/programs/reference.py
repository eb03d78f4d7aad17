"""Prediction of a program's outcome by an interpreter that shares no code with the machine.

Without an ``order`` it predicts only what does not depend on timing, and raises `OrderMattersError` elsewhere. With
the order in which a run settled its promises, it predicts that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from dalsegno.lang.runtime.effects import promise_id
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.testing.simulation.programs.program import (
    MAIN,
    Attempt,
    Await,
    Begin,
    Body,
    Child,
    Choose,
    Detach,
    Fan,
    Fire,
    Given,
    Group,
    GroupKind,
    Inner,
    Program,
    Promise,
    Repeat,
    Saved,
    Signal,
    Statement,
    Throw,
    Timer,
    Work,
)
from dalsegno.testing.simulation.programs.scenario import work_result
from dalsegno.testing.simulation.reference import OrderMattersError, UnforeseeableError

Order = Mapping[str, Mapping[int | tuple[str, int], int]]
"""Execution → promise number, or signal name and number → position in time. A missing entry was not settled."""


class Thrown(Exception):
    """An error of the program, identified by ``code``."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of a promise, and its position in time.

    None is unknown: timers, for example, count as fired once their time is over.
    """

    value: Any
    error: str | None
    place: int | None


@dataclass(slots=True)
class Prediction:
    """The predicted ``result`` or ``error`` and the tasks of the execution and its children, by key.

    ``tasks`` must run. ``possible`` may run, because children are cancelled with a parent that fails.
    """

    result: Any = None
    error: str | None = None
    tasks: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)
    cancellable: set[str] = field(default_factory=set)
    """Children of a parent that fails. The point of their interruption, and their later tasks, are not predicted."""


class _Leaf:
    def __init__(
        self,
        number: int | tuple[str, int],
        value: Any,
        error: str | None,
        *,
        timer: bool = False,
    ) -> None:
        self.number = number
        self.value = value
        self.error = error
        self.timer = timer


class _Join:
    def __init__(self, kind: GroupKind, items: list[_Leaf | _Join]) -> None:
        self.kind = kind
        self.items = items


class _Reading:
    """The interpretation of one workflow, from its first statement to its end."""

    def __init__(
        self,
        program: Program,
        execution: str,
        order: Order | None,
        signals: Mapping[str, list[Any]],
    ) -> None:
        self.program = program
        self.execution = execution
        self.order = order
        self.signals = {name: enumerate(payloads) for name, payloads in signals.items()}
        self.tasks: set[str] = set()
        self.of_children: set[str] = set()
        self.possible: set[str] = set()
        self.children: set[str] = set()
        self.cancellable: set[str] = set()
        self.seen: list[Any] = []
        self.variables: dict[str, _Leaf | _Join] = {}
        self._numbers = count()

    def run(self, body: Body) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Await(promise):
                self.seen.append(self._awaited(self._make(promise)))
            case Begin(variable, promise):
                self.variables[variable] = self._make(promise)
            case Fire(promise):
                self._make(promise)
            case Detach(workflow):
                self._child(workflow, len(self.seen), detached=True)
            case Repeat(times, body):
                for _ in range(times):
                    self.run(body)
            case Choose(even, odd):
                self.run(even if len(self.seen) % 2 == 0 else odd)
            case Attempt():
                self._attempt(statement)
            case Throw(site):
                raise Thrown(f"T{site}")
            case Inner(body):
                self.run(body)

    def _attempt(self, statement: Attempt) -> None:
        """Without Python's own ``finally``, so that an unpredictable outcome leaves at once."""
        thrown = self._thrown_by(statement.body)
        if thrown is not None and statement.caught is not None:
            self.seen.append(thrown.code)
            thrown = self._thrown_by(statement.caught)
        if statement.lastly is not None:
            self.seen.append("finally")
            self.run(statement.lastly)
        if thrown is not None:
            raise thrown

    def _thrown_by(self, body: Body) -> Thrown | None:
        try:
            self.run(body)
        except Thrown as error:
            return error
        return None

    # -- promises -------------------------------------------------------------------------------------------------

    def _make(self, promise: Promise, index: int = 0) -> _Leaf | _Join:
        match promise:
            case Work():
                return self._work(promise, index)
            case Timer():
                return _Leaf(next(self._numbers), None, None, timer=True)
            case Signal(name, None):
                return self._signal(name)
            case Signal():
                raise UnforeseeableError("a signal that may come too late")
            case Child(workflow, given):
                return self._child(workflow, self._given(given, index))
            case Saved(variable):
                return self.variables[variable]
            case Fan(kind, times, work):
                return _Join(kind, [self._work(work, number) for number in range(times)])
            case Group(kind, items, cancel):
                if cancel:
                    raise UnforeseeableError("losers that are cancelled")
                return _Join(kind, [self._make(item, index) for item in items])

    def _signal(self, name: str) -> _Leaf:
        for number, payload in self.signals.get(name, ()):
            next(self._numbers)
            return _Leaf((name, number), payload, None)
        raise UnforeseeableError("a signal that nobody sends")

    def _work(self, work: Work, index: int) -> _Leaf:
        number = next(self._numbers)
        self.tasks.add(promise_token_id(self.execution, number))
        if not work.succeeds:
            return _Leaf(number, None, f"W{work.site}")
        return _Leaf(number, work_result(work.site, self._given(work.given, index), work.pad), None)

    def _child(self, workflow: str, given: Any, *, detached: bool = False) -> _Leaf:
        """Predict a child. A detached one outlives its parent in any case."""
        number = next(self._numbers)
        child = child_execution_id(self.execution, promise_id(number))
        predicted = _predict(self.program, workflow, child, self.order, {}, given)
        certain = self.tasks if detached else self.of_children
        certain |= predicted.tasks
        self.possible |= predicted.possible
        self.cancellable |= predicted.cancellable
        if not detached:
            self.children.add(child)
        return _Leaf(number, predicted.result, predicted.error)

    def _given(self, given: Given, index: int) -> Any:
        match given:
            case "count":
                return len(self.seen)
            case "last":
                return self.seen[-1] if self.seen else 0
            case "index":
                return index

    def _awaited(self, promise: _Leaf | _Join) -> Any:
        settled = self._settled(promise)
        if settled is None:
            raise UnforeseeableError("something was awaited that was not settled")
        if settled.error is not None:
            raise Thrown(settled.error)
        return settled.value

    def _settled(self, promise: _Leaf | _Join) -> Settled | None:
        if isinstance(promise, _Join):
            return self._joined(promise)
        place = None
        if self.order is not None and not promise.timer:
            place = self.order.get(self.execution, {}).get(promise.number)
            if place is None:
                return None
        return Settled(promise.value, promise.error, place)

    def _joined(self, join: _Join) -> Settled | None:
        items = [self._settled(item) for item in join.items]
        there = [item for item in items if item is not None]
        good = [item for item in there if item.error is None]
        bad = [item for item in there if item.error is not None]
        match join.kind:
            case "all":
                if bad:
                    return _first(bad)
                return Settled([item.value for item in good], None, _last(good)) if _are_all(items) else None
            case "any":
                if good:
                    return _first(good)
                return Settled(None, "AggregateError", _last(bad)) if _are_all(items) else None
            case "race":
                return _first(there) if there else None
            case "all_settled":
                return (
                    Settled([_settled_value(item) for item in there], None, _last(there))
                    if _are_all(items)
                    else None
                )


def _are_all(items: list[Settled | None]) -> bool:
    return all(item is not None for item in items)


def _first(items: list[Settled]) -> Settled:
    if len(items) == 1:
        return items[0]
    places = [item.place for item in items]
    if all((item.value, item.error) == (items[0].value, items[0].error) for item in items):
        return Settled(
            items[0].value, items[0].error, None if None in places else min(places, key=lambda p: p or 0)
        )
    if None in places:
        raise OrderMattersError("several things may come first")
    return min(items, key=lambda item: item.place or 0)


def _last(items: list[Settled]) -> int | None:
    places = [item.place for item in items]
    return None if None in places or not places else max(place for place in places if place is not None)


def _settled_value(item: Settled) -> Any:
    if item.error is not None:
        return {"status": "rejected", "reason": item.error}
    return {"status": "fulfilled", "value": item.value}


def _predict(
    program: Program,
    workflow: str,
    execution: str,
    order: Order | None,
    signals: Mapping[str, list[Any]],
    given: Any,
) -> Prediction:
    reading = _Reading(program, execution, order, signals)
    if workflow != MAIN:
        reading.seen.append(given)
    try:
        reading.run(program.workflows[workflow])
    except Thrown as error:
        possible = reading.possible | reading.of_children
        return Prediction(None, error.code, reading.tasks, possible, reading.cancellable | reading.children)
    tasks = reading.tasks | reading.of_children
    return Prediction(reading.seen, None, tasks, reading.possible, reading.cancellable)


def predict(
    program: Program, execution: str, signals: Mapping[str, list[Any]], order: Order | None = None
) -> Prediction:
    """Predict an execution; raise OrderMattersError or UnforeseeableError if that is impossible."""
    return _predict(program, MAIN, execution, order, signals, None)

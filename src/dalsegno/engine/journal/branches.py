"""Branches before they start: what an execution starts from that goes on from an earlier turn of another one.

What had been called by that turn and has completed since is known. What later turns called runs again. What the other
execution failed by is asked again, as in a retry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dalsegno.core.graph.step_input import Result
from dalsegno.core.scripts.branch import Branch, answered, asked_later, no_variable
from dalsegno.core.scripts.journal import Entry, machine_of
from dalsegno.core.scripts.kept import KeptMachine, decode_kept
from dalsegno.core.scripts.token_bodies import failed, succeeded
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.journal.turn_history import TurnHistory
from dalsegno.engine.scripts.programs import AbsentProgram, ScriptProgram
from dalsegno.engine.scripts.retry import LOST, error_from
from dalsegno.engine.secrets.snapshot_seals import KeyMissing, check_blob
from dalsegno.engine.steps.values import BLOB_SIZE
from dalsegno.errors import CodeMissing, Conflict, InvalidInput, NotFound, SnapshotRefused
from dalsegno.lang import SnapshotError
from dalsegno.lang.runtime.effects import PROMISE_PREFIX, ErrorValue, asks_people, promise_id
from dalsegno.model.event import Event
from dalsegno.model.execution import CLEANUP_RELATION, ENDED, SCRIPTED, ExecutionView
from dalsegno.model.ids import child_execution_id, promise_token_id, task_execution_id
from dalsegno.model.machine import Completion, numbers_in, reaches

FROM_HISTORY = 2**40
"""Added to the number of an event, where only the history shows that something has completed: after all the others."""
EVENTS_AT_ONCE = 1000


class _Ended(Struct, frozen=True):
    """What the event about a task's end shows."""

    error: dict[str, Any] | None = None
    output: Raw = Raw(b"")
    output_ref: str | None = None


class TurnAsked(Struct, frozen=True):
    """A turn from which an execution is rerun, by its number or the name of a checkpoint."""

    at: int | str
    variables: Mapping[str, Any] = {}
    """Other values of variables of the function that waits there."""
    answers: Mapping[str, Any] = {}
    """Results of promises."""

    def raw_variables(self) -> dict[str, Raw]:
        return {
            name: Raw(encode_value(value, f"the variable '{name}'")) for name, value in self.variables.items()
        }

    def encoded(self) -> bytes:
        """Return what is asked for as bytes, by which repeated requests are compared."""
        answers = {
            name: Raw(encode_value(value, f"the answer of '{name}'")) for name, value in self.answers.items()
        }
        return msgspec.json.encode([self.at, self.raw_variables(), answers], order="deterministic")


class BranchPlan(Struct, frozen=True):
    branch: Branch
    what: str
    """What is asked for, for messages."""
    snapshot: bytes
    known: tuple[str, ...]
    """Calls whose results are taken over."""
    awaited: tuple[str, ...]
    """Calls that go on elsewhere."""
    again: tuple[str, ...]
    """Calls that are made again."""
    later: tuple[str, ...]
    """Tasks that later turns called, of those that are kept."""


class Branches:
    def __init__(self, stored: StoredExecutions) -> None:
        self.stored = stored
        self._history = TurnHistory(stored.stack.ledger, stored.stack.archive)

    async def plan(self, view: ExecutionView, turn: TurnAsked) -> BranchPlan:
        """Return what a new execution starts from. Raises NotFound for a turn that is not kept, Conflict or
        InvalidInput for a request that cannot be met. Nothing is stored.
        """
        _check(view)
        stored = await self._history.stored(view.id)
        entry = await self._history.entry(view, turn.at, stored)
        if entry.cancel:
            raise Conflict(
                f"execution {view.id} had been asked to end by turn {entry.turn}, and was cleaning up: rerun it at an"
                " earlier turn"
            )
        later = sorted([each for each in stored if each.turn > entry.turn], key=lambda each: each.turn)
        given = _answers(entry, turn.answers)
        known, lost = await self._since(view, entry, later)
        lost -= {each.promise for each in given}
        if lost:
            number = min(lost)
            raise Conflict(
                f"execution {view.id} cannot be rerun at turn {entry.turn}: the result of {_named(entry, number)} is no"
                f" longer kept. Give it (--answer {promise_id(number)}=JSON), or choose a later turn"
            )
        kept = answered(machine_of(entry, known), given)
        numbers = tuple(sorted(each.promise for each in given))
        branch = Branch(
            kept,
            entry.turn,
            entry.definition or view.definition,
            Raw(turn.encoded()),
            turn.raw_variables(),
            numbers,
        )
        reused, awaited, again = await self._calls(view, entry, kept)
        what = f"rerun execution {view.id} at turn {entry.turn}"
        return BranchPlan(
            branch, what, entry.snapshot, reused, awaited, again, tuple(asked_later(entry, later))
        )

    # -- what is known by now -------------------------------------------------------------------------------------

    async def _since(
        self, view: ExecutionView, entry: Entry, later: Iterable[Entry]
    ) -> tuple[dict[int, Completion], set[int]]:
        """Return what had been called by a turn and has completed since, and the numbers of lost results."""
        known = {each.promise for each in entry.known}
        wanted = {number for number in numbers_in(entry.reachable) if number not in known}
        found: dict[int, Completion] = {}
        if view.state == "FAILED" and view.context is not None:
            before = decode_kept(view.context)
            wanted.difference_update(before.failed)
            found.update({each.promise: each for each in before.completions if each.promise in wanted})
        for each in later:
            found.update({one.promise: one for one in each.arrived if one.promise in wanted - found.keys()})
        lost: set[int] = set()
        if missing := wanted - found.keys():
            await self._read_history(view, entry, missing, found, lost)
        return found, lost

    async def _read_history(
        self,
        view: ExecutionView,
        entry: Entry,
        wanted: Collection[int],
        found: dict[int, Completion],
        lost: set[int],
    ) -> None:
        """Add what only the history shows: what the last turns received, and those that are not kept."""
        names = {promise_token_id(view.id, number): number for number in wanted}
        calls = {task.promise: task for task in entry.tasks}
        after = 0
        while page := await self.stored.events(view.id, after, EVENTS_AT_ONCE):
            after = page[-1].seq
            for event in page:
                number = names.get(event.token or "")
                if number is None or number in found:
                    continue
                completion = _completion(event, number, calls[number].asked() if number in calls else None)
                if completion is not None:
                    found[number] = replace(completion, number=FROM_HISTORY + event.seq)
                elif event.kind == "TaskCompleted":
                    lost.add(number)

    async def _calls(
        self, view: ExecutionView, entry: Entry, kept: KeptMachine
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Return the calls that were pending at the turn: those with a result, those that go on elsewhere, and those
        that are made again.
        """
        archive = self.stored.stack.archive
        done = {each.promise for each in kept.completions}
        reused = [_call(each.node, each.promise) for each in entry.tasks if each.promise in done]
        elsewhere = {task_execution_id(task.token): task for task in kept.tasks if not asks_people(task.node)}
        states = await archive.states(list(elsewhere)) if elsewhere else {}
        going_on = {task.promise for name, task in elsewhere.items() if states.get(name, LOST[0]) not in LOST}
        awaited = [_call(task.node, task.promise) for task in kept.tasks if task.promise in going_on]
        again = [_call(task.node, task.promise) for task in kept.tasks if task.promise not in going_on]
        known = done.union([task.promise for task in kept.tasks], [timer.promise for timer in kept.timers])
        rest = [number for number in numbers_in(entry.reachable) if number not in known]
        for number in rest[:EVENTS_AT_ONCE]:
            child = await archive.outline(child_execution_id(view.id, promise_id(number)))
            if child is not None and child.relation == "child":
                (reused if child.state == "COMPLETED" else again).append(_call(child.workflow, number))
        return tuple(reused), tuple(awaited), tuple(again)

    # -- variables ------------------------------------------------------------------------------------------------

    async def check_variables(self, view: ExecutionView, program: ScriptProgram, plan: BranchPlan) -> None:
        """Raise InvalidInput for a variable that the function that waits does not have. A process that lacks the code
        or the key does not know: then the first turn finds out.
        """
        variables = plan.branch.variables
        if (
            not variables
            or isinstance(program, AbsentProgram)
            or program.definition.hash != plan.branch.definition
        ):
            return
        stored = self.stored
        try:
            if program.lacking():
                return
            snapshot = plan.snapshot
            if program.native and stored.seals is not None:
                await stored.seals.prepare()
                if not program.is_own:
                    await stored.seals.check_program(program.definition)
                snapshot = await stored.seals.opened(snapshot, view.id, plan.branch.definition)
            blobs = await program.read_blobs(snapshot, partial(self._blob, view.id))
        except (CodeMissing, KeyMissing):
            return
        except (SnapshotError, SnapshotRefused, NotFound) as error:
            raise Conflict(f"cannot rerun execution {view.id} at turn {plan.branch.turn}: {error}") from None
        unknown: list[str] = []

        def look() -> None:
            machine = program.load(snapshot, blobs)
            for name, raw in variables.items():
                try:
                    machine.assign(name, decode_value(raw))
                except LookupError as error:
                    unknown.append(no_variable(name, plan.branch, str(error)))

        if program.native and stored.in_thread is not None:
            await stored.in_thread(look)
        elif program.native:
            look()
        else:
            await stored.offload.load(look)
        if unknown:
            raise InvalidInput(unknown[0])

    async def _blob(self, execution: str, name: str) -> bytes:
        data = await self.stored.stack.blobs.get(execution, name)
        check_blob(name, data, execution)
        return data


def _check(view: ExecutionView) -> None:
    if view.kind not in SCRIPTED:
        raise InvalidInput(
            f"execution {view.id} is a {view.kind}: only scripts and Python workflows are rerun at a turn"
        )
    if view.state not in ENDED:
        raise Conflict(f"execution {view.id} has not ended ({view.state}); cancel it first, or wait")
    if view.relation == CLEANUP_RELATION:
        raise Conflict(
            f"execution {view.id} continues the clean-up of {view.parent}: it has no turns to rerun at"
        )


def _answers(entry: Entry, answers: Mapping[str, Any]) -> list[Completion]:
    """Return the given results as completions. Promises are named ``p3``, tasks also by their names."""
    by_name: dict[str, list[int]] = {}
    for task in entry.tasks:
        by_name.setdefault(task.node, []).append(task.promise)
    given: dict[int, Completion] = {}
    for name, value in answers.items():
        number = _number_of(entry, name, by_name)
        raw = encode_value(value, f"the answer of '{name}'")
        if len(raw) >= BLOB_SIZE:
            raise InvalidInput(f"the answer of '{name}' is {len(raw):,} bytes; the limit is {BLOB_SIZE:,}")
        if number in given:
            raise InvalidInput(f"{promise_id(number)} is answered twice")
        given[number] = succeeded(number, Result(raw))
    return list(given.values())


def _number_of(entry: Entry, name: str, by_name: Mapping[str, list[int]]) -> int:
    digits = name[len(PROMISE_PREFIX) :]
    if name.startswith(PROMISE_PREFIX) and digits.isascii() and digits.isdecimal():
        number = int(digits)
        if reaches(entry.reachable, number):
            return number
    elif len(found := by_name.get(name, [])) == 1:
        return found[0]
    elif found:
        names = ", ".join(map(promise_id, found))
        raise InvalidInput(
            f"several calls of '{name}' were pending at turn {entry.turn}: name one of {names}"
        )
    pending = [_call(task.node, task.promise) for task in entry.tasks]
    others = {task.promise for task in entry.tasks}
    pending += [promise_id(number) for number in numbers_in(entry.reachable) if number not in others]
    listed = ", ".join(pending[:20]) or "none"
    raise InvalidInput(
        f"'{name}' is no promise that could still be awaited at turn {entry.turn}; those are {listed}"
    )


def _call(name: str, promise: int) -> str:
    return f"{name} ({promise_id(promise)})"


def _named(entry: Entry, number: int) -> str:
    name = next((task.node for task in entry.tasks if task.promise == number), None)
    return f"task '{name}' ({promise_id(number)})" if name is not None else promise_id(number)


def _completion(event: Event, number: int, asked: Any) -> Completion | None:
    """Return what an event says of a call; None if it does not say what came of it."""
    match event.kind:
        case "TaskCompleted" | "TaskFailed" if event.data is not None:
            record = msgspec.json.decode(event.data, type=_Ended)
            if event.kind == "TaskFailed":
                return failed(number, error_from(record.error or {}), asked)
            if record.output_ref is not None:
                return succeeded(number, Result(b"", record.output_ref))
            return succeeded(number, Result(bytes(record.output))) if record.output else None
        case "TimerFired" if event.node:
            error = ErrorValue("TimeoutError", f"no signal '{event.node}' arrived in time")
            return failed(number, error)
        case "TimerFired":
            return succeeded(number, Result(b"null"))
    return None

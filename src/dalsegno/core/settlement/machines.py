"""Machines of scripts: completions, saves, requests, and the decision to resume.

Effects change the machine's row while a transition is applied; the decision to resume is made once, at the end.
"""

from __future__ import annotations

from msgspec.structs import replace

from dalsegno.core.settlement.application import Application
from dalsegno.core.settlement.finish import finish
from dalsegno.core.settlement.rows import ExecutionRow, MachineRow
from dalsegno.core.settlement.workspace import Workspace
from dalsegno.errors import InternalError
from dalsegno.model.effect import (
    FinishExecution,
    MoveMachine,
    RequestCancel,
    SaveMachine,
    SettlePromise,
    WakeMachine,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.ids import resume_token_id
from dalsegno.model.machine import Completion, reaches
from dalsegno.model.token import RESUME_NODE, RESUME_PRIORITY, SYSTEM_QUEUE, UNFINISHED, NewToken
from dalsegno.model.transition import Transition


def is_outdated(transition: Transition, execution: ExecutionRow, rows: Workspace) -> bool:
    """Return True if the transition comes from a machine that has moved on.

    It saves such a machine, continues one that must not move, or ends one that has an unread request to end.
    Checked before anything is applied.
    """
    for effect in transition.effects:
        if type(effect) is SaveMachine:
            machine = rows.machine(transition.execution)
            if machine is None or machine.version != effect.version:
                return True
            if machine.cancel and not effect.interrupted and _ends(transition):
                return True
            if effect.exact and machine.inbox != effect.read:
                return True
            if effect.settled is not None:
                paused = execution.state == "PAUSED"
                return paused or machine.resuming or machine.inbox != effect.read
        elif type(effect) is MoveMachine:
            machine = rows.machine(transition.execution)
            if machine is None or machine.version != effect.version or execution.definition != effect.before:
                return True
    return False


def _ends(transition: Transition) -> bool:
    return any(type(effect) is FinishExecution for effect in transition.effects)


# -- effects --------------------------------------------------------------------------------------------------


def save_machine(work: Application, effect: SaveMachine) -> None:
    machine = work.machine_row()
    if machine is None:
        raise InternalError(f"execution {work.execution.id} is not a script and has no machine to save")
    arrived = machine.inbox
    machine.version += 1
    machine.snapshot = effect.snapshot
    machine.wake = effect.wake
    machine.line = effect.line
    machine.interrupted = machine.cancel != "" and (machine.interrupted or effect.interrupted)
    machine.resuming = False
    before, machine.reachable = machine.reachable, effect.reachable
    if effect.taken:
        _take_signals(work, machine, effect)
    if before != effect.reachable:
        _forget_unreachable(work, machine)
    if effect.settled is not None:
        machine.inbox += 1
        _enter(work, machine, effect.settled, machine.inbox)
    machine.unread = machine.last_success = machine.last_failure = 0
    if arrived == effect.read:
        machine.read = machine.inbox
    else:
        machine.read = effect.read
        _count_unread(work, machine, effect, arrived)
    _look_in_mailbox(work, machine)


def move_machine(work: Application, effect: MoveMachine) -> None:
    execution, machine = work.execution, work.machine_row()
    if machine is None:
        raise InternalError(f"execution {execution.id} is not a script and has no machine to move")
    execution.definition = effect.definition
    work.rows.change_version(execution.id, effect.number, effect.definition)
    if execution.state == "PENDING":
        return
    token = work.rows.token(execution.id, resume_token_id(execution.id, machine.version))
    machine.version += 1
    if effect.snapshot:
        machine.snapshot, machine.line = effect.snapshot, effect.line
    machine.resuming = False
    if token is not None and token.state in UNFINISHED:
        token.state, token.owner = "cancelled", None
        work.rows.save_token(token)
        work.wake = True


def _take_signals(work: Application, machine: MachineRow, effect: SaveMachine) -> None:
    """Turn taken signals into completions, numbered by their arrival."""
    for taken in effect.taken:
        signal = work.rows.signal(machine.execution, taken.signal)
        if signal is not None and not signal.taken:
            if not signal.place:  # it arrived before places were recorded
                signal.place = machine.inbox = machine.inbox + 1
            _enter(work, machine, Completion(taken.promise, True, signal.data), signal.place)
            signal.taken, signal.data = True, b""
            work.rows.save_signal(signal)


def _look_in_mailbox(work: Application, machine: MachineRow) -> None:
    """Wake the machine for a waiting signal: it may have arrived while the machine ran, or be queued behind another."""
    names = machine.wake.signals
    if names and work.rows.next_signal(machine.execution, names) is not None:
        work.wake = True


def _forget_unreachable(work: Application, machine: MachineRow) -> None:
    """Remove unreachable completions. Everything stored was reachable as of the last save."""
    if machine.kept:
        gone = [
            promise
            for promise in work.rows.completions(machine.execution)
            if not reaches(machine.reachable, promise)
        ]
        work.rows.remove_completions(machine.execution, gone)
        machine.kept -= len(gone)


def _count_unread(work: Application, machine: MachineRow, effect: SaveMachine, arrived: int) -> None:
    """Count what arrived while the machine ran, except what the run itself brought along."""
    taken = {signal.promise for signal in effect.taken}
    for promise, (number, ok) in work.rows.completions(machine.execution).items():
        if machine.read < number <= arrived and promise not in taken:
            _note_unread(machine, promise, number, ok)


def _note_unread(machine: MachineRow, promise: int, number: int, ok: bool) -> None:
    if not machine.wake.counts(promise):
        return
    machine.unread += 1
    if ok:
        machine.last_success = max(machine.last_success, number)
    else:
        machine.last_failure = max(machine.last_failure, number)


def _enter(work: Application, machine: MachineRow, completion: Completion, number: int) -> None:
    """Store the completion if its promise is still reachable; the first one of a promise counts."""
    if not reaches(machine.reachable, completion.promise):
        return
    if completion.promise not in work.rows.completions(machine.execution):
        work.rows.add_completion(machine.execution, replace(completion, number=number))
        machine.kept += 1


def settle_promise(work: Application, effect: SettlePromise) -> None:
    if _is_open(work, effect):
        machine = work.machine_row()
        if machine is not None:
            machine.inbox += 1
            _enter(work, machine, effect.completion, machine.inbox)
            _note_unread(machine, effect.completion.promise, machine.inbox, effect.completion.ok)


def _is_open(work: Application, effect: SettlePromise) -> bool:
    machine = work.machine_row()
    if machine is None or not reaches(machine.reachable, effect.completion.promise):
        return False
    return effect.completion.promise not in work.rows.completions(machine.execution)


def is_settled(rows: Workspace, execution: str, effect: SettlePromise) -> bool:
    """Return True if the promise has a completion already, so that another one changes nothing."""
    return rows.machine(execution) is not None and effect.completion.promise in rows.completions(execution)


def request_cancel(work: Application, effect: RequestCancel) -> None:
    machine = work.machine_row()
    if machine is None or work.execution.state == "PENDING":
        finish(work, effect.finish)
        for order in effect.owed:
            work.write_outbox(order)
    elif not machine.cancel:
        machine.cancel = effect.reason
        work.record(effect.event)
        if work.execution.state == "PAUSED":
            work.end_pause(NewEvent("ExecutionResumed", "", "", work.now))


def wake_machine(work: Application, _effect: WakeMachine) -> None:
    if work.machine_row() is not None:
        work.wake = True


# -- resumption --------------------------------------------------------------------------------------------------


def judge(work: Application, machine: MachineRow) -> None:
    """Make the resume token ready if there is a reason to resume and no resume token yet.

    The machine of an ended script is not written: the sweep removes it.
    """
    if work.execution.ended_at is not None:
        return
    if work.resumed is not None or work.spawned_resume is not None:
        _renew(work, machine)
    if not machine.resuming and (work.wake or _is_due(machine)):
        work.spawn(_resume_token(machine))
        machine.resuming = True
    work.rows.save_machine(machine)


def _renew(work: Application, machine: MachineRow) -> None:
    """Give the machine a new version after its resume token was consumed without a save.

    Otherwise it could never be resumed again, because its token's id is taken.
    """
    current = resume_token_id(machine.execution, machine.version)
    if work.resumed == current:
        machine.version += 1
        machine.resuming = False
        _look_in_mailbox(work, machine)
    elif work.spawned_resume == current:
        machine.resuming = True


def _is_due(machine: MachineRow) -> bool:
    wake = machine.wake
    return (
        machine.unread >= max(wake.need, 1)
        or (wake.on_failure and machine.last_failure > machine.read)
        or (wake.on_success and machine.last_success > machine.read)
        or (machine.cancel != "" and not machine.interrupted)
    )


def _resume_token(machine: MachineRow) -> NewToken:
    name = resume_token_id(machine.execution, machine.version)
    return NewToken(name, "", "resume", RESUME_NODE, b"", SYSTEM_QUEUE, RESUME_PRIORITY, live=False)

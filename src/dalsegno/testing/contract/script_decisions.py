"""Decisions about scripts, chosen by number: what the model comparison commits for their tokens.

They depend only on the lease, on the machine as it was seen and on the number. Some are mistaken on purpose: an old
version, completions that were overlooked, signals that are not there.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from dalsegno.model.effect import DropTokens, FinishExecution
from dalsegno.model.machine import Completion, MachineView, Ranges, TakenSignal
from dalsegno.model.token import Lease, NewToken
from dalsegno.model.transition import Park, Transition
from dalsegno.testing.contract.build import event, finish, step, token
from dalsegno.testing.contract.decisions import Parts
from dalsegno.testing.contract.scripts import done, failed, save, task

PROMISES = 12
NAMES = ("x", "y", "z")
REACHABLE: tuple[Ranges, ...] = (
    ((0, PROMISES),),
    ((0, PROMISES),),
    ((0, PROMISES),),
    ((0, 3), (6, PROMISES)),
    ((4, 8),),
    (),
)


def promise_of(name: str) -> int:
    return crc32(name.encode()) % PROMISES


def decide_script(lease: Lease, machine: MachineView | None, choice: int, worker: str) -> Transition:
    """The transition for a lease that decision ``choice`` leads to."""
    if machine is None:
        return _without_machine(lease, choice)
    options = RESUMES if lease.kind == "resume" else COMPLETIONS
    if lease.kind != "resume" and choice % 10 == 9:
        return step(lease, park=Park(lease.ready_at // 1 + choice, b"again", lease.attempt + 1))
    parts = options[choice % len(options)](lease, machine, choice)
    keep = [_child(lease, 0).id] if choice % 3 == 0 else []
    return step(lease, *parts, events=[event("TaskCompleted", lease.node)], keep=keep, worker=worker)


def _without_machine(lease: Lease, choice: int) -> Transition:
    """A node of a graph, or a task that was handed over."""
    if choice % 3 == 0:
        due = lease.ready_at // 1 + choice if choice % 2 else None
        awaits = f"signal:{NAMES[choice % 3]}" if choice % 4 else "child:c"
        return step(lease, park=Park(due, b"waiting %d" % choice, lease.attempt, awaits))
    if choice % 3 == 1 and lease.execution_kind == "task":
        return step(lease, finish())
    return step(lease, token(f"{lease.token}.0", node="x"), events=[event(node=lease.node)])


def _child(lease: Lease, number: int) -> NewToken:
    return task(f"{lease.token}.{number}", live=number != 1)


def _timer(lease: Lease, choice: int) -> NewToken:
    return token(f"{lease.token}.timer", kind="timer", due=lease.ready_at // 1 + choice, live=False)


def _saved(
    machine: MachineView, choice: int, *, version: int = 0, read: int = 0, settled: Completion | None = None
) -> Parts:
    """``version`` and ``read`` are how far the run was mistaken."""
    taken = [
        TakenSignal(signal.id, (choice + place) % PROMISES)
        for place, signal in enumerate(machine.signals[: choice % 3])
    ]
    return [
        save(
            machine.version - version,
            max(machine.inbox - read, 0),
            snapshot=b"state %d" % choice,
            need=1 + choice % 4,
            on_failure=choice % 5 == 0,
            on_success=choice % 7 == 0,
            signals=NAMES[: choice % 4],
            reachable=REACHABLE[choice % len(REACHABLE)],
            settled=settled,
            taken=taken if choice % 11 else [*taken, TakenSignal("nobody", 1)],
            interrupted=choice % 2 == 0,
            line=choice,
        )
    ]


# -- resumes --------------------------------------------------------------------------------------------------


def _suspend(lease: Lease, machine: MachineView, choice: int) -> Parts:
    return [*_saved(machine, choice), _child(lease, 0), _child(lease, 1)]


def _sleep(lease: Lease, machine: MachineView, choice: int) -> Parts:
    return [*_saved(machine, choice), _timer(lease, choice), _child(lease, 0)]


def _overlook(lease: Lease, machine: MachineView, choice: int) -> Parts:
    """Completions arrived while it ran."""
    return [*_saved(machine, choice, read=choice % 3), _child(lease, 0)]


def _outdated(_lease: Lease, machine: MachineView, choice: int) -> Parts:
    return _saved(machine, choice, version=1)


def _drop(lease: Lease, machine: MachineView, choice: int) -> Parts:
    names = (f"{lease.token}.0", lease.token, "nobody")
    return [*_saved(machine, choice), _child(lease, 0), DropTokens(names[: 1 + choice % 3])]


def _forget_to_save(_lease: Lease, _machine: MachineView, _choice: int) -> Parts:
    return []


def _end(lease: Lease, machine: MachineView, choice: int) -> Parts:
    """Seldom for good."""
    if choice < 60:
        return _suspend(lease, machine, choice)
    ending = FinishExecution("COMPLETED", event("ExecutionCompleted", ""), hand_over=choice % 4 != 0)
    return [*_saved(machine, choice), _child(lease, 0), ending]


# -- tasks and timers -----------------------------------------------------------------------------------------


def _succeed(lease: Lease, _machine: MachineView, choice: int) -> Parts:
    return [done(promise_of(lease.token), b"%d" % choice)]


def _fail(lease: Lease, _machine: MachineView, choice: int) -> Parts:
    return [failed(promise_of(lease.token), b"%d" % choice)]


def _go_on(lease: Lease, machine: MachineView, choice: int) -> Parts:
    """A fused commit."""
    settled = Completion(promise_of(lease.token), choice % 2 == 0, b"%d" % choice)
    return [*_saved(machine, choice, settled=settled), _child(lease, 0)]


def _go_on_too_late(lease: Lease, machine: MachineView, choice: int) -> Parts:
    settled = Completion(promise_of(lease.token), True, b"late")
    return _saved(machine, choice, version=choice % 2, read=choice % 3, settled=settled)


Decision = Callable[[Lease, MachineView, int], Parts]
RESUMES: tuple[Decision, ...] = (
    _suspend,
    _suspend,
    _sleep,
    _overlook,
    _overlook,
    _outdated,
    _drop,
    _forget_to_save,
    _end,
)
COMPLETIONS: tuple[Decision, ...] = (_succeed, _succeed, _fail, _go_on, _go_on, _go_on_too_late)

"""Random operations on scripts: a script, and a graph whose tokens wait for signals and children.

* Decisions are chosen by number and depend only on the lease, the machine as read, and the number.
* Some are wrong on purpose: an old version, overlooked completions, signals that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from dalsegno.model.effect import (
    DeliverToToken,
    DropTokens,
    FinishExecution,
    HurryToken,
    MoveMachine,
    WakeMachine,
)
from dalsegno.model.execution import ENDED
from dalsegno.model.ids import task_execution_id
from dalsegno.model.machine import Completion, MachineView, Ranges, TakenSignal
from dalsegno.model.token import Lease, NewToken, TokenView
from dalsegno.model.transition import Park, Transition
from dalsegno.testing.contract.builders import cancel, command, event, finish, start, step, token
from dalsegno.testing.contract.random.graphs import WORKER, Parts, Twins
from dalsegno.testing.contract.script_builders import (
    answer,
    ask_to_end,
    delivered,
    done,
    failed,
    new_script,
    resume_token,
    save,
    signal,
    task,
)
from dalsegno.testing.contract.stack import ContractStack

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
    """Return the transition for a lease and a decision."""
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
    """``version`` and ``read`` are the errors of the run: how much too old its version and inbox position are."""
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
            taken=taken if choice % 11 else [*taken, TakenSignal("absent", 1)],
            interrupted=choice % 2 == 0,
            line=choice,
        )
    ]


# -- resumes --------------------------------------------------------------------------------------------------


def _suspend(lease: Lease, machine: MachineView, choice: int) -> Parts:
    return [*_saved(machine, choice), _child(lease, 0), _child(lease, 1)]


def _sleep(lease: Lease, machine: MachineView, choice: int) -> Parts:
    return [*_saved(machine, choice), _timer(lease, choice), _child(lease, 0)]


def _without_some(lease: Lease, machine: MachineView, choice: int) -> Parts:
    """Completions arrived while it ran."""
    return [*_saved(machine, choice, read=choice % 3), _child(lease, 0)]


def _outdated(_lease: Lease, machine: MachineView, choice: int) -> Parts:
    return _saved(machine, choice, version=1)


def _drop(lease: Lease, machine: MachineView, choice: int) -> Parts:
    names = (f"{lease.token}.0", lease.token, "absent")
    return [*_saved(machine, choice), _child(lease, 0), DropTokens(names[: 1 + choice % 3])]


def _forget_to_save(_lease: Lease, _machine: MachineView, _choice: int) -> Parts:
    return []


def _end(lease: Lease, machine: MachineView, choice: int) -> Parts:
    """Seldom end the execution; otherwise suspend."""
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
    _without_some,
    _without_some,
    _outdated,
    _drop,
    _forget_to_save,
    _end,
)
COMPLETIONS: tuple[Decision, ...] = (_succeed, _succeed, _fail, _go_on, _go_on, _go_on_too_late)


MANY = 10_000
"""More than all examples on one store leave in its outbox."""


class ScriptTwins(Twins):
    @property
    def script(self) -> str:
        return self.executions[0]

    async def begin(self) -> None:
        script, graph = self.executions
        first = task(f"{script}.t")  # tasks may become executions, so their ids are unique to this pair
        await self.commit(start(new_script(script, notify=b"tell"), resume_token(script), first))
        await self.commit(start(graph, token("p"), token("q"), token("r")))

    async def end(self) -> None:
        await super().end()
        for side in (self.subject, self.reference):
            await side.commit(*(cancel(execution) for execution in self._handed_over()))

    def _handed_over(self) -> list[str]:
        """Executions that tasks may have become."""
        names = {lease.token for lease in self.leases if lease.kind == "task"}
        names |= {f"{name}.{number}" for name in {lease.token for lease in self.leases} for number in (0, 1)}
        return sorted(task_execution_id(name) for name in names)

    # -- operations, chosen by number -------------------------------------------------------------------------

    async def batch(self, a: int, b: int) -> None:
        if not self.held:
            await self.claim(a, b)
        chosen = [self.held.pop((a * b) % len(self.held)) for _ in range(min(a % 5, len(self.held)))]
        await self.commit(*[await self._decide(lease, b + index) for index, lease in enumerate(chosen)])

    async def late(self, a: int, b: int) -> None:
        if self.leases:
            lease = self.leases[-1 - a % len(self.leases)]
            await self.commit(await self._decide(replace(lease, fence=lease.fence - b % 2), b))

    async def moved(self, a: int, b: int) -> None:
        """A worker learns that the task it runs has become an execution."""
        tasks = [lease for lease in self.leases if lease.kind == "task"]
        if tasks:
            lease = tasks[-1 - a % len(tasks)]
            own = replace(lease, execution=task_execution_id(lease.token), execution_kind="task")
            await self.commit(await self._decide(own, b))

    async def _decide(self, lease: Lease, choice: int) -> Any:
        machine = await self.reference.ledger.machine(lease.execution)
        return decide_script(lease, machine, choice, WORKER)

    async def post(self, a: int, b: int) -> None:
        if b % 7 == 0:
            given = answer(f"s{a % 40}", b"answer %d" % b)
            await self.commit(command(self.executions[a % 2], given))
            return
        posted = signal(f"s{a % 40}", NAMES[b % 3], b"%d" % b, self.executions[a % 2])
        await self.commit(posted, *([posted] if b % 5 == 0 else []))

    async def deliver(self, a: int, b: int) -> None:
        await self.commit(command(self.script, delivered(a % PROMISES), events=[event("ChildEnded")]))
        if self.leases:
            lease = self.leases[-1 - b % len(self.leases)]
            await self.commit(command(lease.execution, DeliverToToken(lease.token, "child:c", b"%d" % b)))

    async def drop(self, a: int, b: int) -> None:
        if self.leases:
            names = tuple(lease.token for lease in self.leases[-1 - a % 3 :])
            await self.commit(command(self.executions[b % 2], DropTokens(names)))

    async def nudge(self, a: int, b: int) -> None:
        await self.commit(command(self.executions[a % 2], WakeMachine()))
        if self.leases:
            lease = self.leases[-1 - b % len(self.leases)]
            await self.commit(command(lease.execution, HurryToken(lease.token, lease.attempt + a % 2)))

    async def revise(self, a: int, b: int) -> None:
        """Let the script go on with another version of its program, or with one that is not its own any more."""
        machine = await self.reference.ledger.machine(self.script)
        found = await self.reference.ledger.inspect(self.script)
        if machine is not None and found is not None:
            before = found.execution.definition if b % 7 else "gone"
            snapshot = b"moved %d" % a if machine.snapshot else b""
            effect = MoveMachine(machine.version - (b % 5 == 0), before, f"hash-{b % 3}", b % 3, snapshot, a)
            moved = command(self.script, effect, events=[event("VersionChanged", "")])
            await self.commit(moved, *([moved] if b % 4 == 0 else []))

    async def ask(self, a: int, b: int) -> None:
        """Ask the script or, seldom, the graph to end. The graph ends at once."""
        target = self.executions[1] if a > 95 else self.script
        await self.commit(ask_to_end(target))

    # -- comparison -------------------------------------------------------------------------------------------

    async def compare(self) -> None:
        await super().compare()
        for execution in self._handed_over():
            mine = await self.subject.ledger.inspect(execution)
            theirs = await self.reference.ledger.inspect(execution)
            assert (mine is None) == (theirs is None)
            if theirs is not None:
                assert await self._look(self.subject, execution) == await self._look(
                    self.reference, execution
                )
        notices = [
            entry for entry in await self.subject.ledger.outbox(MANY) if entry.execution == self.script
        ]
        assert notices == await self.reference.ledger.outbox()

    async def _look(self, side: ContractStack, execution: str) -> dict[str, Any]:
        look = await super()._look(side, execution)
        if look["execution"].state not in ENDED:
            look["machine"] = await side.ledger.machine(execution)
            look["posted"] = await side.ledger.posted([(execution, f"s{number}") for number in range(5)])
            look["unanswered"] = await side.ledger.unanswered(execution, "s1", 3)
        arrivals = [f"{lease.token}/arrival" for lease in self.leases]
        look["arrivals"] = await side.ledger.outputs(execution, sorted(arrivals))
        return look

    def _open_tokens(self, execution: str, tokens: tuple[TokenView, ...]) -> dict[str, TokenView]:
        found = super()._open_tokens(execution, tokens)
        return {
            name: replace(view, data=b"") if view.kind == "resume" else view for name, view in found.items()
        }

"""Builders for scripts and splits: the commits of a resume, a task, a signal and an opened split.

* A ledger knows no programs, so snapshots are arbitrary bytes.
* A split has its aggregator's barrier, and one scope and one token per item.
"""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.model.effect import (
    AnswerRequest,
    Effect,
    OpenBarrier,
    OpenScope,
    PostSignal,
    RequestCancel,
    SaveMachine,
    SettlePromise,
)
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import ROOT_SCOPE, resume_token_id
from dalsegno.model.machine import CancelReason, Completion, MachineView, Ranges, TakenSignal, Wake
from dalsegno.model.token import RESUME_NODE, RESUME_PRIORITY, SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Transition
from dalsegno.testing.contract.builders import (
    RUN,
    aggregator,
    command,
    event,
    finish,
    milestone,
    new_execution,
    start,
    step,
    token,
)
from dalsegno.testing.contract.stack import ContractStack

SOME: Ranges = ((0, 1000),)
"""Promises that most tests keep reachable."""


# -- starting -------------------------------------------------------------------------------------------------


def new_script(execution: str = RUN, **fields: object) -> NewExecution:
    return new_execution(execution, **({"kind": "script"} | fields))


def resume_id(version: int, execution: str = RUN) -> str:
    return resume_token_id(execution, version)


def resume_token(execution: str = RUN, version: int = 0) -> NewToken:
    """The first one is spawned by the start, all others by the ledger."""
    name = resume_id(version, execution)
    return NewToken(name, "", "resume", RESUME_NODE, b"", SYSTEM_QUEUE, RESUME_PRIORITY, live=False)


def start_script(execution: str = RUN) -> Transition:
    return start(new_script(execution), resume_token(execution))


def task(id: str, **fields: object) -> NewToken:
    return token(id, **({"kind": "task", "node": "charge"} | fields))  # type: ignore[arg-type]


# -- effects --------------------------------------------------------------------------------------------------


def save(
    version: int,
    read: int = 0,
    *,
    snapshot: bytes = b"state",
    need: int = 1,
    on_failure: bool = False,
    on_success: bool = False,
    signals: Iterable[str] = (),
    awaited: Ranges = (),
    reachable: Ranges = SOME,
    settled: Completion | None = None,
    taken: Iterable[TakenSignal] = (),
    interrupted: bool = False,
    line: int = 0,
) -> SaveMachine:
    wake = Wake(need, on_failure, on_success, tuple(signals), awaited=awaited)
    return SaveMachine(
        version, snapshot, read, wake, reachable, line, settled, tuple(taken), interrupted=interrupted
    )


def done(promise: int, data: bytes = b"1") -> SettlePromise:
    return SettlePromise(Completion(promise, True, data))


def failed(promise: int, data: bytes = b"why") -> SettlePromise:
    return SettlePromise(Completion(promise, False, data))


def delivered(promise: int, data: bytes = b"1") -> SettlePromise:
    """A result from another execution, possibly delivered twice."""
    return SettlePromise(Completion(promise, True, data), repeatable=True)


def signal(
    id: str = "s1", name: str = "approved", data: bytes = b'"yes"', execution: str = RUN
) -> Transition:
    return command(execution, PostSignal(id, name, data, event("SignalReceived", name)))


def answer(id: str = "s1", data: bytes = b"answer") -> AnswerRequest:
    return AnswerRequest(id, data, event("RequestAnswered", id))


def ask_to_end(execution: str = RUN, reason: CancelReason = "cancel") -> Transition:
    asked = event("CancelRequested", "")
    return command(execution, RequestCancel(reason, asked, finish("CANCELLED", None)))


# -- driving --------------------------------------------------------------------------------------------------


async def suspend(
    stack: ContractStack, *effects: Effect | NewToken, execution: str = RUN, **condition: object
) -> None:
    """Start a script whose first run ends at an await with ``effects``; ``condition`` as for ``save``."""
    await stack.apply(start_script(execution))
    lease = await resume_lease(stack, 0, execution)
    await stack.apply(step(lease, save(0, **condition), *effects))  # type: ignore[arg-type]


async def resume_lease(stack: ContractStack, version: int, execution: str = RUN) -> Lease:
    """Lease the resume token of this version, which must be ready; leave other tokens alone."""
    [ready] = [
        found for found in await stack.ledger.ready(execution) if found.token == resume_id(version, execution)
    ]
    found = await stack.claim(1000, queues=(SYSTEM_QUEUE,))
    [lease] = [lease for lease in found if (lease.execution, lease.token) == (execution, ready.token)]
    return lease


async def tasks(stack: ContractStack, worker: str = "w1") -> dict[str, Lease]:
    """Lease all ready tasks, by token id."""
    return {lease.token: lease for lease in await stack.claim(1000, queues=("default",), worker=worker)}


async def machine_of(stack: ContractStack, execution: str = RUN) -> MachineView:
    found = await stack.ledger.machine(execution)
    assert found is not None, f"execution {execution} has no machine"
    return found


async def resumes(stack: ContractStack, execution: str = RUN) -> list[str]:
    """Return the resume tokens that are not consumed yet."""
    return [name for name, found in (await stack.tokens(execution)).items() if found.kind == "resume"]


def item(index: int, parent: str = ROOT_SCOPE) -> str:
    """The scope of an item."""
    return f"{parent}/split:{index}"


def item_token(index: int, parent: str = ROOT_SCOPE) -> str:
    return f"item{parent}:{index}"


def open_items(count: int, parent: str = ROOT_SCOPE, first: int = 0) -> list[Effect | NewToken]:
    """Scopes and first tokens of ``count`` items."""
    collect = aggregator(scope=parent)
    effects: list[Effect | NewToken] = []
    for index in range(first, first + count):
        effects.append(OpenScope(item(index, parent), collect.id, index))
        effects.append(token(item_token(index, parent), item(index, parent), node="work"))
    return effects


async def open_split(
    stack: ContractStack,
    count: int,
    *,
    parent: Lease | None = None,
    within: float | None = None,
    expected: int | None = None,
    milestone_at: int | None = None,
    also: tuple[NewToken, ...] = (),
) -> list[Lease]:
    """Open a split in the root, or inside an item whose lease is given; return the items' leases in order."""
    if parent is None:
        parent = (await stack.begin(token("split")))["split"]
    collect = aggregator(expected=expected or count, timeout=within, scope=parent.scope)
    mark = milestone(milestone_at) if milestone_at is not None else None
    effects = [OpenBarrier(collect, mark), *open_items(count, parent.scope), *also]
    await stack.apply(step(parent, *effects))
    leases = await stack.take()
    return [leases[item_token(index, parent.scope)] for index in range(count)] + [
        leases[extra.id] for extra in also
    ]

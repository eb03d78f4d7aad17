"""The input of the suite from a binding: a fresh store with a settable clock, and what the backend can do.

Capabilities are declared as data, from which a binding selects its topics. The suite never asks a backend for its name
and skips nothing at run time: an unsupported topic is not part of the binding.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, cast, get_args

from dalsegno.model.barrier import BarrierView
from dalsegno.model.event import Event, EventKind
from dalsegno.model.execution import ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.machine import MachineView
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, Lease, NewToken, TokenView
from dalsegno.model.transition import Applied, Deferred, Outcome, Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.limits import Limits
from dalsegno.ports.messages import Publications
from dalsegno.ports.published import PublishedData
from dalsegno.ports.records import Blobs, Records
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import RUN, start

Feature = Literal[
    "commit",
    "gates",
    "cancelling",
    "pausing",
    "leases",
    "time",
    "sweep",
    "scripts",
    "broker",
    "archive",
    "blobs",
    "records",
    "publications",
    "published",
    "limits",
    "pending",
    "durable",
    "shared",
]
"""The features of a backend.

* commit: ``commit``, ``claim`` and reading.
* gates: ``AdjustGate``, ``gate_used``.
* cancelling: ``CancelTokens``.
* pausing: ``PauseExecution``, ``ResumeExecution``.
* leases: ``lease``, ``release``, ``heartbeat``, ``expire``.
* time: ``wake``.
* sweep: ``sweep``, ``untouched``.
* scripts: ``machine``, signals, and all effects on them.
* limits: slots and rates by key.
* pending: executions that have not begun yet, ``BeginExecution``.
* durable: the store outlives its connection.
* shared: several processes use one store.
"""

ALL_GUARANTEES = frozenset(
    f"{port}{number}"
    for port, count in (("L", 10), ("B", 2), ("A", 6), ("K", 6), ("R", 4), ("M", 4), ("C", 1), ("P", 7))
    for number in range(1, count + 1)
)
WHOLE_STACK: frozenset[Feature] = frozenset(get_args(Feature)) - {"durable", "shared"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """``guarantees`` restricts a binding to some guarantees while an adapter is under development."""

    features: frozenset[Feature] = WHOLE_STACK
    guarantees: frozenset[str] = ALL_GUARANTEES

    def cover(self, topic: type[Topic]) -> bool:
        return topic.guarantees <= self.guarantees and topic.needs <= self.features


class Topic:
    """Tests of one topic. A binding provides the fixture ``stack``, which yields a fresh ContractStack."""

    guarantees: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[Feature]] = frozenset(("commit",))


ALL_QUEUES = (SYSTEM_QUEUE, DEFAULT_QUEUE)
PATIENCE = 100
"""Number of times that a deferred transition is sent again before a test fails."""


class Unbound:
    """Replaces a port that a binding did not give. Using it raises an error that says so."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(
            f"the binding's stack has no {self.what}, but it includes a topic that needs one"
        )

    def __call__(self) -> NoReturn:
        raise AssertionError(
            f"the binding's stack has no {self.what}, but it includes a topic that needs one"
        )


NO_ARCHIVE: Any = Unbound("archive")
NO_BLOBS: Any = Unbound("blobs")
NO_BROKER: Any = Unbound("broker")
NO_RECORDS: Any = Unbound("records")
NO_LIMITS: Any = Unbound("limits")
NO_PUBLICATIONS: Any = Unbound("publications")
NO_PUBLISHED: Any = Unbound("published")
NO_REOPEN: Any = Unbound("reopen")
NO_SECOND: Any = Unbound("second")


@dataclass(frozen=True)
class Picture:
    """Everything visible of one execution. Equal pictures mean that nothing changed."""

    inspection: Inspection | None
    events: tuple[Event, ...]
    machine: MachineView | None = None


@dataclass
class ContractStack:
    """The ports of one empty store.

    * ``reopen`` drops the connection without closing it, as a crash would, and opens the same store again (feature
      ``durable``).
    * ``second`` opens the same store beside this one, as another process would (feature ``shared``).
    * Both return a new stack with the same clock; the binding closes them all in the end.
    * ``read_events`` is for a ledger that has no archive yet; otherwise events are read from the archive.
    """

    ledger: Ledger
    clock: FakeClock
    archive: Archive = NO_ARCHIVE
    blobs: Blobs = NO_BLOBS
    broker: Broker = NO_BROKER
    reopen: Callable[[], Awaitable[ContractStack]] = NO_REOPEN
    second: Callable[[], Awaitable[ContractStack]] = NO_SECOND
    read_events: Callable[[str], Awaitable[list[Event]]] | None = None
    records: Records = NO_RECORDS
    limits: Limits = NO_LIMITS
    publications: Publications = NO_PUBLICATIONS
    published: PublishedData = NO_PUBLISHED

    # -- committing -------------------------------------------------------------------------------------------

    async def commit(self, *batch: Transition) -> list[Outcome]:
        """Commit and return one outcome per transition. Deferred transitions are sent again, as an engine would."""
        outcomes = await self.ledger.commit(batch)
        for _ in range(PATIENCE):
            again = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Deferred)]
            if not again:
                break
            for index, outcome in zip(
                again, await self.ledger.commit([batch[i] for i in again]), strict=True
            ):
                outcomes[index] = outcome
        return outcomes

    async def apply(self, *batch: Transition) -> list[Applied]:
        """Commit transitions that must all be applied."""
        outcomes = await self.commit(*batch)
        assert all(isinstance(outcome, Applied) for outcome in outcomes), outcomes
        return cast(list[Applied], outcomes)

    async def begin(self, *tokens: NewToken, execution: str = RUN) -> dict[str, Lease]:
        """Start an execution with these tokens and claim them."""
        await self.apply(start(execution, *tokens))
        return await self.take()

    # -- claiming ---------------------------------------------------------------------------------------------

    async def claim(
        self, limit: int = 100, queues: Sequence[str] = ALL_QUEUES, worker: str = "w1"
    ) -> list[Lease]:
        return await self.ledger.claim(worker, queues, limit)

    async def take(self, worker: str = "w1") -> dict[str, Lease]:
        """Lease everything that is ready, by token id."""
        return {lease.token: lease for lease in await self.claim(1000, worker=worker)}

    # -- looking ----------------------------------------------------------------------------------------------

    async def events(self, execution: str = RUN) -> list[Event]:
        if self.read_events is not None:
            return await self.read_events(execution)
        return await self.archive.events(execution)

    async def kinds(self, execution: str = RUN) -> list[EventKind]:
        return [event.kind for event in await self.events(execution)]

    async def execution(self, execution: str = RUN) -> ExecutionView:
        return (await self._inspect(execution)).execution

    async def tokens(self, execution: str = RUN) -> dict[str, TokenView]:
        return {token.id: token for token in (await self._inspect(execution)).tokens}

    async def barriers(self, execution: str = RUN) -> dict[str, BarrierView]:
        return {barrier.node: barrier for barrier in (await self._inspect(execution)).barriers}

    async def _inspect(self, execution: str) -> Inspection:
        found = await self.ledger.inspect(execution)
        assert found is not None, f"execution {execution} does not exist"
        return found

    async def picture(self, execution: str = RUN) -> Picture:
        found = await self.ledger.inspect(execution)
        if found is not None:
            tokens = tuple(sorted(found.tokens, key=lambda token: token.id))
            barriers = tuple(sorted(found.barriers, key=lambda barrier: barrier.id))
            found = Inspection(found.execution, tokens, barriers)
        machine = await self.ledger.machine(execution) if hasattr(self.ledger, "machine") else None
        return Picture(found, tuple(await self.events(execution)), machine)

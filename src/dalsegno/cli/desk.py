"""What commands ask: of a store that is opened here, or of a server. The engine's own client is a desk as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dalsegno.engine.approvals import Approval
from dalsegno.engine.definitions import Program
from dalsegno.engine.starting import StartOptions
from dalsegno.handle import Calls
from dalsegno.model.definition import Definition, Version
from dalsegno.model.execution import ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.machine import MachineView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.clock import Clock
from dalsegno.ports.ledger import WorkerView


class DeskLedger(Protocol):
    def now(self) -> float: ...

    async def inspect(self, execution: str) -> Inspection | None: ...

    async def machine(self, execution: str) -> MachineView | None: ...

    async def workers(self) -> Sequence[WorkerView]: ...


class DeskArchive(Protocol):
    async def definition(self, name: str, version: Version = None) -> Definition | None: ...

    async def definition_by_hash(self, hash: str) -> Definition | None: ...

    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]: ...

    async def versions(self, name: str) -> list[Definition]: ...

    async def aliases(self, name: str) -> dict[str, int]: ...

    async def set_alias(self, name: str, alias: str, version: int) -> None: ...

    async def remove_alias(self, name: str, alias: str) -> bool: ...


class DeskStack(Protocol):
    @property
    def clock(self) -> Clock: ...

    @property
    def ledger(self) -> DeskLedger: ...

    @property
    def archive(self) -> DeskArchive: ...


class DeskDefinitions(Protocol):
    async def by_hash(self, hash: str) -> Program: ...


class DeskCommits(Protocol):
    @property
    def transitions(self) -> int:
        """Grows when something is known to have changed: it is time to look again."""


class Desk(Calls, Protocol):
    @property
    def stack(self) -> DeskStack: ...

    @property
    def definitions(self) -> DeskDefinitions: ...

    @property
    def committer(self) -> DeskCommits: ...

    async def open_slots(self, inspection: Inspection) -> Mapping[str, tuple[str, ...]]:
        """What has not arrived at each barrier, by name."""

    async def start(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str: ...

    async def submit(
        self, workflow: str, payload: Any = None, options: StartOptions | None = None
    ) -> str: ...

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]: ...

    async def pending_approvals(self, workflow: str | None = None, limit: int = 100) -> list[Approval]: ...

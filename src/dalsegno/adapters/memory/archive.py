"""MemoryArchive: definitions and history beside the memory ledger's rows."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.adapters.memory.store import MemoryExecution, MemoryStore
from dalsegno.adapters.memory.views import execution_view
from dalsegno.core.settlement import TokenRow
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, Version, check_alias, no_such_version, read_version
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.clock import Clock


class MemoryArchive:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        versions = [found for (owner, _), found in self.store.definitions.items() if owner == name]
        same = next((found for found in versions if found.hash == hash), None)
        if same is None:
            same = Definition(name, len(versions) + 1, hash, kind, source, self.clock.now())
            self.store.definitions[name, same.version] = same
        self.store.current[name] = same.version
        return same

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        wanted = read_version(version)
        if wanted is None:
            number = self.store.current.get(name, 0)
        else:
            number = wanted if isinstance(wanted, int) else self.store.aliases.get((name, wanted), 0)
        return self.store.definitions.get((name, number))

    async def definition_by_hash(self, hash: str) -> Definition | None:
        return next((found for found in self.store.definitions.values() if found.hash == hash), None)

    async def definitions(self) -> list[Definition]:
        return [self.store.definitions[name, number] for name, number in sorted(self.store.current.items())]

    async def versions(self, name: str) -> list[Definition]:
        found = [found for (owner, _), found in self.store.definitions.items() if owner == name]
        return sorted(found, key=lambda definition: definition.version, reverse=True)

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        check_alias(alias)
        if (name, version) not in self.store.definitions:
            raise NotFound(no_such_version(name, version))
        self.store.aliases[name, alias] = version

    async def remove_alias(self, name: str, alias: str) -> bool:
        return self.store.aliases.pop((name, alias), None) is not None

    async def aliases(self, name: str) -> dict[str, int]:
        found = sorted(self.store.aliases.items())
        return {alias: version for (owner, alias), version in found if owner == name}

    async def execution(self, execution: str) -> ExecutionView | None:
        found = self.store.executions.get(execution)
        return execution_view(found) if found is not None else None

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        rows = {name: self.store.executions.get(name) for name in executions}
        return {name: row.row.state for name, row in rows.items() if row is not None}

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        rows = sorted(self.store.executions.values(), key=_age, reverse=True)
        if before is not None:
            mark = self.store.executions.get(before)
            rows = [row for row in rows if mark is not None and _age(row) < _age(mark)]
        return [execution_view(row) for row in rows if _matches(row, where)][:limit]

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        found = self.store.executions.get(execution)
        return found.events[after : after + limit] if found is not None else []

    async def remove_ended(self, before: float, limit: int = 500) -> int:
        old = [
            name
            for name, found in self.store.executions.items()
            if found.row.state in ENDED
            and found.row.ended_at is not None
            and found.row.ended_at < before
            and f"{name}/ended" not in self.store.outbox
        ][:limit]
        for name in old:
            del self.store.executions[name]
        for key in [key for key in self.store.blobs if key[0] in old]:
            del self.store.blobs[key]
        return len(old)


def _age(execution: MemoryExecution) -> tuple[float, str]:
    return execution.new.created_at, execution.new.id


def _matches(execution: MemoryExecution, where: ExecutionFilter) -> bool:
    new = execution.new
    return (
        (where.workflow is None or new.workflow == where.workflow)
        and (not where.states or execution.row.state in where.states)
        and (where.parent is None or new.parent == where.parent)
        and (new.kind in where.kinds if where.kinds else new.kind != "schedule")
        and (not where.relations or new.relation in where.relations)
        and all(tag in new.tags for tag in where.tags)
        and (not where.awaits_signal or any(map(_awaits_signal, execution.tokens.values())))
    )


def _awaits_signal(token: TokenRow) -> bool:
    return token.state == "parked" and token.awaits is not None and token.awaits.startswith(SIGNAL)

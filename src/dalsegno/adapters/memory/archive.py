"""MemoryArchive: definitions and history, based on the memory ledger's rows."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import islice

from msgspec import structs

from dalsegno.adapters.memory.store import MemoryExecution, MemoryStore, execution_view, outline
from dalsegno.core.settlement import TokenRow
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.errors import NotFound
from dalsegno.model.definition import (
    PART_SIGN,
    Definition,
    Needs,
    Version,
    check_alias,
    is_adopted_name,
    no_such_version,
    read_version,
    refuse_needed,
    unknown,
)
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, Ending, ExecutionState, ExecutionView
from dalsegno.model.search import error_words, id_range, names_workflow, words_of
from dalsegno.model.token import UNFINISHED
from dalsegno.ports.archive import ExecutionFilter, Place
from dalsegno.ports.clock import Clock

UNPUBLISHED = 7 * 86_400.0
"""Extra seconds for which retention keeps an execution whose completion is not published yet."""


class MemoryArchive:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        versions = [found for (owner, _), found in self.store.definitions.items() if owner == name]
        same = next((found for found in versions if found.hash == hash), None)
        if same is None:
            highest = max((found.version for found in versions), default=0)
            number = max(highest, self.store.removed.get(name, 0)) + 1
            same = Definition(name, number, hash, kind, source, self.clock.now())
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

    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]:
        current = (
            (name, number)
            for name, number in self.store.current.items()
            if name > after and not is_adopted_name(name)
        )
        page = nsmallest(limit, current)
        return [structs.replace(self.store.definitions[each], source=b"") for each in page]

    async def versions(
        self, name: str, limit: int | None = None, before: int | None = None
    ) -> list[Definition]:
        numbers = [number for owner, number in self.store.definitions if owner == name]
        wanted = sorted((each for each in numbers if before is None or each < before), reverse=True)
        return [structs.replace(self.store.definitions[name, each], source=b"") for each in wanted[:limit]]

    async def version_of(self, name: str, hash: str | None = None) -> int | None:
        if hash is None:
            return self.store.current.get(name)
        found = self.store.definitions.items()
        return next((number for (owner, number), each in found if (owner, each.hash) == (name, hash)), None)

    async def count_adopted(self, most: int) -> int:
        return min(sum(is_adopted_name(name) for name, _ in self.store.definitions), most)

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

    async def remove_definition(self, name: str, version: int | None = None) -> int:
        current = self.store.current.get(name)
        if current is None or (version is not None and (name, version) not in self.store.definitions):
            raise unknown(name, version)
        parts = {owner for owner, _ in self.store.definitions if owner.startswith(f"{name}{PART_SIGN}")}
        workflows = {name} if version is not None else {name, *parts}
        refuse_needed(name, version, self._needs(name, version, workflows))
        for part in workflows - {name}:
            self._remove_definition(part, None)
        return self._remove_definition(name, version)

    def _needs(self, name: str, version: int | None, workflows: set[str]) -> Needs:
        unfinished = (
            found.row.id
            for found in self.store.executions.values()
            if found.row.state not in ENDED
            and found.row.kind != "schedule"
            and found.new.workflow in workflows
            and version in (None, found.new.version)
        )
        aliases = sorted(self.store.aliases.items())
        return Needs(
            unfinished=tuple(islice(unfinished, 3)),
            aliases=tuple(
                alias for (owner, alias), meant in aliases if owner == name and version in (None, meant)
            ),
            current=self.store.current.get(name) == version,
        )

    def _remove_definition(self, name: str, version: int | None) -> int:
        numbers = [
            number for owner, number in self.store.definitions if owner == name and version in (None, number)
        ]
        for number in numbers:
            del self.store.definitions[name, number]
            self.store.removed[name] = max(number, self.store.removed.get(name, 0))
        if version is None:
            self.store.current.pop(name, None)
        return len(numbers)

    async def execution(self, execution: str) -> ExecutionView | None:
        found = self.store.executions.get(execution)
        return execution_view(found) if found is not None else None

    async def outline(self, execution: str) -> ExecutionView | None:
        found = self.store.executions.get(execution)
        return outline(found) if found is not None else None

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        rows = {name: self.store.executions.get(name) for name in executions}
        return {name: row.row.state for name, row in rows.items() if row is not None}

    async def endings(self, executions: Sequence[str]) -> dict[str, Ending]:
        views = [await self.execution(name) for name in executions]
        return {view.id: ending for view in views if view is not None and (ending := view.ending) is not None}

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        rows = sorted(self.store.executions.values(), key=_age, reverse=True)
        if before is not None:
            mark = self._place(before)
            rows = [row for row in rows if mark is not None and _age(row) < mark]
        return [outline(row) for row in islice((row for row in rows if _matches(row, where)), limit)]

    def _place(self, before: str | Place) -> tuple[float, str] | None:
        if isinstance(before, Place):
            return before.created_at, before.id
        found = self.store.executions.get(before)
        return _age(found) if found is not None else None

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        found = self.store.executions.get(execution)
        return found.events[after : after + limit] if found is not None else []

    async def count_tagged(self, name: str, value: str, most: int) -> int:
        found = sum((name, value) in stored.new.tags for stored in self.store.executions.values())
        return min(found, most)

    async def newest_events(self, executions: Sequence[str]) -> dict[str, int]:
        rows = {name: self.store.executions.get(name) for name in executions}
        return {name: row.row.seq for name, row in rows.items() if row is not None}

    async def is_told(self, execution: str) -> bool:
        found = self.store.executions.get(execution)
        if found is None or found.row.state not in ENDED:
            return False
        return not any(token.state in UNFINISHED for token in found.tokens.values())

    # -- retention --------------------------------------------------------------------------------------------

    async def remove_ended(
        self, before: float, limit: int = 500, states: Sequence[ExecutionState] = ()
    ) -> int:
        unfinished = self._needed()
        old = sorted(
            (found.row.ended_at, name)
            for name, found in self.store.executions.items()
            if self._is_removable(name, unfinished)
            and found.row.ended_at is not None
            and found.row.ended_at < before
            and (name not in self.store.publications or found.row.ended_at < before - UNPUBLISHED)
            and (not states or found.row.state in states)
        )
        return self._remove([name for _, name in old[:limit]])

    async def remove(self, executions: Sequence[str]) -> list[str]:
        unfinished = self._needed()
        found = [name for name in executions if self._is_removable(name, unfinished)]
        self._remove(found)
        return found

    def _is_removable(self, execution: str, unfinished: frozenset[str]) -> bool:
        found = self.store.executions.get(execution)
        owed = f"{execution}/ended" in self.store.outbox
        return found is not None and found.row.state in ENDED and not owed and execution not in unfinished

    def _needed(self) -> frozenset[str]:
        """Return executions whose clean-up is a dead letter, or continues in an execution that may need their state.

        And those that have handed over a task that is not finished.
        """
        letters = {entry.execution for entry in self.store.outbox.values() if entry.topic == "cleanup"}
        letters.update(name for kind, name in self.store.records if kind == "cleanup")
        needed = {
            found.new.parent
            for found in self.store.executions.values()
            if found.new.relation in ("cleanup", "task")
            and (found.row.state not in ENDED or found.new.id in letters)
        }
        return frozenset(letters.union(parent for parent in needed if parent is not None))

    def _remove(self, executions: Sequence[str]) -> int:
        gone = set(executions)
        for name in gone:
            del self.store.executions[name]
            self.store.stored_bytes.pop(name, None)
        for key in [key for key in self.store.blobs if key[0] in gone]:
            del self.store.blobs[key]
            self.store.blob_turns.pop(key, None)
        return len(gone)


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
        and _within(new.created_at, where.created_since, where.created_until)
        and _within(execution.row.ended_at, where.ended_since, where.ended_until)
        and (where.text is None or _says(execution, where.text))
    )


def _within(at: float | None, since: float | None, until: float | None) -> bool:
    if since is None and until is None:
        return True
    return at is not None and (since is None or at >= since) and (until is None or at < until)


def _says(execution: MemoryExecution, text: str) -> bool:
    new = execution.new
    words = words_of(text)
    return (
        (id_range(text) is not None and new.id.startswith(text))
        or new.idempotency_key == text
        or names_workflow(text, new.workflow)
        or any(value == text for _, value in new.tags)
        or (
            execution.row.state == "FAILED"
            and bool(words)
            and set(words) <= set(error_words(execution.row.error))
        )
    )


def _awaits_signal(token: TokenRow) -> bool:
    return token.state == "parked" and token.awaits is not None and token.awaits.startswith(SIGNAL)

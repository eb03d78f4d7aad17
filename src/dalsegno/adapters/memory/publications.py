"""MemoryPublications: marks of how far the statuses of executions are published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dalsegno.adapters.memory.store import MemoryExecution, MemoryStore
from dalsegno.model.execution import ENDED
from dalsegno.model.token import UNFINISHED
from dalsegno.ports.clock import Clock
from dalsegno.ports.messages import Claims, News, Unpublished, unpublished_page


class MemoryPublications:
    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    async def claim(self, owner: str, executions: Sequence[str], seconds: float) -> Claims:
        claims, now = Claims({}, set()), self.clock.now()
        for execution in executions:
            mark = self.store.publications.get(execution)
            if mark is None:
                continue
            if mark.owner in (None, owner) or mark.until <= now:
                mark.owner, mark.until = owner, now + seconds
                claims.marks[execution] = mark.confirmed
            else:
                claims.held.add(execution)
        return claims

    async def confirm(self, owner: str, confirmed: Mapping[str, int], ended: Collection[str] = ()) -> None:
        for execution in {*confirmed, *ended}:
            mark = self.store.publications.get(execution)
            if mark is None or mark.owner not in (None, owner):
                continue
            if execution in ended:
                del self.store.publications[execution]
            else:
                mark.confirmed = max(mark.confirmed, confirmed[execution])
                mark.owner = None

    async def news(self, after: Mapping[str, int], limit: int = 1000) -> dict[str, News]:
        found = {name: self.store.executions.get(name) for name in after}
        return {
            name: News(
                stored.new.workflow,
                stored.new.definition,
                stored.row.kind,
                stored.row.state,
                stored.row.priority,
                stored.new.tags,
                stored.events[after[name] : after[name] + limit],
                is_told=(is_told := _is_told(stored)),
                context=stored.row.context if is_told else None,
            )
            for name, stored in found.items()
            if stored is not None
        }

    async def last_events(self, executions: Sequence[str]) -> dict[str, int]:
        found = {name: self.store.executions.get(name) for name in executions}
        return {name: stored.row.seq for name, stored in found.items() if stored is not None}

    async def unfinished(self, after: str = "", limit: int = 1000) -> Unpublished:
        page = sorted(name for name in self.store.publications if name > after)[:limit]
        rows = [(name, self._has_more(name, self.store.publications[name].confirmed)) for name in page]
        return unpublished_page(rows, limit)

    def _has_more(self, execution: str, confirmed: int) -> bool:
        found = self.store.executions.get(execution)
        return found is None or found.swept or found.row.seq > confirmed


def _is_told(execution: MemoryExecution) -> bool:
    if execution.row.state not in ENDED:
        return False
    return not any(token.state in UNFINISHED for token in execution.tokens.values())

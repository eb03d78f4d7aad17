"""Room for what an execution needs: its journal gives way before a limit on stored bytes is reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from dalsegno.core.scripts.journal import read_chunk
from dalsegno.engine.journal.writing import COUNTED, NAMES, checkpoint_place, read_names
from dalsegno.engine.steps.values import blob_names
from dalsegno.errors import NotFound
from dalsegno.model.effect import StoreOutput
from dalsegno.model.transition import JOURNAL, Applied, Outcome, Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.records import Blobs

AT_ONCE = 64
"""Rows that are read together."""


class JournalRoom:
    def __init__(
        self, ledger: Ledger, blobs: Blobs, commit: Callable[[Transition], Awaitable[Outcome]]
    ) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._commit = commit

    async def make(self, execution: str) -> bool:
        """Remove the stored journal of an execution that would pass its limit. Return False if there is none."""
        rows = {name: data for name, data in (await stored_rows(self._ledger, execution)).items() if data}
        if not rows:
            return False
        effects = tuple([StoreOutput(name, b"") for name in rows])
        if not isinstance(await self._commit(Transition(execution, effects)), Applied):
            return False
        counted = sum(len(data) for data in rows.values() if len(data) > COUNTED)
        await self._blobs.charge(execution, -counted)
        if any(chunk.blobs for data in rows.values() if (chunk := read_chunk(data)) is not None):
            await self._prune(execution)
        return True

    async def _prune(self, execution: str) -> None:
        """Remove the blobs of earlier snapshots. Those of a turn that is being computed count as later ones."""
        view = await self._ledger.machine(execution)
        if view is None:
            return
        kept, waiting = set[str](), set(blob_names([view.snapshot]))
        while waiting:
            name = waiting.pop()
            kept.add(name)
            try:
                waiting |= blob_names([await self._blobs.get(execution, name)]) - kept
            except NotFound:
                continue  # a value that looks like a name
        await self._blobs.prune(execution, view.version, kept)


async def stored_rows(ledger: Ledger, execution: str) -> dict[str, bytes]:
    """Return all rows of an execution's journal by their names: chunks, key entries, checkpoints and their list."""
    rows: dict[str, bytes] = {}
    for kind in (JOURNAL, f"{JOURNAL}key/"):
        first = 0
        while page := await ledger.outputs(
            execution, [f"{kind}{number}" for number in range(first, first + AT_ONCE)]
        ):
            rows |= page
            first += AT_ONCE
    rows |= await ledger.outputs(execution, [NAMES])
    names = read_names(rows.get(NAMES, b""))
    if names:
        rows |= await ledger.outputs(execution, [checkpoint_place(name) for name, _ in names])
    return rows

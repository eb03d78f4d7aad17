"""The turns of an execution that its journal keeps, read back: listed, and one of them as a machine.

The present machine of an execution that has not ended, and the one that is kept with a failure, are its newest turn,
whether or not the journal has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dalsegno.core.scripts.journal import (
    CalledTask,
    Entry,
    SetTimer,
    decode_entry,
    encoded_entries,
    read_chunk,
    unpack_key,
)
from dalsegno.core.scripts.kept import decode_kept
from dalsegno.engine.journal.room import stored_rows
from dalsegno.engine.journal.writing import NAMES, Journals
from dalsegno.errors import NotFound
from dalsegno.model.execution import SCRIPTED, ExecutionView
from dalsegno.model.transition import JOURNAL
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger

KEYS = f"{JOURNAL}key/"
SHOWN = 20
"""Turns that a message names."""


class TurnRecord(Struct, frozen=True):
    """A turn that can be looked at, and started from."""

    turn: int
    """Its number, from 1."""
    at: float
    """When it was committed."""
    line: int
    """Where the machine waits after it."""
    awaits: str
    """What it waits for; empty if that is not kept."""
    checkpoint: str | None
    failed: bool
    """The next turn ended in an error that nothing caught."""
    size: int
    """Bytes of the machine."""


class JournaledMachine(Struct, frozen=True):
    """A machine as it was after a turn."""

    execution: str
    definition: str
    """The content hash of its program."""
    turn: int
    at: float
    line: int
    awaits: str
    checkpoint: str | None
    snapshot: bytes
    """As it is stored: sealed, if it is one of a Python workflow."""
    entry: Entry
    """What was known and pending then."""


class TurnHistory:
    def __init__(self, ledger: Ledger, archive: Archive) -> None:
        self._ledger = ledger
        self._archive = archive
        self._journals = Journals(ledger)

    async def turns(self, execution: str) -> list[TurnRecord]:
        """Return the turns that are kept, oldest first. Raises NotFound for an execution that does not exist."""
        view = await self._view(execution)
        entries = await self.entries(view)
        newest = entries[-1].turn if entries and view.state == "FAILED" else None
        return [
            TurnRecord(
                each.turn,
                each.at,
                each.line,
                each.awaits,
                each.checkpoint or None,
                each.turn == newest,
                len(each.snapshot),
            )
            for each in entries
        ]

    async def machine_at(self, execution: str, turn: int | str) -> JournaledMachine:
        """Return the machine after a turn, which is given by its number or as the name of a checkpoint. Raises
        NotFound, with the turns that are kept.
        """
        view = await self._view(execution)
        entry = await self.entry(view, turn)
        return JournaledMachine(
            execution,
            entry.definition or view.definition,
            entry.turn,
            entry.at,
            entry.line,
            entry.awaits,
            entry.checkpoint or None,
            entry.snapshot,
            entry,
        )

    async def _view(self, execution: str) -> ExecutionView:
        view = await self._archive.execution(execution)
        if view is None:
            raise NotFound(f"there is no execution {execution} in this store")
        return view

    async def entry(
        self, view: ExecutionView, turn: int | str, stored: Sequence[Entry] | None = None
    ) -> Entry:
        """Return a turn. ``stored``: the entries of the journal, if they are read already."""
        entries = await self.entries(view, stored)
        for each in reversed(entries):
            if each.turn == turn or (isinstance(turn, str) and each.checkpoint == turn):
                return each
        raise NotFound(_missing(view, entries, turn))

    async def entries(self, view: ExecutionView, stored: Sequence[Entry] | None = None) -> list[Entry]:
        """Return what is kept of an execution's turns, oldest first."""
        if view.kind not in SCRIPTED:
            return []
        stored = await self.stored(view.id) if stored is None else stored
        found = {each.turn: each for each in stored if each.snapshot}
        newest = await self._present(view)
        if newest is not None:
            found.setdefault(newest.turn, newest)
        return [found[turn] for turn in sorted(found)]

    async def stored(self, execution: str) -> list[Entry]:
        """Return the entries of the journal, in no order. An entry without a machine is that of an ending."""
        found: dict[int, Entry] = {}
        rows = await stored_rows(self._ledger, execution)
        keys = dict(
            [key for name, data in rows.items() if name.startswith(KEYS) and (key := unpack_key(data))]
        )
        for name, data in rows.items():
            chunk = read_chunk(data) if name != NAMES and not name.startswith(KEYS) else None
            if chunk is None:
                continue
            try:
                encoded = encoded_entries(chunk, keys.get(chunk.key))
                found.update((entry.turn, entry) for entry in map(decode_entry, encoded))
            except ValueError:
                continue  # its key entry gave way
        return list(found.values())

    async def _present(self, view: ExecutionView) -> Entry | None:
        """Return the machine as it is now, or as it was before the turn that failed."""
        if view.ended_at is not None:
            return _before_failure(view)
        machine = await self._ledger.machine(view.id)
        if machine is None or not machine.snapshot:
            return None
        pending = await self._journals.pending(view.id)
        return Entry(
            machine.version,
            view.touched_at,
            machine.line,
            "",
            "",
            machine.cancel,
            machine.interrupted,
            machine.snapshot,
            machine.reachable,
            machine.completions,
            (),
            tuple([each for each in pending if isinstance(each, CalledTask)]),
            tuple([each for each in pending if isinstance(each, SetTimer)]),
            machine.signals,
        )


def _before_failure(view: ExecutionView) -> Entry | None:
    if view.state != "FAILED" or view.context is None:
        return None
    kept = decode_kept(view.context)
    if not kept.snapshot or not kept.turn:
        return None
    return Entry(
        kept.turn,
        view.ended_at or view.touched_at,
        kept.line,
        "",
        "",
        kept.cancel,
        kept.interrupted,
        kept.snapshot,
        kept.reachable,
        kept.completions,
        (),
        tuple([CalledTask.of(task) for task in kept.tasks]),
        tuple([SetTimer.of(timer) for timer in kept.timers]),
        kept.signals,
    )


def _missing(view: ExecutionView, entries: list[Entry], turn: int | str) -> str:
    what = f"turn {turn}" if isinstance(turn, int) else f"a checkpoint '{turn}'"
    if view.kind not in SCRIPTED:
        return f"execution {view.id} is a {view.kind}: only scripts and Python workflows have turns"
    if not entries:
        return (
            f"execution {view.id} has no {what}: nothing is kept of its turns. It waited for nothing, or its workflow"
            " has journal: off, or it ran under an earlier release"
        )
    kept = ", ".join(_ranges([each.turn for each in entries])[-SHOWN:])
    names = [each.checkpoint for each in entries if each.checkpoint]
    named = f", and the checkpoints {', '.join(repr(name) for name in names[-SHOWN:])}" if names else ""
    return f"execution {view.id} has no {what}; kept are the turns {kept}{named}"


def _ranges(turns: list[int]) -> list[str]:
    found: list[list[int]] = []
    for turn in turns:
        if found and turn == found[-1][1] + 1:
            found[-1][1] = turn
        else:
            found.append([turn, turn])
    return [str(first) if first == last else f"{first} to {last}" for first, last in found]

"""Writing the journal of a machine: turns are gathered in memory, and stored with the commit of a later turn.

- A turn that other processes, or people, may soon want is stored with its own commit: one at a checkpoint, one that
  waits for time or people, one whose machine is not cached, and every turn where the workflow says so.
- The others are stored by the chunk. A process that dies loses at most the turns that it has gathered: no execution
  needs them to continue, and a failure keeps its machine with its ending.
- Chunks take turns in a fixed number of places, so that old turns are overwritten and nothing is searched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.scripts.journal import (
    KEY_CHUNKS,
    LARGE,
    PER_CHUNK,
    CalledTask,
    Chunk,
    Entry,
    SetTimer,
    Turned,
    chunk_number,
    decode_entry,
    encode_chunk,
    encode_entry,
    encoded_entries,
    ends_chunk,
    entry_of,
    pack_key,
    read_chunk,
    timer_of,
    unpack_key,
)
from dalsegno.core.scripts.token_bodies import decode_task
from dalsegno.lang.runtime.effects import Awaitable, asks_people
from dalsegno.model.effect import Effect, StoreOutput
from dalsegno.model.machine import JournalSetting
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import JOURNAL
from dalsegno.ports.ledger import Ledger

MOST_GATHERED = 256 * 1024
"""Bytes of machines that are gathered before they are stored."""
MOST_CHECKPOINTS = 100
"""Checkpoints per execution; of more, the oldest give way."""
NAMES = f"{JOURNAL}names"
MOST_SET_ASIDE = 1000
FEW_PLACES = 4
"""Places up to which all are read together."""
COUNTED = 1024
"""Bytes of a row from which on it counts towards the stored bytes of its execution."""

Key = tuple[int, bytes]
Names = tuple[tuple[str, int], ...]

_decode_names = msgspec.json.Decoder(Names).decode
_encode_json = msgspec.json.Encoder().encode


def read_names(stored: bytes) -> Names:
    """Return the checkpoints with their turns, from the row that lists them."""
    return _decode_names(stored) if stored else ()


class OpenJournal(Struct, frozen=True, gc=False):
    """The journal of one execution as the next turn finds it."""

    setting: JournalSetting
    turn: int = 0
    """The newest turn in it."""
    last: Entry | None = None
    """The newest entry that is derived already."""
    chunk: tuple[tuple[int, bytes], ...] = ()
    """The derived entries of the chunk that is being filled, encoded."""
    gathered: tuple[Turned, ...] = ()
    """Later turns."""
    size: int = 0
    """Bytes of the gathered machines."""
    blobs: frozenset[str] = frozenset()
    key: Key | None = None
    names: Names = ()
    rows: tuple[tuple[str, int], ...] = ()
    """Bytes of the rows that are known to be stored."""


class Written(Struct, gc=False):
    journal: OpenJournal
    effects: tuple[Effect, ...]
    freed: int
    """Bytes of the rows that are replaced, where they count."""


def place_of(setting: JournalSetting, chunk: int) -> str:
    return f"{JOURNAL}{chunk}" if setting.turns is None else f"{JOURNAL}{chunk % places(setting)}"


def key_place(setting: JournalSetting, turn: int) -> str:
    """Return the place of the key entry that is of this turn. There are more places than chunks with different ones."""
    made = _group(turn)
    return f"{JOURNAL}key/{made if setting.turns is None else made % (places(setting) + 2)}"


def _group(turn: int) -> int:
    """Return the number of the chunks, taken together, that share a key entry."""
    return chunk_number(turn) // KEY_CHUNKS


def checkpoint_place(name: str) -> str:
    return f"{JOURNAL}at/{name}"


def places(setting: JournalSetting) -> int:
    """Return the number of chunks that are kept: while one is being filled, the others hold enough turns."""
    return -(-(setting.turns or 0) // PER_CHUNK) + 1


def waits_long(awaiting: Awaitable | None) -> bool:
    """Return True if a machine waits for time or people, and not only for what runs."""
    waiting = [awaiting] if awaiting is not None else []
    while waiting:
        one = waiting.pop()
        if one.kind in ("timer", "signal") or (one.kind == "task" and asks_people(one.name)):
            return True
        waiting.extend(one.items)
    return False


def gathered(journal: OpenJournal, turn: int, turned: Turned, size: int) -> OpenJournal:
    """Add a turn."""
    return replace(
        journal,
        turn=turn,
        gathered=(*journal.gathered, turned),
        size=journal.size + size,
        blobs=journal.blobs | turned.blobs if turned.blobs else journal.blobs,
    )


def written(journal: OpenJournal) -> Written:
    """Return the effects that store what is gathered."""
    chunk, last, effects = list(journal.chunk), journal.last, list[Effect]()
    names = journal.names
    for turned in journal.gathered:
        last = entry_of(last, turned)
        data = encode_entry(last)
        chunk.append((last.turn, data))
        if last.checkpoint:
            alone = encode_chunk([(last.turn, data)], turned.blobs, None)
            effects.append(StoreOutput(checkpoint_place(last.checkpoint), alone))
            names, gone = _named(names, last.checkpoint, last.turn)
            effects += [StoreOutput(checkpoint_place(name), b"") for name in gone]
    if names is not journal.names:
        effects.append(StoreOutput(NAMES, _encode_json(names)))
    number = chunk_number(chunk[-1][0])
    data, key = _encoded(chunk, journal)
    if key is not None and key is not journal.key:
        effects.append(StoreOutput(key_place(journal.setting, key[0]), pack_key(*key)))
    effects.append(StoreOutput(place_of(journal.setting, number), data))
    is_full = ends_chunk(chunk[-1][0])
    rows, freed = _replaced(journal, effects)
    after = replace(
        journal,
        last=last,
        chunk=() if is_full else tuple(chunk),
        gathered=(),
        size=0,
        blobs=frozenset() if is_full else journal.blobs,
        key=key,
        names=names,
        rows=rows,
    )
    return Written(after, tuple(effects), freed)


def _encoded(chunk: list[tuple[int, bytes]], journal: OpenJournal) -> tuple[bytes, Key | None]:
    """Return the chunk, and the key entry that its machines share if they are large."""
    key, (turn, first) = journal.key, chunk[0]
    if max(len(data) for _, data in chunk) < LARGE:
        return encode_chunk(chunk, journal.blobs, None), key
    if key is not None and _group(turn) == _group(key[0]):
        data = encode_chunk(chunk, journal.blobs, key)
        is_worth_it = key[0] == turn or len(data) < max(LARGE, len(first) // 4)
        return (data if is_worth_it else encode_chunk(chunk, journal.blobs, None)), key
    own = (turn, first)
    return encode_chunk(chunk, journal.blobs, own), own


def _named(names: Names, name: str, turn: int) -> tuple[Names, list[str]]:
    """Return the names with a new one, and those that give way to it."""
    kept = [*((other, when) for other, when in names if other != name), (name, turn)]
    return tuple(kept[-MOST_CHECKPOINTS:]), [other for other, _ in kept[:-MOST_CHECKPOINTS]]


def _replaced(journal: OpenJournal, effects: Iterable[Effect]) -> tuple[tuple[tuple[str, int], ...], int]:
    rows, freed = dict(journal.rows), 0
    for effect in effects:
        if isinstance(effect, StoreOutput):
            before = rows.get(effect.id, 0)
            freed += before if before > COUNTED else 0
            rows[effect.id] = len(effect.data)
    return tuple(rows.items()), freed


class Journals:
    """The journals of machines that are not cached, or were not when their last turn was committed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._set_aside: OrderedDict[str, OpenJournal] = OrderedDict()

    def set_aside(self, execution: str, journal: OpenJournal | None) -> None:
        """Keep the journal of a machine that runs, in case its commit is refused."""
        if journal is None:
            return
        self._set_aside[execution] = journal
        self._set_aside.move_to_end(execution)
        if len(self._set_aside) > MOST_SET_ASIDE:
            self._set_aside.popitem(last=False)

    def forget(self, execution: str) -> None:
        self._set_aside.pop(execution, None)

    def known(self, execution: str, turn: int) -> OpenJournal | None:
        """Return the journal, if this process knows it up to this turn."""
        found = self._set_aside.pop(execution, None)
        return found if found is not None and found.turn == turn else None

    async def opened(self, execution: str, setting: JournalSetting, turn: int) -> OpenJournal:
        """Return the journal of a machine whose last turns another process has run: from the store, without the turns
        that are not stored. ``turn``: the newest one that was committed.
        """
        if turn == 0:
            return OpenJournal(setting)
        number = chunk_number(turn + 1)
        place = place_of(setting, number)
        asked = {place, NAMES, place_of(setting, chunk_number(turn))}
        if setting.turns is not None and places(setting) <= FEW_PLACES:
            asked.update(place_of(setting, each) for each in range(places(setting)))
        rows = await self._ledger.outputs(execution, sorted(asked))
        names = read_names(rows.get(NAMES, b""))
        sizes = tuple([(name, len(data)) for name, data in rows.items()])
        journal = OpenJournal(setting, turn, names=names, rows=sizes)
        chunk = read_chunk(rows.get(place, b""))
        if chunk is None or chunk_number(chunk.last) != number or chunk.last > turn:
            older = read_chunk(rows.get(place_of(setting, chunk_number(turn)), b""))
            if older is None or not older.key:
                return journal
            return replace(journal, key=await self._key(execution, setting, older))
        key = await self._key(execution, setting, chunk)
        try:
            data = encoded_entries(chunk, key[1] if key is not None else None)
            entries = [decode_entry(each) for each in data]
        except ValueError:
            return journal
        last = entries[-1] if entries[-1].turn == turn else None
        turns = tuple([(entry.turn, each) for entry, each in zip(entries, data, strict=True)])
        return replace(journal, last=last, chunk=turns, blobs=frozenset(chunk.blobs), key=key)

    async def _key(self, execution: str, setting: JournalSetting, chunk: Chunk) -> Key | None:
        if not chunk.key:
            return None
        place = key_place(setting, chunk.key)
        key = unpack_key((await self._ledger.outputs(execution, [place])).get(place, b""))
        return key if key is not None and key[0] == chunk.key else None

    async def pending(self, execution: str) -> tuple[CalledTask | SetTimer, ...]:
        """Return the tasks and timers that are pending by the store."""
        inspection = await self._ledger.inspect(execution)
        found: list[CalledTask | SetTimer] = []
        for token in inspection.tokens if inspection is not None else ():
            if token.state not in UNFINISHED:
                continue
            if token.kind == "task" and (promise := decode_task(token.data).promise) is not None:
                found.append(CalledTask(promise, token.node, token.data, token.id, token.priority))
            elif token.kind == "timer" and token.due is not None:
                found.append(timer_of(token.data, token.due))
        return tuple(found)

    async def blobs(self, execution: str, setting: JournalSetting) -> Collection[str] | None:
        """Return the names of the blobs that stored turns need; None: all are needed."""
        if setting.turns == 0:
            return ()
        if setting.turns is None:
            return None
        asked = [f"{JOURNAL}{number}" for number in range(places(setting))]
        rows = await self._ledger.outputs(execution, [*asked, NAMES])
        names = read_names(rows.pop(NAMES, b""))
        if names:
            rows |= await self._ledger.outputs(execution, [checkpoint_place(name) for name, _ in names])
        chunks = [read_chunk(data) for data in rows.values()]
        return {name for chunk in chunks if chunk is not None for name in chunk.blobs}

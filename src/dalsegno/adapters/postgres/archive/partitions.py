"""History partitions by day: created ahead, dropped when nothing that started on their day is kept.

A row of history belongs to an execution's number, whose upper part is the day of its start. A day is dropped as a
whole once it is over and every execution of it is outdated: the executions' own rows are removed one by one, and
with the last of them the day's partitions. Until then the partition's orphaned rows are never read.

Only the owner of the history tables can create partitions for them, whatever others are granted.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from dalsegno.adapters.postgres.store import PostgresStore, Transaction, day_at, day_of, numbers_of
from dalsegno.errors import DalSegnoError, OperatorError, SchemaMismatch, Unavailable


class TableOwnership(Struct, frozen=True):
    """In the order of the columns of ``partitions.ownership``. Names are quoted for SQL."""

    role: str
    owner: str
    owner_is_superuser: bool
    owns: bool
    """True also for a member of the role that owns the tables."""
    creates: bool
    """The role may create tables in the schema at all."""
    writes: bool

    @property
    def suffices(self) -> bool:
        return self.owns and self.creates

    def complaint(self) -> str:
        if not self.owns:
            return f"the role {self.role} does not own the tables of history ({self.owner} does)"
        return f"the role {self.role} may not create tables in the schema `dalsegno`"

    def cure(self) -> str:
        if self.owns:
            return f"Let the owner of the schema or a superuser run: {self._statements()}"
        if self.owner_is_superuser:
            return f"Let a superuser run: {self._statements()}"
        return f"Run it as {self.owner}, or let a superuser run: {self._statements()}"

    def _statements(self) -> str:
        if self.owns:
            return f"GRANT CREATE ON SCHEMA dalsegno TO {self.role};"
        if not self.owner_is_superuser:
            return f"GRANT {self.owner} TO {self.role};"
        # A member of a superuser's role can become that. The owner of the schema drops the old partitions, too.
        return (
            f"ALTER SCHEMA dalsegno OWNER TO {self.role};"
            f" ALTER TABLE dalsegno.event OWNER TO {self.role};"
            f" ALTER TABLE dalsegno.output OWNER TO {self.role};"
        )


logger = logging.getLogger("dalsegno.postgres")

TABLES = ("event", "output")
AHEAD = 7
"""Days whose partitions are created before they begin."""
MAINTAIN_EVERY = 6 * 3600.0
LASTING = 1.0
"""Seconds after which a process logs that partitions are missing for days to come: a shorter-lived one does not
need them.
"""
LOOKS = 4
"""Tries of a store that is opened, before it continues without the partitions it needs."""
JUDGE_EVERY = 60.0
"""Seconds between two checks of which days are still needed."""
JUDGED = 30
"""Days per check: a store may hold years of them."""
PATIENCE = "200ms"
"""How long changing the list of partitions may wait for other transactions, since others queue behind it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"event_(\d{8})")


def name_of(table: str, day: int) -> str:
    return f"{table}_{_date_of(day):%Y%m%d}"


def name_of_day(day: int) -> str:
    """Return the day as people write it."""
    return f"{_date_of(day):%Y-%m-%d}"


def _date_of(day: int) -> datetime:
    return _EPOCH + timedelta(days=day)


def read_name(name: str) -> int | None:
    """Return the day of a partition of ``event``; None for the default partition."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return (datetime.strptime(match[1], "%Y%m%d").replace(tzinfo=UTC) - _EPOCH).days


async def make_ahead(store: PostgresStore, days: int = AHEAD) -> int:
    """Create the partitions of today and the next days, if this role may; return how many days were missing."""
    missing = missing_among(await _partitions(store), day_at(store.now()), days)
    if missing and not (ownership := await ownership_of(store)).suffices:
        logger.debug("no partitions are made: %s", ownership.complaint())  # a warning has named the cure
        return len(missing)
    for day in missing:
        await _make(store, day)
    return len(missing)


def missing_among(names: Sequence[str], today: int, days: int = AHEAD) -> list[int]:
    """Return which of today and the next days have no partition; ``names`` are all partitions of ``event``."""
    known = {read_name(name) for name in names}
    return [day for day in range(today, today + days + 1) if day not in known]


async def ownership_of(store: PostgresStore) -> TableOwnership:
    [row] = await store.fetch("partitions.ownership")
    return TableOwnership(*row)


async def _make(store: PostgresStore, day: int) -> None:
    """Create a day's partitions; harmless if another process does the same.

    If the default partition has rows of that day already, the day stays there: PostgreSQL refuses to split it off,
    and would read all of them before it says so, while others wait.
    """
    first, end = numbers_of(day)
    try:
        [(too_late,)] = await store.fetch("partitions.any_in_other", first, end)
        if too_late:
            logger.info("the history of %s stays in the common partition", name_of_day(day))
            return
        async with store.transaction() as rows:
            await rows.connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
            for table in TABLES:
                await rows.connection.execute(
                    f"CREATE TABLE IF NOT EXISTS dalsegno.{name_of(table, day)}"
                    f" PARTITION OF dalsegno.{table} FOR VALUES FROM ({first}) TO ({end})"
                )
                await _sample_alike(rows, table, name_of(table, day))
    except DalSegnoError as error:
        if name_of("event", day) in await _partitions(store):
            logger.debug("another process has made the partitions of %s (%s)", name_of_day(day), error)
        else:
            logger.info("the history of %s gets no partition of its own now (%s)", name_of_day(day), error)


async def _partitions(store: PostgresStore) -> list[str]:
    return [name for (name,) in await store.fetch("partitions.names", "dalsegno.event")]


async def _sample_alike(rows: Transaction, table: str, partition: str) -> None:
    """Copy the table's statistics settings to the partition, which does not inherit them."""
    samples = await rows.fetch("partitions.samples", f"dalsegno.{table}")
    if samples:
        sizes = ", ".join(f"ALTER COLUMN {column} SET STATISTICS {size}" for column, size in samples)
        await rows.connection.execute(f"ALTER TABLE dalsegno.{partition} {sizes}")


async def make_in_time(store: PostgresStore) -> None:
    """Create today's and tomorrow's partitions before anything is written.

    A day's first row decides where the whole day is stored. Costs one query if they exist. A failure does not
    prevent the store from opening.
    """
    try:
        for _ in range(LOOKS):
            if not await make_ahead(store, days=1):
                return
    except OperatorError as error:
        logger.warning("partitions cannot be made now (%s)", error)
    else:
        logger.warning(
            "the history of today or tomorrow has no partition of its own, and will be removed row by row;"
            " `dalsegno doctor` says what to do"
        )


async def keep_ahead(store: PostgresStore) -> None:
    """Create partitions ahead for as long as a process runs."""
    await _make_ahead_if_possible(store)
    await asyncio.sleep(LASTING)
    await _warn_of_foreign_tables(store)
    while True:
        await asyncio.sleep(MAINTAIN_EVERY)
        await _make_ahead_if_possible(store)


async def _make_ahead_if_possible(store: PostgresStore) -> None:
    try:
        await make_ahead(store)
    except OperatorError as error:
        logger.warning("partitions cannot be made ahead now (%s); trying again later", error)


async def _warn_of_foreign_tables(store: PostgresStore) -> None:
    """Warn if this role does not own the tables. Only the removal of history needs that, so the fault would show late.

    A process that only reads needs no partitions.
    """
    try:
        ownership = await ownership_of(store)
    except DalSegnoError as error:
        logger.info("the owner of the history tables cannot be determined now (%s)", error)
        return
    if ownership.writes and not ownership.suffices:
        logger.warning(
            "%s: unless another process makes them, history of coming days will have no partitions of its own, and"
            " will be removed row by row. %s",
            ownership.complaint(),
            ownership.cure(),
        )


class Days:
    """The days that can be dropped as a whole."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.removable: set[int] = set()
        self.dropped = 0
        self._judged: dict[tuple[str, ...], float] = {}
        self._last: dict[tuple[str, ...], int] = {}
        """The day with which the previous check ended."""
        self._refused: Counter[int] = Counter()
        """How often dropping a day has failed."""

    def is_removed_whole(self, number: int) -> bool:
        """Return True if the history of this execution need not be removed by itself."""
        return day_of(number) in self.removable

    async def judge(self, before: float, states: Sequence[str]) -> None:
        """Check some of the past days, each on its own: an execution that never ends keeps only its own day."""
        clock = asyncio.get_running_loop().time()
        key = tuple(sorted(states))
        if clock - self._judged.get(key, -JUDGE_EVERY) < JUDGE_EVERY:
            return
        self._judged[key] = clock
        if not (await ownership_of(self.store)).suffices:
            return  # without the right to drop, history is removed row by row
        for day in self._next_of(key, await self._over()):
            [(kept,)] = await self.store.fetch("partitions.survivor", *numbers_of(day), before, list(states))
            if not kept:
                self.removable.add(day)

    async def _over(self) -> list[int]:
        """Return the days with partitions of their own on which nothing is started any more, oldest first."""
        names = await _partitions(self.store)
        over = day_at(self.store.now()) - 1  # clocks of machines differ by less than a day
        return sorted(day for name in names if (day := read_name(name)) is not None and day < over)

    def _next_of(self, key: tuple[str, ...], days: Sequence[int]) -> list[int]:
        """Return the days after the end of the previous check; after the newest, the oldest come again."""
        last = self._last.get(key, -1)
        later = [day for day in days if day > last]
        chosen = [*later, *(day for day in days if day <= last)][:JUDGED]
        if chosen:
            self._last[key] = chosen[-1]
        return chosen

    async def drop(self) -> None:
        """Drop the partitions of removable days that have no execution left.

        Stops at the first one that others use: they wait behind each try. Days tried less often come first, so
        that none holds up the others for ever.
        """
        for day in sorted(self.removable, key=lambda day: (self._refused[day], day)):
            [(any_left,)] = await self.store.fetch("partitions.any_in", *numbers_of(day))
            if any_left:
                continue
            if not await self._drop(day):
                self._refused[day] += 1
                return
            del self._refused[day]
            self.removable.discard(day)
            self.dropped += 1

    async def _drop(self, day: int) -> bool:
        """Drop a day; return False if others would have to wait, or if an execution has a number of that day."""
        try:
            async with self.store.transaction() as rows:
                await rows.connection.execute(f"SET LOCAL lock_timeout = '{PATIENCE}'")
                if not await _close(rows, day):
                    return False
                for table in TABLES:
                    await rows.connection.execute(f"DROP TABLE IF EXISTS dalsegno.{name_of(table, day)}")
        except (Unavailable, SchemaMismatch) as error:  # the latter: another process drops it, too
            logger.info("the history of a day cannot be dropped now (%s); trying again", error)
            return False
        return True


async def _close(rows: Transaction, day: int) -> bool:
    """Block writes to a day's partitions and return True if no execution of that day exists.

    The lock waits for writes in progress, whose rows are then seen. Reads continue, as do writes of other days:
    only the drop locks the whole table.
    """
    for table in TABLES:
        name = name_of(table, day)
        known = [known for (known,) in await rows.fetch("partitions.names", f"dalsegno.{table}")]
        if name in known:
            await rows.connection.execute(f"LOCK TABLE dalsegno.{name} IN SHARE ROW EXCLUSIVE MODE")
    [(any_left,)] = await rows.fetch("partitions.any_in", *numbers_of(day))
    return not any_left

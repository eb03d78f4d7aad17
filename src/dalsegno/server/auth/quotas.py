"""Usage of API keys in a server process, and enforcement of their quotas.

Rates and open streams are counted by each server process separately. Stored executions are counted in the store, at
most every `COUNT_EVERY` seconds.
"""

from __future__ import annotations

import asyncio
import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from dalsegno.admin.keys import NAMES, Quotas
from dalsegno.engine.starting.start import STARTER_TAG
from dalsegno.errors import QuotaExceeded, StoredQuotaExceeded, Unavailable
from dalsegno.ports.archive import Archive
from dalsegno.server.auth.authentication import Caller

MINUTE = 60.0
COUNT_EVERY = 10.0
"""Seconds for which a count of stored executions is reused; starts of this process are added to it meanwhile."""
COUNT_SHARE = 50
"""A slow count is reused for longer: counting takes at most one part in this many of the time."""
LARGEST_SHARE = 0.75
"""Share of a server's open streams that one key may have, with or without a quota."""
FILES_SHARE = 0.75
"""Share of the process's file descriptors that streams may use."""


class QuotaUse(Struct, frozen=True):
    """One quota of a key: its use, and its limit if there is one."""

    limit: int | None
    used: int | None


class TokenBucket:
    """A bucket that holds the allowance of a minute and refills evenly. It may be overdrawn by amounts known only
    afterwards."""

    __slots__ = ("at", "level", "limit")

    def __init__(self, limit: int, now: float) -> None:
        self.limit = limit
        self.level = float(limit)
        self.at = now

    def fill(self, limit: int, now: float) -> None:
        """Refill the bucket. ``limit`` is the current setting; a changed limit applies from now on."""
        used = self.limit - self.level
        self.limit = limit
        self.level = min(float(limit), limit - used + max(now - self.at, 0.0) * limit / MINUTE)
        self.at = now

    def wait_for(self, wanted: float) -> float:
        """Return the seconds until the bucket holds ``wanted``; 0 if it does now."""
        return max(0.0, (wanted - self.level) * MINUTE / self.limit)


class _Stored(Struct):
    """The number of a key's stored executions: the last count, up to ``most``, and the starts in this process
    since."""

    count: int
    most: int
    at: float
    lasts: float


class _Use:
    """The usage of one key in this process."""

    __slots__ = ("buckets", "counting", "stored")

    def __init__(self) -> None:
        self.buckets: dict[str, TokenBucket] = {}
        self.stored: _Stored | None = None
        self.counting = asyncio.Lock()


class KeyUsage:
    """The usage of all keys in one server process, and the checks of their quotas."""

    def __init__(
        self, quotas_of: Callable[[str], Quotas], streams: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.quotas_of = quotas_of
        self.most_streams = min(streams, _most_by_files())
        self.open_streams: Counter[str] = Counter()
        """Open streams by key; calls without a key count under the empty name."""
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    # -- rates ------------------------------------------------------------------------------------------------

    def count_starts(self, caller: Caller, starts: int = 1) -> None:
        """Count starts. Raises QuotaExceeded, and then counts nothing."""
        bucket = self._bucket(caller.key, "starts_per_minute")
        if bucket is None:
            return
        if bucket.level < starts:
            after = bucket.wait_for(starts)
            raise QuotaExceeded(
                f"the key '{caller.name}' has used its quota of {bucket.limit:,} starts per minute; "
                f"the next one is possible in {_seconds(after)} s",
                after,
            )
        bucket.level -= starts

    def starts_left(self, caller: Caller, wanted: int) -> int:
        """Return how many of ``wanted`` starts the quota allows now; at least one, which `count_starts` may refuse."""
        bucket = self._bucket(caller.key, "starts_per_minute")
        return wanted if bucket is None else max(1, min(wanted, int(bucket.level)))

    def check_bytes(self, caller: Caller) -> None:
        """Raise QuotaExceeded while earlier calls have used more bytes than the quota allows."""
        bucket = self._bucket(caller.key, "bytes_per_minute")
        if bucket is not None and bucket.level <= 0:
            after = max(bucket.wait_for(0), MINUTE / bucket.limit)
            raise QuotaExceeded(
                f"the key '{caller.name}' has used its quota of {bucket.limit:,} bytes per minute "
                f"(bodies of requests and replies): {_used(bucket):,} are counted; wait {_seconds(after)} s",
                after,
            )

    def count_bytes(self, caller: Caller, size: int) -> None:
        bucket = self._bucket(caller.key, "bytes_per_minute")
        if bucket is not None:
            bucket.level -= size

    def limits_bytes(self, caller: Caller) -> bool:
        return caller.key is not None and bool(self.quotas_of(caller.key).bytes_per_minute)

    def _bucket(self, key: str | None, name: str) -> TokenBucket | None:
        if key is None:
            return None
        limit: int | None = getattr(self.quotas_of(key), name)
        if not limit:
            return None
        now, buckets = self._clock(), self._use(key).buckets
        bucket = buckets.get(name)
        if bucket is None:
            bucket = buckets[name] = TokenBucket(limit, now)
        else:
            bucket.fill(limit, now)
        return bucket

    def _use(self, key: str) -> _Use:
        return self._uses.setdefault(key, _Use())

    # -- open streams -----------------------------------------------------------------------------------------

    def open_stream(self, caller: Caller) -> Callable[[], None]:
        """Count an event stream or a waiting call. The returned function must be called once, when it ends."""
        key = caller.key or ""
        mine = self.open_streams[key]
        limit = self.quotas_of(key).open_streams if key else None
        if limit and mine >= limit:
            raise QuotaExceeded(
                f"the key '{caller.name}' has {mine:,} event streams and waiting calls open, and its quota is "
                f"{limit:,}; close some first",
                1.0,
            )
        self._check_room(mine if key else 0)
        self.open_streams[key] += 1

        def over() -> None:
            self.open_streams[key] -= 1
            if not self.open_streams[key]:
                del self.open_streams[key]

        return over

    @contextmanager
    def waiting(self, caller: Caller) -> Iterator[None]:
        """Count a call that waits, for the duration of the context."""
        over = self.open_stream(caller)
        try:
            yield
        finally:
            over()

    def _check_room(self, mine: int) -> None:
        total, most = self.open_streams.total(), self.most_streams
        if total >= most:
            raise Unavailable(
                f"{total:,} event streams and waiting calls are open, as many as this server allows; close some, ask "
                "for events in pages (/events), or try again later"
            )
        if mine >= math.ceil(most * LARGEST_SHARE):
            raise Unavailable(
                f"{mine:,} event streams and waiting calls are open with this key, as many as this server allows for "
                "one key; close some, or try again later"
            )

    # -- stored executions ------------------------------------------------------------------------------------

    async def starter(self, archive: Archive, caller: Caller, starts: int = 1) -> str | None:
        """Return the key under which the executions of this caller are counted; None if no quota limits them.
        Raises StoredQuotaExceeded."""
        limit = self.quotas_of(caller.key).stored_executions if caller.key is not None else None
        if caller.key is None or not limit:
            return None
        stored = await self._count(archive, caller.key, limit)
        if stored.count + starts > limit:
            raise StoredQuotaExceeded(
                f"{stored.count:,} executions that the key '{caller.name}' started are stored, and its quota is "
                f"{limit:,}; delete ended ones, shorten the retention, or raise the quota. A deleted one counts for up "
                f"to {_seconds(stored.lasts)} s longer"
            )
        stored.count += starts
        return caller.key

    async def starter_unless(self, archive: Archive, caller: Caller, made: str | None) -> str | None:
        """Return the key that one execution is counted for. If an earlier call with the same idempotency key has
        ``made`` the execution, it is returned even if the quota is exhausted."""
        try:
            return await self.starter(archive, caller)
        except StoredQuotaExceeded:
            if made is None or await archive.outline(made) is None:
                raise
            return None

    async def _count(self, archive: Archive, key: str, limit: int) -> _Stored:
        """Return a recent count plus the starts of this process since. Runs one count at a time."""
        use = self._use(key)
        async with use.counting:
            now = self._clock()
            if use.stored is None or now - use.stored.at >= use.stored.lasts or use.stored.most <= limit:
                found = await archive.count_tagged(STARTER_TAG, key, limit + 1)
                lasts = max(COUNT_EVERY, (self._clock() - now) * COUNT_SHARE)
                use.stored = _Stored(found, limit + 1, now, lasts)
            return use.stored

    # -- usage -------------------------------------------------------------------------------------------------

    async def usage_of(self, archive: Archive, key: str) -> dict[str, QuotaUse]:
        """Return each quota of a key with its use. Rates and streams are those of this process."""
        quotas = self.quotas_of(key)
        found = {}
        for name in NAMES:
            limit = getattr(quotas, name) or None
            found[name] = QuotaUse(limit, await self._used(archive, key, name, limit))
        return found

    async def _used(self, archive: Archive, key: str, name: str, limit: int | None) -> int | None:
        if name == "open_streams":
            return self.open_streams.get(key, 0)
        if limit is None:
            return None
        if name == "stored_executions":
            return (await self._count(archive, key, limit)).count
        bucket = self._bucket(key, name)
        return _used(bucket) if bucket is not None else None


def _used(bucket: TokenBucket) -> int:
    return math.ceil(bucket.limit - bucket.level)


def _seconds(seconds: float) -> int:
    return max(1, math.ceil(seconds))


def _most_by_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return int(soft * FILES_SHARE) if soft not in (resource.RLIM_INFINITY, -1) else 2**31

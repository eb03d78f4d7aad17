"""Store and broker adapters by URL: the one module that knows which adapter belongs to which scheme."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict, cast, get_args
from urllib.parse import unquote, urlsplit

from dalsegno.adapters.urls import authority_of, scheme_of, shown_url
from dalsegno.errors import BadConfiguration
from dalsegno.ports.clock import Clock
from dalsegno.ports.messages import Adopt
from dalsegno.ports.stack import Stack

LISTEN_VARIABLE = "DALSEGNO_LISTEN"
"""A direct URL of the same PostgreSQL database, for a store whose own URL goes through a pooler."""
STORE_VARIABLE = "DALSEGNO_STORE"
BROKER_VARIABLE = "DALSEGNO_BROKER"
REDIS_VARIABLE = "DALSEGNO_REDIS"
ADOPT_VARIABLE = "DALSEGNO_ADOPT"
CONFIG_VARIABLE = "DALSEGNO_CONFIG"
"""The path of the settings file, if it is not ``dalsegno.toml`` in the working directory."""
SETTINGS_FILE = "dalsegno.toml"
SETTINGS = ("store", "broker", "redis", "adopt")
DEFAULT_STORE = "sqlite:///dalsegno.db"
POSTGRES = ("postgresql", "postgres")
REDIS = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")
RABBITMQ = ("amqp", "amqps")
BROKER_SHAPES = (
    "redis://host:6379/0, rediss://…, redis+sentinel://host1,host2/name, amqp://user:password@host, amqps://…"
)


class SystemClock:
    now = staticmethod(time.time)


def default_store() -> str:
    """Return the URL of the default store."""
    named = store_of_environment()
    return named if named is not None else DEFAULT_STORE


def store_of_environment() -> str | None:
    """Return the URL in the environment, else in the settings file. A variable that is set but empty is refused when
    the store is opened: a deployment that lost its setting must not continue with a local file."""
    return _setting("store", STORE_VARIABLE)


def adopt_of_environment() -> Adopt | None:
    """Return which messages of other programs are taken in; None if nothing says so."""
    named = _setting("adopt", ADOPT_VARIABLE)
    if named is None or named in get_args(Adopt):
        return cast(Adopt | None, named)
    raise BadConfiguration(
        f"{ADOPT_VARIABLE} (or adopt in {SETTINGS_FILE}) is {named!r}; write any, known or off"
    )


def broker_of_environment() -> str | None:
    return _setting("broker", BROKER_VARIABLE)


def redis_of_environment() -> str | None:
    return _setting("redis", REDIS_VARIABLE)


def _setting(name: str, variable: str) -> str | None:
    found = os.environ.get(variable)
    return found if found is not None else settings_file().get(name)


def settings_file() -> Mapping[str, str]:
    """Return the settings of ``dalsegno.toml``; empty if there is no such file."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or SETTINGS_FILE)
    if named is None and not path.is_file():
        return {}
    import tomllib  # noqa: PLC0415 - only who has a file needs it

    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadConfiguration(
            f"the settings file {path}, which {CONFIG_VARIABLE} names, cannot be read: {error.strerror or error}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"the settings file {path} is not valid TOML: {error}") from None
    for name, value in found.items():
        if name not in SETTINGS or not isinstance(value, str):
            raise BadConfiguration(
                f"the settings file {path} has {name!r}, which is no setting with a text; it may have "
                f'{", ".join(SETTINGS)}, such as broker = "redis://localhost:6379/0"'
            )
    return found


async def open_stack(
    url: str, clock: Clock | None = None, broker: str | None = None, redis: str | None = None
) -> Stack:
    """Open the stack of a store URL: ``memory:``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``,
    ``postgresql://user@host/database``. ``clock`` replaces the clock of the system or database in tests.

    ``broker``: the URL of Redis or RabbitMQ; None: the store's own broker. ``redis``: where other programs find
    their keys; None: the broker, if it is Redis. Neither needs to be reachable now."""
    servers = choose_servers(url, broker, redis)
    stack = await _open_store(url, clock, is_broker=not servers.has_redis_broker)
    try:
        if servers.broker is not None and scheme_of(servers.broker) in RABBITMQ:
            stack = await _with_rabbitmq(servers.broker, stack)
        for server, parts in servers.redis_servers():
            stack = await _with_redis(server, stack, parts)
    except BaseException:
        await stack.close()
        raise
    return stack


async def _open_store(url: str, clock: Clock | None, *, is_broker: bool) -> Stack:
    scheme = scheme_of(url)
    if scheme == "memory":
        return _memory(url, clock or SystemClock())
    if scheme == "sqlite":
        return await _sqlite(url, clock or SystemClock())
    if is_postgres(url):
        return await _postgres(url, clock, is_broker=is_broker)
    raise BadConfiguration(
        f"the store URL {shown_url(url)!r} has the scheme {scheme or 'nothing'!r}; supported here: memory:, "
        "sqlite:///relative/path.db, sqlite:////absolute/path.db, postgresql://user:password@host/database"
    )


class RedisParts(TypedDict):
    name: str
    is_broker: bool
    has_keys: bool


@dataclass(frozen=True, slots=True)
class ChosenServers:
    """The servers besides the store's. ``broker``: None for the store's own."""

    broker: str | None = field(repr=False)
    redis: str | None = field(repr=False)

    @property
    def has_redis_broker(self) -> bool:
        return self.broker is not None and scheme_of(self.broker) in REDIS

    def redis_servers(self) -> list[tuple[str, RedisParts]]:
        """Return what each Redis is for: the broker and the one with the keys of other programs may be the same."""
        found: list[tuple[str, RedisParts]] = []
        if self.broker is not None and self.has_redis_broker and self.broker != self.redis:
            found.append((self.broker, {"name": "Redis (broker)", "is_broker": True, "has_keys": False}))
        if self.redis is not None:
            is_same = self.broker == self.redis
            found.append((self.redis, {"name": "Redis", "is_broker": is_same, "has_keys": True}))
        return found


def choose_servers(store: str, broker: str | None, redis: str | None) -> ChosenServers:
    """Check the URLs without connecting, and apply the default of ``redis``."""
    if broker is not None:
        _check_server(broker, "broker", BROKER_VARIABLE, (*REDIS, *RABBITMQ), BROKER_SHAPES)
    if redis is None and broker is not None and scheme_of(broker) in REDIS:
        redis = broker
    if redis is not None:
        _check_server(redis, "Redis", REDIS_VARIABLE, REDIS, BROKER_SHAPES.partition(", amqp")[0])
    if (broker or redis) and scheme_of(store) == "memory":
        raise BadConfiguration(
            f"the store memory: belongs to this process alone, so it has no use for "
            f"{shown_url(broker or redis or '')}; leave the broker out, or give a store that processes share"
        )
    return ChosenServers(broker, redis)


def _check_server(url: str, what: str, variable: str, schemes: tuple[str, ...], shapes: str) -> None:
    if not url:
        raise BadConfiguration(f"the URL of the {what} is empty; unset {variable}, or write one of {shapes}")
    scheme = scheme_of(url)
    if scheme not in schemes:
        own = " (the store is its own broker: leave the setting out)" if is_postgres(url) else ""
        raise BadConfiguration(
            f"the URL of the {what} {shown_url(url)!r} has the scheme {scheme or 'nothing'!r}{own}; supported here: "
            f"{shapes}"
        )
    if scheme in REDIS and find_spec("redis") is None:
        raise BadConfiguration(
            "Redis needs its driver: pip install 'dalsegno[redis]'"
            " (in a clone of the repository: pip install -e '.[redis]')"
        )


async def _with_rabbitmq(url: str, stack: Stack) -> Stack:
    from dalsegno.adapters import rabbitmq  # noqa: PLC0415 - only what is used is loaded

    return await rabbitmq.open_broker(url, stack)


async def _with_redis(url: str, stack: Stack, parts: RedisParts) -> Stack:
    from dalsegno.adapters import redis  # noqa: PLC0415 - only what is used is loaded

    return await redis.open_redis(url, stack, **parts)


def _memory(url: str, clock: Clock) -> Stack:
    from dalsegno.adapters import memory  # noqa: PLC0415 - only what is used is loaded

    store = memory.MemoryStore()
    ledger = memory.MemoryLedger(clock, store)
    broker = memory.MemoryBroker(ledger)
    archive, blobs = memory.MemoryArchive(store, clock), memory.MemoryBlobs(store)
    records = memory.MemoryRecords(store, clock)
    limits = memory.MemoryLimits(store, clock)
    publications = memory.MemoryPublications(store, clock)
    return Stack(
        url=url,
        ledger=ledger,
        broker=broker,
        archive=archive,
        blobs=blobs,
        records=records,
        published=memory.MemoryPublished(store, clock),
        clock=clock,
        close=broker.close,
        limits=limits,
        publications=publications,
    )


async def _sqlite(url: str, clock: Clock) -> Stack:
    from dalsegno.adapters import sqlite  # noqa: PLC0415 - only what is used is loaded

    store = sqlite.SqliteStore.open(sqlite_path(url), clock)
    ledger = sqlite.SqliteLedger(store)
    broker = sqlite.SqliteBroker(ledger)
    watch = sqlite.SqliteWatch(store)

    async def close() -> None:
        await watch.close()
        await broker.close()
        await ledger.close()

    archive, blobs, records = (
        sqlite.SqliteArchive(store),
        sqlite.SqliteBlobs(store),
        sqlite.SqliteRecords(store),
    )
    limits = sqlite.SqliteLimits(store)
    transactions = sqlite.SqliteTransactions(store)
    return Stack(
        url=url,
        ledger=ledger,
        broker=broker,
        archive=archive,
        blobs=blobs,
        records=records,
        published=sqlite.SqlitePublished(store),
        clock=clock,
        close=close,
        limits=limits,
        watch=watch,
        transactions=transactions,
        expect_writable=store.expect_writable,
        when_lost=store.file.listen,
        publications=sqlite.SqlitePublications(store),
    )


async def _postgres(url: str, clock: Clock | None, *, is_broker: bool) -> Stack:
    require_postgres_driver()
    from dalsegno.adapters import postgres  # noqa: PLC0415 - only what is used is loaded

    listen_at = _listening_at(url)
    store = await postgres.PostgresStore.open(url, clock)
    try:
        await postgres.make_in_time(store)
    except BaseException:
        await store.close()  # a retry opens another one
        raise
    ledger = postgres.PostgresLedger(store)
    listener = postgres.Listener(listen_at, is_needed=is_broker)
    broker = postgres.PostgresBroker(ledger, listener, ledger.waiting_workers)
    neighbours = postgres.PostgresNeighbours(ledger, listener, broker)
    transactions = postgres.PostgresTransactions(store, ledger.commits)
    listener.start()
    tending = asyncio.get_running_loop().create_task(postgres.keep_ahead(store), name="partitions")

    async def close() -> None:
        tending.cancel()
        await asyncio.gather(tending, return_exceptions=True)
        await transactions.close()
        await broker.close()
        await ledger.close()

    return Stack(
        url=shown_url(url),
        ledger=ledger,
        broker=broker,
        archive=postgres.PostgresArchive(store),
        blobs=postgres.PostgresBlobs(store),
        records=postgres.PostgresRecords(store),
        published=postgres.PostgresPublished(store),
        clock=store,
        close=close,
        limits=postgres.PostgresLimits(store),
        neighbours=neighbours,
        watch=None if is_broker else postgres.PostgresWatch(neighbours),
        transactions=transactions,
        commits_at_once=postgres.COMMITS_AT_ONCE,
        timer_interval=postgres.TIMER_INTERVAL,
        expect_writable=store.expect_writable,
        publications=postgres.PostgresPublications(store),
    )


def _listening_at(url: str) -> str:
    """Return the URL on which notifications are received. Later failures of that connection are tolerated, but a
    malformed URL is refused."""
    given = os.environ.get(LISTEN_VARIABLE)
    if not given:
        return url
    hosts = authority_of(given).rpartition("@")[2]
    ports = [server.rpartition("]")[2].partition(":")[2] for server in hosts.split(",")]
    if not is_postgres(given) or not all(port.isdecimal() for port in ports if port):
        raise BadConfiguration(
            f"{LISTEN_VARIABLE} is no URL of a PostgreSQL server; write postgresql://user@host:5432/database"
        )
    return given


def is_postgres(url: str) -> bool:
    return scheme_of(url) in POSTGRES


def require_postgres_driver() -> None:
    """Raise an error if the driver is missing, before the adapter is imported."""
    if find_spec("asyncpg") is None:
        raise BadConfiguration(
            "a store on PostgreSQL needs the driver asyncpg: pip install 'dalsegno[postgres]'"
            " (in a clone of the repository: pip install -e '.[postgres]')"
        )


def sqlite_path(url: str) -> Path:
    """Return the path: three slashes and a relative path, or four and an absolute one, as in SQLAlchemy."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.path == "/" or parts.query or parts.fragment:
        raise BadConfiguration(
            f"{url!r} is not a SQLite URL; write sqlite:///relative/path.db or sqlite:////absolute/path.db"
        )
    return Path(unquote(parts.path[1:]))

"""Connections of psycopg 3, with the interface that this adapter's statements use of asyncpg.

* Parameters are sent as text without a type, so that PostgreSQL uses for each the type that the statement implies.
  asyncpg asks it for the same type.
* Results have the types that asyncpg returns, whatever the caller has configured for its connection.
* Errors become those of asyncpg by their SQLSTATE, so that the layers above know one kind.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import asyncpg

from dalsegno.errors import UsageError

IDLE = 0
"""One of libpq's transaction states."""
AS_TEXT = ("json", "jsonb")
"""Types that asyncpg does not decode."""


class Row(tuple[Any, ...]):
    """A row with its values by position and by name."""

    __slots__ = ()
    names: ClassVar[dict[str, int]] = {}

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.names[key] if isinstance(key, str) else key)

    def keys(self) -> Iterator[str]:
        return iter(self.names)


def is_psycopg(connection: Any) -> bool:
    psycopg = sys.modules.get("psycopg")
    return psycopg is not None and isinstance(connection, psycopg.Connection | psycopg.AsyncConnection)


def check_psycopg(connection: Any) -> None:
    """Refuse an idle connection with autocommit.

    Without autocommit every statement begins a transaction if there is none.
    """
    psycopg = sys.modules["psycopg"]
    if not hasattr(psycopg, "RawCursor"):
        raise UsageError("a start in your own transaction needs psycopg 3.2 or newer")
    if connection.autocommit and connection.info.transaction_status == IDLE:
        raise UsageError("begin a transaction on the connection first: `with connection.transaction():`")


class PsycopgConnection:
    """A synchronous connection: its statements run in a thread, while the caller waits for the start."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *parameters: object) -> list[Row]:
        return await asyncio.to_thread(self._fetch, query, parameters)

    async def execute(self, query: str, *parameters: object) -> None:
        await self.fetch(query, *parameters)

    def _fetch(self, query: str, parameters: Sequence[object]) -> list[Row]:
        psycopg = sys.modules["psycopg"]
        with psycopg_errors(), psycopg.RawCursor(self._connection, row_factory=_tuples()) as cursor:
            _prepare_types(cursor)
            cursor.execute(query, _texts(parameters), prepare=False)
            return _rows(cursor.description, cursor.fetchall()) if cursor.description else []


class AsyncPsycopgConnection:
    """An asynchronous connection, to be used on its own loop."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *parameters: object) -> list[Row]:
        psycopg = sys.modules["psycopg"]
        with psycopg_errors():
            async with psycopg.AsyncRawCursor(self._connection, row_factory=_tuples()) as cursor:
                _prepare_types(cursor)
                await cursor.execute(query, _texts(parameters), prepare=False)
                return _rows(cursor.description, await cursor.fetchall()) if cursor.description else []

    async def execute(self, query: str, *parameters: object) -> None:
        await self.fetch(query, *parameters)


# -- values ---------------------------------------------------------------------------------------------------


def _tuples() -> Any:
    return sys.modules["psycopg"].rows.tuple_row


def _prepare_types(cursor: Any) -> None:
    """Set the result types for this cursor alone; it inherits the caller's configuration of the connection."""
    from psycopg.types import bool, numeric, string  # noqa: A004, PLC0415 - only where a caller uses it

    loaders = {
        bool.BoolLoader: ("bool",),
        numeric.IntLoader: ("int2", "int4", "int8"),
        numeric.FloatLoader: ("float4", "float8"),
        numeric.NumericLoader: ("numeric",),
        string.ByteaLoader: ("bytea",),
        string.TextLoader: ("text", "varchar", "name", *AS_TEXT),
    }
    cursor.adapters.register_dumper(str, string.StrDumperUnknown)
    for loader, types in loaders.items():
        for name in types:
            cursor.adapters.register_loader(name, loader)


def _texts(parameters: Sequence[object]) -> list[str | None] | None:
    return [_text(each) for each in parameters] or None


def _text(value: object) -> str | None:
    """Return a value in PostgreSQL's own notation."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if isinstance(value, list | tuple):
        return "{" + ",".join(_element(each) for each in value) + "}"
    return str(value)


def _element(value: object) -> str:
    text = _text(value)
    if text is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _rows(description: Sequence[Any], found: Sequence[tuple[Any, ...]]) -> list[Row]:
    names = {column.name: place for place, column in enumerate(description)}
    kind = type("NamedRow", (Row,), {"names": names, "__slots__": ()})
    return [kind(each) for each in found]


# -- errors ---------------------------------------------------------------------------------------------------


@contextmanager
def psycopg_errors() -> Iterator[None]:
    psycopg = sys.modules["psycopg"]
    try:
        yield
    except psycopg.Error as error:
        raise _of_asyncpg(error) from error


def _of_asyncpg(error: Any) -> Exception:
    """Return asyncpg's error for the same SQLSTATE; one without did not come from the server."""
    if error.sqlstate is None:
        lost: Exception = asyncpg.InterfaceError(str(error))
        return asyncpg.DataError(str(error)) if isinstance(error, sys.modules["psycopg"].DataError) else lost
    message = error.diag.message_primary or str(error)
    found: Exception = asyncpg.PostgresError.new({"S": "ERROR", "C": error.sqlstate, "M": message})
    return found

"""Values of AMQP 0-9-1: strings, integers and field tables, as RabbitMQ reads and writes them.

Bytes of strings that are no UTF-8 survive a round trip. A table that was read and is written again keeps its values;
integers are written as 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from msgspec import Struct

from dalsegno.adapters.rabbitmq.amqp.errors import ProtocolError

Table: TypeAlias = Mapping[str, Any]

LONGEST_SHORT_STRING = 255
DEEPEST = 32
"""Levels of nested tables and lists that are read."""

_INTEGERS = {
    "b": struct.Struct(">b"),
    "B": struct.Struct(">B"),
    "s": struct.Struct(">h"),
    "U": struct.Struct(">h"),
    "u": struct.Struct(">H"),
    "I": struct.Struct(">i"),
    "i": struct.Struct(">I"),
    "l": struct.Struct(">q"),
    "L": struct.Struct(">q"),
    "f": struct.Struct(">f"),
    "d": struct.Struct(">d"),
}
_U32 = struct.Struct(">I")
_I64 = struct.Struct(">q")
_U64 = struct.Struct(">Q")
_F64 = struct.Struct(">d")
_DECIMAL = struct.Struct(">Bi")


class Timestamp(Struct, frozen=True):
    """A moment in a table, in seconds since the epoch."""

    seconds: int


def short_string(text: str) -> bytes:
    raw = _bytes_of(text)
    if len(raw) > LONGEST_SHORT_STRING:
        raise ValueError(f"{len(raw)} bytes do not fit into a short string: {text[:60]!r}…")
    return bytes((len(raw),)) + raw


def long_string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else _bytes_of(text)
    return _U32.pack(len(raw)) + raw


def table(values: Table) -> bytes:
    parts = [short_string(key) + _field(value) for key, value in values.items()]
    return long_string(b"".join(parts))


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _field(value: Any) -> bytes:
    match value:
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            return b"l" + _I64.pack(value)
        case str():
            return b"S" + long_string(value)
        case bytes() | bytearray():
            return b"x" + long_string(bytes(value))
        case None:
            return b"V"
        case float():
            return b"d" + _F64.pack(value)
        case Decimal():
            return b"D" + _decimal(value)
        case Timestamp(seconds):
            return b"T" + _U64.pack(seconds)
        case Mapping():
            return b"F" + table(value)
        case Sequence():
            return b"A" + long_string(b"".join(map(_field, value)))
    raise ValueError(f"a table cannot hold a value of type {type(value).__name__}")


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent > 0 or exponent < -255:
        raise ValueError(f"a table cannot hold the decimal {value}")
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    return _DECIMAL.pack(-exponent, number)


class Reader:
    """Reads values one after the other from the payload of a frame."""

    __slots__ = ("_at", "_bit", "_bits", "_data", "_depth")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at
        self._bits = 0
        self._bit = 8
        """The next bit of an octet of flags; 8: the next flag begins an octet."""
        self._depth = 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._data)

    def octet(self) -> int:
        return self._take(1)[0]

    def short(self) -> int:
        return int.from_bytes(self._take(2))

    def long(self) -> int:
        return int.from_bytes(self._take(4))

    def long_long(self) -> int:
        return int.from_bytes(self._take(8))

    def bit(self) -> bool:
        """Return the next flag: flags in a row share an octet."""
        if self._bit == 8:
            self._bits, self._bit = self.octet(), 0
        value = bool(self._bits >> self._bit & 1)
        self._bit += 1
        return value

    def short_string(self) -> str:
        return self._take(self.octet()).decode("utf-8", "surrogateescape")

    def long_string(self) -> bytes:
        return self._take(self.long())

    def table(self) -> dict[str, Any]:
        inner = self._nested()
        values: dict[str, Any] = {}
        while not inner.at_end:
            key = inner.short_string()
            values[key] = inner.field()
        return values

    def field(self) -> Any:
        kind = chr(self.octet())
        if (number := _INTEGERS.get(kind)) is not None:
            return number.unpack(self._take(number.size))[0]
        match kind:
            case "S":
                return self.long_string().decode("utf-8", "surrogateescape")
            case "t":
                return self.octet() != 0
            case "F":
                return self.table()
            case "T":
                return Timestamp(self.long_long())
            case "x":
                return self.long_string()
            case "V":
                return None
            case "D":
                scale, value = _DECIMAL.unpack(self._take(_DECIMAL.size))
                return Decimal(value).scaleb(-scale)
            case "A":
                inner, items = self._nested(), list[Any]()
                while not inner.at_end:
                    items.append(inner.field())
                return items
        raise ProtocolError(f"a table holds a value of the unknown type {kind!r}")

    def _nested(self) -> Reader:
        inner = Reader(self.long_string())
        inner._depth = self._depth + 1
        if inner._depth > DEEPEST:
            raise ProtocolError(f"a table is nested more than {DEEPEST} levels deep")
        return inner

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ProtocolError(f"a frame ends {end - len(self._data)} bytes too early")
        piece = self._data[self._at : end]
        self._at = end
        self._bit = 8
        return piece

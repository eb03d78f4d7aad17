"""Frames, methods and message properties of AMQP 0-9-1, as bytes. No I/O.

A method is written and read after one table of its arguments. Publishing, delivering and acknowledging have functions
of their own: each node of a graph needs three of the first and one of each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from dalsegno.adapters.rabbitmq.amqp.errors import ProtocolError
from dalsegno.adapters.rabbitmq.amqp.fields import Reader, Table, Timestamp, long_string, short_string, table

HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, CONTENT, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_TYPES = (METHOD, CONTENT, BODY, HEARTBEAT)
END = 0xCE
OVERHEAD = 8
"""Bytes of a frame besides its payload."""
HEARTBEAT_FRAME = bytes((HEARTBEAT, 0, 0, 0, 0, 0, 0, END))

_FRAME = struct.Struct(">BHI")
_METHOD_FRAME = struct.Struct(">BHIHH")
_CONTENT_FRAME = struct.Struct(">BHIHHQ")
_ACK = struct.Struct(">BHIHHQBB")
_NACK_ARGUMENTS = struct.Struct(">QB")

Name = tuple[int, int]
"""A method: its class and its number."""

CONNECTION_START, CONNECTION_START_OK = (10, 10), (10, 11)
CONNECTION_SECURE = (10, 20)
CONNECTION_TUNE, CONNECTION_TUNE_OK = (10, 30), (10, 31)
CONNECTION_OPEN, CONNECTION_OPEN_OK = (10, 40), (10, 41)
CONNECTION_CLOSE, CONNECTION_CLOSE_OK = (10, 50), (10, 51)
CONNECTION_BLOCKED, CONNECTION_UNBLOCKED = (10, 60), (10, 61)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
CHANNEL_FLOW, CHANNEL_FLOW_OK = (20, 20), (20, 21)
CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 40), (20, 41)
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = (40, 10), (40, 11)
QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
QUEUE_BIND, QUEUE_BIND_OK = (50, 20), (50, 21)
QUEUE_PURGE, QUEUE_PURGE_OK = (50, 30), (50, 31)
QUEUE_DELETE, QUEUE_DELETE_OK = (50, 40), (50, 41)
BASIC_QOS, BASIC_QOS_OK = (60, 10), (60, 11)
BASIC_CONSUME, BASIC_CONSUME_OK = (60, 20), (60, 21)
BASIC_CANCEL, BASIC_CANCEL_OK = (60, 30), (60, 31)
BASIC_PUBLISH = (60, 40)
BASIC_RETURN = (60, 50)
BASIC_DELIVER = (60, 60)
BASIC_GET, BASIC_GET_OK, BASIC_GET_EMPTY = (60, 70), (60, 71), (60, 72)
BASIC_ACK, BASIC_NACK = (60, 80), (60, 120)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)

_ARGUMENTS: dict[Name, tuple[str, str]] = {
    CONNECTION_START: ("version_major version_minor server_properties mechanisms locales", "ootSS"),
    CONNECTION_START_OK: ("client_properties mechanism response locale", "tsSs"),
    CONNECTION_SECURE: ("challenge", "S"),
    CONNECTION_TUNE: ("channel_max frame_max heartbeat", "hlh"),
    CONNECTION_TUNE_OK: ("channel_max frame_max heartbeat", "hlh"),
    CONNECTION_OPEN: ("virtual_host reserved_1 reserved_2", "ssb"),
    CONNECTION_OPEN_OK: ("reserved_1", "s"),
    CONNECTION_CLOSE: ("reply_code reply_text class_id method_id", "hshh"),
    CONNECTION_CLOSE_OK: ("", ""),
    CONNECTION_BLOCKED: ("reason", "s"),
    CONNECTION_UNBLOCKED: ("", ""),
    CHANNEL_OPEN: ("reserved_1", "s"),
    CHANNEL_OPEN_OK: ("reserved_1", "S"),
    CHANNEL_FLOW: ("active", "b"),
    CHANNEL_FLOW_OK: ("active", "b"),
    CHANNEL_CLOSE: ("reply_code reply_text class_id method_id", "hshh"),
    CHANNEL_CLOSE_OK: ("", ""),
    EXCHANGE_DECLARE: (
        "reserved_1 exchange type passive durable auto_delete internal no_wait arguments",
        "hssbbbbbt",
    ),
    EXCHANGE_DECLARE_OK: ("", ""),
    QUEUE_DECLARE: ("reserved_1 queue passive durable exclusive auto_delete no_wait arguments", "hsbbbbbt"),
    QUEUE_DECLARE_OK: ("queue message_count consumer_count", "sll"),
    QUEUE_BIND: ("reserved_1 queue exchange routing_key no_wait arguments", "hsssbt"),
    QUEUE_BIND_OK: ("", ""),
    QUEUE_PURGE: ("reserved_1 queue no_wait", "hsb"),
    QUEUE_PURGE_OK: ("message_count", "l"),
    QUEUE_DELETE: ("reserved_1 queue if_unused if_empty no_wait", "hsbbb"),
    QUEUE_DELETE_OK: ("message_count", "l"),
    BASIC_QOS: ("prefetch_size prefetch_count global", "lhb"),
    BASIC_QOS_OK: ("", ""),
    BASIC_CONSUME: (
        "reserved_1 queue consumer_tag no_local no_ack exclusive no_wait arguments",
        "hssbbbbt",
    ),
    BASIC_CONSUME_OK: ("consumer_tag", "s"),
    BASIC_CANCEL: ("consumer_tag no_wait", "sb"),
    BASIC_CANCEL_OK: ("consumer_tag", "s"),
    BASIC_RETURN: ("reply_code reply_text exchange routing_key", "hsss"),
    BASIC_DELIVER: ("consumer_tag delivery_tag redelivered exchange routing_key", "sLbss"),
    BASIC_GET: ("reserved_1 queue no_ack", "hsb"),
    BASIC_GET_OK: ("delivery_tag redelivered exchange routing_key message_count", "Lbssl"),
    BASIC_GET_EMPTY: ("reserved_1", "s"),
    BASIC_ACK: ("delivery_tag multiple", "Lb"),
    BASIC_NACK: ("delivery_tag multiple requeue", "Lbb"),
    CONFIRM_SELECT: ("no_wait", "b"),
    CONFIRM_SELECT_OK: ("", ""),
}
"""Names of the arguments, and their types: octet, h: short, l: long, L: long long, s, S: strings, b: flag, table."""
ARGUMENTS = {
    name: tuple(zip(names.split(), types, strict=True)) for name, (names, types) in _ARGUMENTS.items()
}
METHODS_WITH_CONTENT = frozenset((BASIC_RETURN, BASIC_DELIVER, BASIC_GET_OK))


class Properties(Struct, frozen=True, kw_only=True):
    """The properties of a message. None: not set."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: Timestamp | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


class OwnProperties(Struct, frozen=True):
    """The properties of a message of this project, ready to be sent: most messages differ in two of them only."""

    message_id: str
    encoded: bytes


PERSISTENT = 2
_PROPERTY_FIELDS = Properties.__struct_fields__
_PROPERTY_FLAGS = tuple((name, 1 << 15 - place) for place, name in enumerate(_PROPERTY_FIELDS))


class Method(NamedTuple):
    name: Name
    arguments: dict[str, Any]


class Frame(NamedTuple):
    type: int
    channel: int
    payload: bytes


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Return the complete frames; what is left waits for more."""
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        try:
            while size - at >= OVERHEAD:
                kind, channel, length = _FRAME.unpack_from(data, at)
                end = at + 7 + length
                if kind not in FRAME_TYPES:
                    raise ProtocolError("the server does not speak AMQP 0-9-1")
                if end >= size:
                    break
                if data[end] != END:
                    raise ProtocolError("a frame has no end mark")
                payload = data[at + 7 : end]
                at = end + 1
                yield Frame(kind, channel, payload)
        finally:
            self._rest = data[at:]


def method_frame(channel: int, name: Name, **arguments: Any) -> bytes:
    """Return a frame with a method. Arguments that are not given are zero, empty or false."""
    payload, bits, bit = bytearray(struct.pack(">HH", *name)), 0, 0
    for argument, kind in ARGUMENTS[name]:
        value = arguments.pop(argument, None)
        if kind == "b":
            bits |= bool(value) << bit
            bit += 1
            continue
        if bit:
            payload.append(bits)
            bits = bit = 0
        payload += _encode(kind, value)
    if bit:
        payload.append(bits)
    if arguments:
        raise ValueError(f"the method {name} has no arguments {', '.join(arguments)}")
    return _FRAME.pack(METHOD, channel, len(payload)) + payload + b"\xce"


def _encode(kind: str, value: Any) -> bytes:
    match kind:
        case "o":
            return int(value or 0).to_bytes(1)
        case "h":
            return int(value or 0).to_bytes(2)
        case "l":
            return int(value or 0).to_bytes(4)
        case "L":
            return int(value or 0).to_bytes(8)
        case "s":
            return short_string(value or "")
        case "S":
            return long_string(value or b"")
    return table(value or {})


def read_method(payload: bytes) -> Method:
    reader = Reader(payload)
    name = (reader.short(), reader.short())
    arguments = ARGUMENTS.get(name)
    if arguments is None:
        raise ProtocolError(f"the server sent the unknown method {name[0]}.{name[1]}")
    return Method(name, {argument: _decode(kind, reader) for argument, kind in arguments})


def _decode(kind: str, reader: Reader) -> Any:
    match kind:
        case "o":
            return reader.octet()
        case "h":
            return reader.short()
        case "l":
            return reader.long()
        case "L":
            return reader.long_long()
        case "s":
            return reader.short_string()
        case "S":
            return reader.long_string()
        case "b":
            return reader.bit()
    return reader.table()


# -- messages ---------------------------------------------------------------------------------------------------


_OCTETS = [bytes((number,)) for number in range(256)]
_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "headers": table,
    "delivery_mode": _OCTETS.__getitem__,
    "priority": _OCTETS.__getitem__,
    "timestamp": lambda moment: moment.seconds.to_bytes(8),
}
_PROPERTY_WRITERS = tuple((flag, _WRITERS.get(name, short_string)) for name, flag in _PROPERTY_FLAGS)


def publish_frames(
    channel: int,
    exchange: str,
    routing_key: str,
    properties: Properties | OwnProperties,
    body: bytes,
    frame_max: int,
) -> bytes:
    """Return a mandatory message, ready to be sent."""
    head = publish_head(channel, exchange, routing_key) + content_frame(channel, properties, len(body))
    size = len(body)
    if size <= frame_max - OVERHEAD:
        return head + _FRAME.pack(BODY, channel, size) + body + b"\xce" if size else head
    parts, step = [head], frame_max - OVERHEAD
    for at in range(0, size, step):
        piece = body[at : at + step]
        parts += (_FRAME.pack(BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


@lru_cache(maxsize=256)
def publish_head(channel: int, exchange: str, routing_key: str) -> bytes:
    """Return the frame of ``basic.publish`` with the flag ``mandatory``."""
    payload = b"\x00\x00" + short_string(exchange) + short_string(routing_key) + b"\x01"
    return _METHOD_FRAME.pack(METHOD, channel, 4 + len(payload), *BASIC_PUBLISH) + payload + b"\xce"


def content_frame(channel: int, properties: Properties | OwnProperties, size: int) -> bytes:
    encoded = properties.encoded if isinstance(properties, OwnProperties) else properties_bytes(properties)
    return _CONTENT_FRAME.pack(CONTENT, channel, 12 + len(encoded), 60, 0, size) + encoded + b"\xce"


def own_properties(message_id: str, content_type: str, priority: int, traceparent: str) -> OwnProperties:
    """Return the properties of a persistent message, with or without the trace that it belongs to."""
    head, tail = _around_traceparent(content_type, priority, len(traceparent))
    return OwnProperties(message_id, head + traceparent.encode("ascii") + tail + short_string(message_id))


@lru_cache(maxsize=64)
def _around_traceparent(content_type: str, priority: int, length: int) -> tuple[bytes, bytes]:
    """Return what stands before a trace of this length, and between it and the message's id."""
    mark = "0" * length
    properties = Properties(
        content_type=content_type,
        headers={"traceparent": mark} if length else None,
        delivery_mode=PERSISTENT,
        priority=priority,
        message_id="",
    )
    encoded = properties_bytes(properties)[:-1]  # without the length of the message's id
    at = len(encoded) - 2  # before the delivery mode and the priority
    return encoded[: at - length], encoded[at:]


def properties_bytes(properties: Properties) -> bytes:
    flags, parts = 0, []
    for value, (flag, write) in zip(astuple(properties), _PROPERTY_WRITERS, strict=True):
        if value is not None:
            flags |= flag
            parts.append(write(value))
    return flags.to_bytes(2) + b"".join(parts)


def read_content(payload: bytes) -> tuple[int, Properties]:
    """Return the size of the body that follows, and the properties."""
    reader = Reader(payload, 4)
    size, flags = reader.long_long(), reader.short()
    values: dict[str, Any] = {}
    for name, flag in _PROPERTY_FLAGS:
        if not flags & flag:
            continue
        if name == "headers":
            values[name] = reader.table()
        elif name in {"delivery_mode", "priority"}:
            values[name] = reader.octet()
        elif name == "timestamp":
            values[name] = Timestamp(reader.long_long())
        else:
            values[name] = reader.short_string()
    return size, Properties(**values)


def ack_frame(channel: int, delivery_tag: int, *, multiple: bool = False) -> bytes:
    return _ACK.pack(METHOD, channel, 13, *BASIC_ACK, delivery_tag, multiple, END)


def nack_frame(channel: int, delivery_tag: int, *, requeue: bool = True) -> bytes:
    arguments = _NACK_ARGUMENTS.pack(delivery_tag, 2 if requeue else 0)
    return _METHOD_FRAME.pack(METHOD, channel, 13, *BASIC_NACK) + arguments + b"\xce"


def read_acknowledgement(payload: bytes) -> tuple[int, bool]:
    """Return the tag of a ``basic.ack`` or ``basic.nack``, and whether it means all up to that."""
    return int.from_bytes(payload[4:12]), bool(payload[12] & 1)


class Delivery(NamedTuple):
    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    routing_key: str


def read_delivery(payload: bytes) -> Delivery:
    at = 5 + payload[4]
    tag = payload[5:at].decode()
    delivery_tag = int.from_bytes(payload[at : at + 8])
    redelivered = payload[at + 8] & 1 == 1
    at += 9
    at += 1 + payload[at]  # the exchange
    return Delivery(
        tag, delivery_tag, redelivered, payload[at + 1 : at + 1 + payload[at]].decode("utf-8", "replace")
    )

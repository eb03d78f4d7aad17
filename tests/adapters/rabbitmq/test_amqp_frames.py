"""Frames, tables and properties as bytes: what is written can be read, in pieces of any size."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.adapters.rabbitmq.amqp import fields, frames
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.errors import ProtocolError
from dalsegno.adapters.rabbitmq.amqp.frames import Frame, FrameReader, Properties
from dalsegno.errors import BadConfiguration

SHORT = st.text(max_size=60)
KEYS = st.text(max_size=20)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
LEAVES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.builds(fields.Timestamp, st.integers(0, 2**63))
    | st.decimals(-1000, 1000, places=3)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=6)
PROPERTIES = st.builds(
    Properties,
    content_type=st.none() | SHORT,
    headers=st.none() | TABLES,
    delivery_mode=st.none() | st.integers(0, 255),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | SHORT,
    message_id=st.none() | SHORT,
    timestamp=st.none() | st.builds(fields.Timestamp, st.integers(0, 2**64 - 1)),
    type=st.none() | SHORT,
    user_id=st.none() | SHORT,
    cluster_id=st.none() | SHORT,
)


@given(TABLES)
def test_table_is_read_as_it_was_written(values: dict[str, Any]) -> None:
    reader = fields.Reader(fields.table(values))
    assert reader.table() == values
    assert reader.at_end


@given(PROPERTIES, st.integers(0, 2**63))
def test_properties_are_read_as_they_were_written(properties: Properties, size: int) -> None:
    [frame] = FrameReader().feed(frames.content_frame(3, properties, size))
    assert frame[:2] == (frames.CONTENT, 3)
    assert frames.read_content(frame.payload) == (size, properties)


@given(
    st.lists(st.tuples(st.sampled_from((1, 2, 3, 8)), st.integers(0, 65535), st.binary(max_size=40))),
    st.data(),
)
def test_frames_arrive_in_pieces_of_any_size(sent: list[tuple[int, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(
        frames._FRAME.pack(kind, channel, len(payload)) + payload + b"\xce" for kind, channel, payload in sent
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader, received = FrameReader(), list[Frame]()
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += reader.feed(stream[begin:end])
    assert received == [Frame(*each) for each in sent]


@given(st.sampled_from(sorted(frames.ARGUMENTS)), st.data())
def test_method_is_read_as_it_was_written(name: frames.Name, data: st.DataObject) -> None:
    kinds = {
        "o": st.integers(0, 255),
        "h": st.integers(0, 2**16 - 1),
        "l": st.integers(0, 2**32 - 1),
        "L": st.integers(0, 2**64 - 1),
        "s": SHORT,
        "S": st.binary(max_size=300),
        "b": st.booleans(),
        "t": TABLES,
    }
    arguments = {argument: data.draw(kinds[kind]) for argument, kind in frames.ARGUMENTS[name]}
    [frame] = FrameReader().feed(frames.method_frame(7, name, **arguments))
    assert frames.read_method(frame.payload) == (name, arguments)


@given(st.binary(max_size=80))
def test_garbage_is_refused_and_nothing_else_breaks(data: bytes) -> None:
    for read in (frames.read_method, frames.read_content, lambda each: fields.Reader(each).table()):
        try:
            read(data)
        except ProtocolError:
            continue


@given(st.binary(max_size=5000), st.integers(100, 4096))
def test_body_is_cut_into_frames_of_the_agreed_size(body: bytes, frame_max: int) -> None:
    sent = frames.publish_frames(1, "workflows", "key", Properties(message_id="m"), body, frame_max)
    head, content, *pieces = FrameReader().feed(sent)
    assert head.payload[4:] == b"\x00\x00\x09workflows\x03key\x01"
    assert frames.read_content(content.payload)[0] == len(body)
    assert b"".join(piece.payload for piece in pieces) == body
    assert all(len(piece.payload) + frames.OVERHEAD <= frame_max for piece in pieces)


def test_short_forms_equal_the_general_ones() -> None:
    assert frames.ack_frame(4, 99, multiple=True) == frames.method_frame(
        4, frames.BASIC_ACK, delivery_tag=99, multiple=True
    )
    assert frames.nack_frame(4, 99) == frames.method_frame(
        4, frames.BASIC_NACK, delivery_tag=99, requeue=True
    )
    arguments = {
        "consumer_tag": "c",
        "delivery_tag": 7,
        "redelivered": True,
        "exchange": "e",
        "routing_key": "ß",
    }
    [frame] = FrameReader().feed(frames.method_frame(1, frames.BASIC_DELIVER, **arguments))
    assert frames.read_delivery(frame.payload) == ("c", 7, True, "ß")


def test_frame_without_end_mark_and_another_protocol_are_refused() -> None:
    with pytest.raises(ProtocolError, match="end mark"):
        list(FrameReader().feed(b"\x01\x00\x00\x00\x00\x00\x01a!"))
    with pytest.raises(ProtocolError, match="does not speak"):
        list(FrameReader().feed(b"AMQP\x01\x01\x00\x0a"))


def test_table_refuses_what_it_cannot_hold() -> None:
    for value in (object(), Decimal("1E+5"), 2**63):
        with pytest.raises((ValueError, struct.error)):
            fields.table({"key": value})
    deep: Any = "x"
    for _ in range(40):
        deep = {"a": deep}
    with pytest.raises(ProtocolError, match="nested"):
        fields.Reader(fields.table(deep)).table()


def test_bytes_that_are_no_text_survive() -> None:
    [frame] = FrameReader().feed(frames.content_frame(1, Properties(message_id="\udcff"), 0))
    assert b"\x01\xff" in frame.payload
    assert frames.read_content(frame.payload)[1].message_id == "\udcff"


def test_address_is_parsed_and_shown_without_password() -> None:
    address = parse_address("amqp://us%40er:pa%2Fss@[::1]:1234/my%2fvhost?heartbeat=3&connection_timeout=0.5")
    assert (address.host, address.port, address.user, address.password) == ("::1", 1234, "us@er", "pa/ss")
    assert (address.vhost, address.heartbeat, address.connection_timeout) == ("my/vhost", 3, 0.5)
    assert address.shown == "amqp://us@er@[::1]:1234/my/vhost"
    assert "pa/ss" not in repr(address)
    plain = parse_address("amqp://localhost")
    assert (plain.port, plain.user, plain.password, plain.vhost) == (5672, "guest", "guest", "/")
    assert parse_address("amqps://host").port == 5671


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://host", "amqp://"),
        ("amqp://user:geheim@host:port/x", "port"),
        ("amqp://user:ge/heim@host", "port"),
        ("amqp://user:geheim@host/a/b", "vhost"),
        ("amqp://user:geheim@host?beat=1", "beat"),
        ("amqp://user:geheim@host?heartbeat=never", "heartbeat"),
        ("amqps://user:geheim@host?cacertfile=/nowhere", "certificate"),
        ("amqps://user:geheim@host?verify=maybe", "verify"),
    ],
)
def test_bad_address_is_refused_without_its_password(url: str, reason: str) -> None:
    with pytest.raises(BadConfiguration, match=reason) as raised:
        parse_address(url)
    assert "heim" not in str(raised.value)

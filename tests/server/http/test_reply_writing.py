"""The head of a reply goes out with its body; and alone where nothing follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dalsegno.server.http.responses import CoalescingTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire(asyncio.Transport):
    """Remembers what was written in one go."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes | None] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.sent.append(b"".join(list_of_data))

    def close(self) -> None:
        self.sent.append(None)

    def is_closing(self) -> bool:
        return None in self.sent


async def test_head_and_body_are_written_together() -> None:
    wire = Wire()
    replies = CoalescingTransport(wire)
    for piece in (HEAD, b"body", b""):
        replies.write(piece)
    assert wire.sent == [HEAD + b"body"]
    await asyncio.sleep(0)
    assert wire.sent == [HEAD + b"body"]


async def test_a_head_that_nothing_follows_is_written_soon() -> None:
    wire = Wire()
    replies = CoalescingTransport(wire)
    replies.write(HEAD)
    assert wire.sent == []
    await asyncio.sleep(0)
    replies.write(b"data: 1\n\n")
    assert wire.sent == [HEAD, b"data: 1\n\n"]


async def test_a_reply_without_a_body_is_written_at_once() -> None:
    wire = Wire()
    replies = CoalescingTransport(wire)
    replies.write(HEAD)
    replies.write(b"")
    assert wire.sent == [HEAD]


async def test_an_interim_reply_goes_before_the_final_one() -> None:
    wire = Wire()
    replies = CoalescingTransport(wire)
    for piece in (b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, b"body"):
        replies.write(piece)
    assert b"".join(each or b"" for each in wire.sent) == b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"body"


async def test_closing_sends_what_was_held() -> None:
    wire = Wire()
    replies = CoalescingTransport(wire)
    replies.write(HEAD)
    replies.close()
    assert wire.sent == [HEAD, None]
    assert replies.is_closing()

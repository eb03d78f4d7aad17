"""A small HTTP/1.1 client over bare sockets: sends exactly the bytes it is given, one connection per request."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

LARGEST_REPLY = 64 * 1024 * 1024
DEADLINE = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """``status`` is 0 when the server closed the connection without an answer, -1 after the deadline."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


CLOSED = Reply(0, {}, b"")
TIMED_OUT = Reply(-1, {}, b"")


@dataclass(frozen=True, slots=True)
class Request:
    """``patience`` seconds after which the client hangs up; ``pieces`` sends the body in so many parts."""

    method: str
    path: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    media: str = "application/json"
    patience: float = DEADLINE
    pieces: int = 1

    def head(self, host: str, key: str) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {host}", "Connection: close"]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        if self.body or self.method in ("POST", "PUT", "PATCH"):
            lines += [f"Content-Type: {self.media}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


class Wire:
    def __init__(self, port: int, key: str) -> None:
        self.port = port
        self.key = key
        self.host = f"127.0.0.1:{port}"

    async def send(self, request: Request) -> Reply:
        try:
            async with asyncio.timeout(request.patience):
                return await self._exchange(request)
        except TimeoutError:
            return TIMED_OUT
        except OSError:
            return CLOSED

    async def _exchange(self, request: Request) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**20)
        try:
            writer.write(request.head(self.host, self.key))
            step = max(len(request.body) // max(request.pieces, 1), 1)
            for start in range(0, len(request.body), step):
                writer.write(request.body[start : start + step])
                await writer.drain()
            return await _read(reader)
        except (ConnectionError, asyncio.IncompleteReadError):
            return await _read(reader)  # an early refusal may already be there
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Reply:
    parts, size = [], 0
    try:
        while size < LARGEST_REPLY and (part := await reader.read(2**18)):
            parts.append(part)
            size += len(part)
    except ConnectionError:
        pass  # a server that refuses a body may reset the connection after its answer
    return _parsed(b"".join(parts))


def _parsed(raw: bytes) -> Reply:
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) < 2 or not words[1].isdigit():
        return CLOSED
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("transfer-encoding") == "chunked":
        body = _joined(body)
    return Reply(int(words[1]), headers, body)


def _joined(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size or b"0", 16)
        if count == 0:
            break
        parts.append(body[:count])
        body = body[count + 2 :]
    return b"".join(parts)

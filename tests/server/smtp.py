"""A mail server of a few lines, on loopback: takes every letter and keeps it."""

from __future__ import annotations

import asyncio
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Self, cast


class MailServer:
    def __init__(self) -> None:
        self.letters: list[EmailMessage] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := await reader.readline():
            match line.split(maxsplit=1)[0].upper():
                case b"DATA":
                    writer.write(b"354 go on\r\n")
                    self.letters.append(_letter(await reader.readuntil(b"\r\n.\r\n")))
                    writer.write(b"250 taken\r\n")
                case b"QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                case _:
                    writer.write(b"250 fine\r\n")
        writer.close()


def _letter(data: bytes) -> EmailMessage:
    return cast("EmailMessage", message_from_bytes(data.removesuffix(b".\r\n"), policy=default))

"""Errors of the client. The broker's own words are kept: they name the queue and the argument."""

from __future__ import annotations

from dalsegno.errors import Unavailable

ACCESS_REFUSED = 403
NOT_FOUND = 404
PRECONDITION_FAILED = 406
FRAME_ERROR = 501
NOT_ALLOWED = 530


class ConnectionLost(Unavailable):
    """The connection ended or could not be opened."""

    def __init__(self, message: str, reply_code: int = 0) -> None:
        super().__init__(message)
        self.reply_code = reply_code
        """The broker's code, 0 if it did not close the connection itself."""


class ChannelClosed(Unavailable):
    """The broker has closed a channel; the connection stays open."""

    def __init__(self, reply_code: int, reply_text: str) -> None:
        super().__init__(f"RabbitMQ closed a channel: {reply_code} {reply_text}")
        self.reply_code = reply_code
        self.reply_text = reply_text


class ProtocolError(Unavailable):
    """The other side does not speak AMQP 0-9-1, or not correctly."""

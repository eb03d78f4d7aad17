"""Errors of the driver: which mean that Redis cannot be reached, and how they are described."""

from __future__ import annotations

from redis import exceptions

from dalsegno.errors import BadConfiguration

BROKEN = (exceptions.RedisError, OSError, TimeoutError)
"""Whatever a command may raise because of the server, the network or the user's rights."""


def is_refusal(error: BaseException) -> bool:
    """Return whether waiting cannot help: a wrong password or user, or missing rights."""
    text = str(error)
    return isinstance(
        error, exceptions.AuthenticationError | exceptions.NoPermissionError | BadConfiguration
    ) or text.startswith(("NOAUTH", "WRONGPASS"))


def described(error: BaseException) -> str:
    if isinstance(error, BadConfiguration):
        return str(error)
    return str(error) or f"no answer ({type(error).__name__})"


def is_missing_group(error: exceptions.ResponseError) -> bool:
    """Return whether a stream or its consumer group is gone: the database was emptied, or restarted without a file."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED"))

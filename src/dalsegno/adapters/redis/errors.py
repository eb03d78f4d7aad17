"""Errors of the driver: which mean that Redis cannot be reached, and how they are described."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis import exceptions

from dalsegno.adapters.tls import tls_problem
from dalsegno.errors import BadConfiguration, Unavailable

BROKEN = (exceptions.RedisError, OSError, TimeoutError)
"""Whatever a command may raise because of the server, the network or the user's rights."""


CANCEL_AGAIN = 0.2


def is_refusal(error: BaseException) -> bool:
    """Return whether waiting cannot help: a wrong password or user, or missing rights."""
    text = str(error)
    return isinstance(
        error, exceptions.AuthenticationError | exceptions.NoPermissionError | BadConfiguration
    ) or text.startswith(("NOAUTH", "WRONGPASS"))


def described(error: BaseException) -> str:
    if isinstance(error, BadConfiguration):
        return str(error)
    return tls_problem(error, "ssl_ca_certs") or str(error) or f"no answer ({type(error).__name__})"


def is_missing_group(error: exceptions.ResponseError) -> bool:
    """Return whether a stream or its consumer group is gone: the database was emptied, or restarted without a file."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED"))


def expect_not_cancelled() -> None:
    """Raise the cancellation that the driver may have replaced by an error of the connection which it closed."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks until they have ended: a cancellation may be lost inside the driver (``asyncio.wait_for`` of Python
    3.11 loses one that comes as the call returns)."""
    left = [task for task in tasks if not task.done()]
    while left:
        for task in left:
            task.cancel()
        _, pending = await asyncio.wait(left, timeout=CANCEL_AGAIN)
        left = list(pending)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieve the exception so that asyncio does not log it


@contextmanager
def driver_errors(url: str) -> Iterator[None]:
    """Turn errors of the driver into ours. ``url``: without its password."""
    try:
        yield
    except BROKEN as error:
        expect_not_cancelled()
        kind = BadConfiguration if is_refusal(error) else Unavailable
        raise kind(f"Redis at {url} cannot be used: {described(error)}") from error

"""The one place where redis-py's errors become ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    InternalError,
    InvalidInput,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)


class RefusedValue(InvalidInput):
    """A script could not work with what it was given; it has changed nothing."""


MAPPED: tuple[tuple[type[Exception], type[DalSegnoError], str], ...] = (
    (exceptions.OutOfMemoryError, StoreFull, "Redis is out of memory: raise maxmemory; nothing was applied"),
    (exceptions.ReadOnlyError, StoreReadOnly, "this Redis is a replica: connect to the primary"),
    (exceptions.AuthenticationError, BadConfiguration, "Redis refuses the credentials"),
    (exceptions.NoPermissionError, BadConfiguration, "the Redis user may not do this"),
    (exceptions.AuthorizationError, BadConfiguration, "the Redis user may not do this"),
    (exceptions.MasterDownError, Unavailable, "the primary of this Redis is away"),
    (exceptions.ConnectionError, Unavailable, "Redis cannot be reached"),
    (exceptions.TimeoutError, Unavailable, "Redis does not answer"),
    (OSError, Unavailable, "Redis cannot be reached"),
)
"""The first that fits counts."""

BY_WORD: tuple[tuple[str, type[DalSegnoError], str], ...] = (
    ("MISCONF", StoreFull, "Redis cannot write to its disk; nothing was applied"),
    ("WRONGPASS", BadConfiguration, "the password is wrong"),
    ("BUSY ", Unavailable, "Redis is busy with a script"),
)
"""Answers for which redis-py has no class, by how they begin."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Everything that talks to the driver does so inside this."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        raise explain(error) from error


def explain(error: Exception) -> DalSegnoError:
    """Any error of the driver as the error of whoever must act."""
    for kind, ours, cure in MAPPED:
        if isinstance(error, kind):
            return ours(f"{cure} ({error})")
    text = str(error)
    for word, ours, cure in BY_WORD:
        if text.startswith(word):
            return ours(f"{cure} ({text})")
    if isinstance(error, exceptions.ResponseError) and "script: " in text:
        return RefusedValue(f"a script failed: {text}")
    return InternalError(f"unexpected error of Redis: {text}")

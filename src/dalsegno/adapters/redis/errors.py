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


BY_WORD: dict[str, tuple[type[DalSegnoError], str]] = {
    "OOM": (StoreFull, "Redis is out of memory: raise maxmemory; nothing of this commit was applied"),
    "MISCONF": (StoreFull, "Redis cannot write to its disk; nothing of this commit was applied"),
    "READONLY": (StoreReadOnly, "this Redis is a replica: connect to the primary"),
    "NOAUTH": (BadConfiguration, "Redis wants a password"),
    "WRONGPASS": (BadConfiguration, "the password is wrong"),
    "NOPERM": (BadConfiguration, "the Redis user may not do this"),
    "LOADING": (Unavailable, "Redis is loading its data"),
    "BUSY": (Unavailable, "Redis is busy with a script"),
    "MASTERDOWN": (Unavailable, "the primary is away"),
}
"""By the first word of the server's answer."""


@contextmanager
def driver_errors() -> Iterator[None]:
    """Everything that talks to the driver does so inside this."""
    try:
        yield
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        raise explain(error) from error


def explain(error: Exception) -> DalSegnoError:
    """Any error of the driver as the error of whoever must act."""
    if isinstance(error, exceptions.AuthenticationError):
        return BadConfiguration(f"Redis refuses the credentials ({error})")
    text = str(error)
    for word, (kind, cure) in BY_WORD.items():
        if word in text.split(":", 1)[0] or text.startswith(word):
            return kind(f"{cure} ({text})")
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreReadOnly(f"this Redis is a replica: connect to the primary ({text})")
    if isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)):
        return Unavailable(f"Redis cannot be reached or is busy ({type(error).__name__}: {text})")
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(f"Redis is out of memory: raise maxmemory ({text})")
    if isinstance(error, exceptions.ResponseError) and "script" in text:
        return RefusedValue(f"a script failed: {text}")
    return InternalError(f"unexpected error of Redis: {text}")

"""Connecting to one of the servers in a URL.

The driver grants all of them one time together, so a server that does not answer at all, as one whose machine is gone,
would use it up, and the others would never be asked. Here each one gets a time of its own.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg

AT_ONE_OF_SEVERAL = 5.0
"""Seconds in which a server has to answer while there is another one to ask."""
ASK_THE_NEXT = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)
"""It is away, starting, or not what ``target_session_attrs`` asks for; all else is told at once, as by the driver."""
PLACES = re.compile(r"(?P<before>[^:]+://(?:[^/?#]*@)?)(?P<places>[^/?#@]*)(?P<after>.*)", re.DOTALL)


async def connect(url: str, *, timeout: float = 60.0, **options: Any) -> Any:  # noqa: ASYNC109 - as the driver's
    """As ``asyncpg.connect``. ``timeout`` is for all servers together."""
    clock = asyncio.get_running_loop().time
    until = clock() + timeout
    *others, last = one_by_one(url)
    unfit: Exception | None = None
    away: Exception | None = None
    for number, other in enumerate(others):
        share = (until - clock()) / (len(others) + 1 - number)
        try:
            return await asyncpg.connect(other, timeout=min(share, AT_ONE_OF_SEVERAL), **options)
        except asyncpg.TargetServerAttributeNotMatched as error:
            unfit = error
        except ASK_THE_NEXT as error:
            away = error
    try:
        return await asyncpg.connect(last, timeout=max(until - clock(), 0.0), **options)
    except asyncpg.TargetServerAttributeNotMatched:
        if away is not None:
            raise away from unfit  # it may be the one that is meant
        raise


def one_by_one(url: str) -> list[str]:
    """The URL with each of its servers alone. Where a standby is only preferred, all of them have to be looked at
    together; so they are left to the driver, as are those that stand in the URL's query."""
    found = PLACES.fullmatch(url)
    if found is None or "prefer-standby" in found["after"]:
        return [url]
    places = found["places"].split(",")
    return [found["before"] + place + found["after"] for place in places] if all(places) else [url]

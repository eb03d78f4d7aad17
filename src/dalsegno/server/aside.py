"""Long work on what a caller sent, beside the loop: everybody else is served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_desk = ThreadPoolExecutor(1, "dalsegno-checks")
"""One at a time: more threads would only take the processor from each other, and from the loop."""


async def aside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work`` must be pure: it runs in another thread."""
    return await asyncio.wrap_future(_desk.submit(work, *args, **kwargs))

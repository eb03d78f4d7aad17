"""The store's own limits, measured in the same minute: what a ratio is taken against."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from dalsegno.wiring import sqlite_path


async def raw_limits(url: str) -> dict[str, float]:
    """Single commits per second and batched rows per second, where the store has such limits."""
    if urlsplit(url).scheme != "sqlite":
        return {}
    from dalsegno.adapters.sqlite.raw import measure_raw  # noqa: PLC0415 - only what is used is loaded

    with tempfile.TemporaryDirectory(dir=sqlite_path(url).resolve().parent) as folder:
        return await asyncio.to_thread(measure_raw, Path(folder) / "raw.db")

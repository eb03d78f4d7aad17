"""Programs as users write them: an own process runs the file, the test its application."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from dalsegno import App
from dalsegno.engine.settings import EngineSettings


def chain_of(steps: int, pause: float = 0.0) -> str:
    """The text of one whose ``chain`` doubles a number so many times."""
    return f"""
import asyncio
from dalsegno import App

app = App()


@app.task
async def double(n: int) -> int:
    await asyncio.sleep({pause})
    return n * 2


@app.workflow
async def chain(n: int) -> int:
    for _ in range({steps}):
        n = await double(n)
    return n
"""


def app_of(file: Path, url: str, lease_seconds: float) -> App:
    spec = importlib.util.spec_from_file_location("program", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    app: App = module.app
    app.url = url
    app.settings = EngineSettings(lease_seconds=lease_seconds)
    return app

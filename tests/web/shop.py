"""The tasks and the Python workflow of the web UI's tests. A file stops the steps that a test wants to see running."""

from __future__ import annotations

import time
from pathlib import Path

from dalsegno import App, sleep

app = App()


@app.task
async def charge(order: str) -> dict[str, str]:
    return {"receipt": f"r-{order}"}


@app.task
def ship(order: str) -> dict[str, str]:
    if Path("no-address").exists():
        raise ValueError(f"no address for order {order}")
    return {"parcel": f"p-{order}"}


@app.task
def gate(name: str) -> str:
    """Wait until the test lets this step go on."""
    while not Path(Path(name).name).exists():
        time.sleep(0.05)
    return name


@app.workflow
async def buy(order: str) -> dict[str, dict[str, str]]:
    receipt = await charge(order)
    await sleep(0.1)
    return {"receipt": receipt, "parcel": await ship(order)}

"""What a server does on the side, as long as it runs: write the audit log and last uses, and remove what is over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dalsegno.errors import OperatorError, StoreLost
from dalsegno.server import metrics, reaching
from dalsegno.server.office import Office

logger = logging.getLogger("dalsegno.server")

WRITE_EVERY = 0.25
SWEEP_EVERY = 3600.0
AFTER_TROUBLE = 5.0


@asynccontextmanager
async def on_duty(office: Office) -> AsyncIterator[None]:
    """Around the time in which requests come in: the keys are known before, the audit log is written after."""
    await office.doorman.keys()
    over = asyncio.Event()
    task = asyncio.create_task(_serve(office, over), name="dalsegno-duty")
    try:
        yield
    finally:
        over.set()  # not cancelled: a batch that is being written is written to its end
        await office.doorman.close()
        await reaching.end_look(office.client.stack)
        await metrics.end_look(office.client.stack)
        await task
        await office.audit.close()


async def _serve(office: Office, over: asyncio.Event) -> None:
    swept: float | None = None
    while not over.is_set():
        try:
            await _write(office)
            if swept is None or time.monotonic() - swept >= SWEEP_EVERY:
                await _sweep(office)
                swept = time.monotonic()
            pause = WRITE_EVERY
        except StoreLost:
            return  # the process ends
        except OperatorError as error:
            logger.warning("the audit log has to wait: %s", error)
            pause = AFTER_TROUBLE
        except Exception:  # a bug here must not end the audit log for good
            logger.exception("the audit log has to wait")
            pause = AFTER_TROUBLE
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await over.wait()


async def _write(office: Office) -> None:
    await office.audit.flush()
    if office.settings.audit_rows is not None:
        await office.audit.trim_to(office.settings.audit_rows)
    await office.doorman.write_uses()


async def _sweep(office: Office) -> None:
    await office.doorman.sessions.sweep()
    if office.settings.audit_seconds is not None:
        await office.audit.trim(office.settings.audit_seconds)

"""Check of the seals of Python workflows' snapshots."""

from __future__ import annotations

from dalsegno.app import App
from dalsegno.cli.doctor.check import Check, judge
from dalsegno.cli.snapshots import sentence, survey

LOOKED_AT = 500
"""Unfinished executions whose snapshots are looked at."""
GONE = "there are seals, but the record of when the sealing began is gone: it may have been deleted from the store"
GONE_CURE = (
    "Find out who wrote to the store. A worker with the key writes the date back, or refuses unsealed snapshots; "
    "`dalsegno snapshots accept-until` sets a date."
)


async def examine_snapshots(app: App) -> list[Check]:
    """Nothing where no process seals and no Python workflow waits."""
    client, seals = app.client, app.engine.seals
    found = await survey(client, seals, LOOKED_AT)
    now = client.stack.clock.now()
    if found.sealing is None:
        if found.sealed or await seals.has_seals():
            return [judge("snapshots", GONE, fail=True, cure=GONE_CURE)]
        if not found.unsealed:
            return []
        return [judge("snapshots", sentence(found, now))]
    is_late = now >= found.sealing.accept_until
    lacks_key = not seals.keys.is_configured
    detail = sentence(found, now)
    if lacks_key:
        detail += "; this process has no key, and cannot run sealed ones"
    return [
        judge(
            "snapshots",
            detail,
            fail=is_late and bool(found.unsealed),
            warn=lacks_key or bool(found.unsealed),
            cure=(
                "Give every worker the same secret key."
                if lacks_key
                else "They are sealed with their next turn; `dalsegno snapshots seal` seals them as they stand."
            ),
        )
    ]

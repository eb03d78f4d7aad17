"""Seals of Python workflows' snapshots: survey, sealing and the acceptance date."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from dalsegno.engine.client import Client
from dalsegno.engine.secrets.snapshot_seals import Sealing, SnapshotSeals, is_sealed, key_of
from dalsegno.errors import InvalidInput, NoSecretKey
from dalsegno.lang.python.program import stored_program
from dalsegno.model.execution import UNDER_WAY, ExecutionView
from dalsegno.ports.archive import ExecutionFilter, Place

PAGE = 200
DAY = 86400.0


@dataclass(slots=True)
class Survey:
    """The seals of unfinished Python executions: sealed snapshots by key, and those without a seal."""

    sealing: Sealing | None
    sealed: Counter[str] = field(default_factory=Counter)
    """Number of snapshots by the id of the key."""
    unsealed: list[str] = field(default_factory=list)
    """Executions whose snapshot has no seal."""
    by_hand: int = 0
    has_more: bool = False


async def survey(client: Client, seals: SnapshotSeals, most: int | None = None) -> Survey:
    """Count the seals. At most ``most`` executions are examined."""
    await seals.read_keys()
    found = Survey(await seals.sealing())
    looked = 0
    async for view in _unfinished(client):
        if most is not None and looked >= most:
            found.has_more = True
            break
        looked += 1
        machine = await client.stack.ledger.machine(view.id)
        if machine is None or not machine.snapshot:
            continue
        if is_sealed(machine.snapshot):
            found.sealed[key_of(machine.snapshot)] += 1
        elif await seals.has_manual_seal(view.id):
            found.by_hand += 1
        else:
            found.unsealed.append(view.id)
    return found


async def seal_all(client: Client, seals: SnapshotSeals) -> tuple[int, int]:
    """Seal the snapshots of unfinished executions, and the code of their versions. Return the number of each.

    Unsealed content is sealed as it is. What an older key sealed is sealed with the first key if the old seal is valid;
    else raise `SnapshotRefused`.
    """
    if not seals.keys.is_configured:
        raise NoSecretKey(
            "there is no key to seal snapshots with: set DALSEGNO_SECRET_KEY or DALSEGNO_SECRET_KEY_FILE for this "
            "command and for every worker; `dalsegno credentials new-key` makes one"
        )
    await seals.prepare()
    await seals.accept_until((await seals.begin()).accept_until)  # the date is sealed with the first key, too
    first = seals.key_ids[0]
    snapshots, definitions = 0, set()
    for execution in await seals.sealed_manually():
        await seals.forget_manual_seal(execution)
    async for view in _unfinished(client):
        definitions.add(view.definition)
        machine = await client.stack.ledger.machine(view.id)
        if machine is None or not machine.snapshot or key_of(machine.snapshot) == first:
            continue
        snapshot = machine.snapshot
        if is_sealed(snapshot):
            snapshot = await seals.opened(snapshot, view.id, view.definition)
        await seals.seal_manually(snapshot, view.id, view.definition)
        snapshots += 1
    programs = 0
    for content_hash in sorted(definitions):
        definition = await client.stack.archive.definition_by_hash(content_hash)
        if definition is not None:
            await seals.seal_program(content_hash, stored_program(definition.source))
            programs += 1
    return snapshots, programs


async def _unfinished(client: Client) -> AsyncIterator[ExecutionView]:
    where = ExecutionFilter(states=UNDER_WAY, kinds=("python",))
    before: str | Place | None = None
    while page := await client.stack.archive.executions(where, before, PAGE):
        for view in page:
            yield view
        before = page[-1].id


def moment_of(text: str, now: float) -> float:
    """Parse ``now``, a number of days (``30d``), or a date such as 2027-03-31 (UTC, start of the day)."""
    if text == "now":
        return now
    if text.endswith("d") and text[:-1].isdigit():
        return now + int(text[:-1]) * DAY
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a date; write 2027-03-31, 30d or now") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)).timestamp()


def date_of(moment: float) -> str:
    return dt.datetime.fromtimestamp(moment, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")


def sentence(found: Survey, now: float) -> str:
    """Return one line about the seals of a store."""
    count = f"at least {len(found.unsealed)}" if found.has_more else str(len(found.unsealed))
    if found.sealing is None:
        return f"not sealed: no process with a secret key has run Python workflows here; {count} unsealed"
    until = found.sealing.accept_until
    accepted = "are accepted until" if now < until else "are refused since"
    return f"sealed since {date_of(found.sealing.since)}; unsealed ones {accepted} {date_of(until)}: {count} left"

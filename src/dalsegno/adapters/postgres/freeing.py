"""Slots of tokens that are removed while they are leased.

An ending frees the slots that it sees. It does not see a claim that leases a token of the same execution at that
moment, nor does the claim see the ending: it may shut a line behind a slot that nobody gives back any more. Removing
the token waits for the claim, so whoever removes a leased one opens the lines of its key. Slots are not counted
anywhere: a line that is opened twice, or for nothing, is only looked at once more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

from dalsegno.adapters.postgres.messages import CHANNEL, NEWS
from dalsegno.adapters.postgres.store import PostgresStore, Transaction
from dalsegno.errors import OperatorError


async def open_lines(tx: Transaction, keys: Collection[str]) -> bool:
    """Whether any was shut. All keys of a transaction at once and last of all: everybody takes them after rows, and in
    one order."""
    if not keys:
        return False
    await tx.fetch("limits.lock", list(keys))
    return bool(await tx.fetch("limits.open", list(keys)))


async def tell_opened(store: PostgresStore) -> None:
    """Whoever waits looks. If the message is lost, its next look finds what is in line."""
    with contextlib.suppress(OperatorError):
        await store.fetch("limits.tell", CHANNEL, NEWS)

"""Has a process say in its log which of its commits the store has refused as too late.

The engine itself drops such an answer without a word: there is nothing to do about it. What the store answers is the
only proof that a commit did arrive and was turned down, and did not simply get lost on the way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from dalsegno.adapters.postgres.ledger import PostgresLedger
from dalsegno.model.transition import Outcome, Stale, Transition

LINE = "refused: {reason} of token {token} with fence {fence}\n"
PATTERN = re.compile(r"^refused: (\w+) of token (\S+) with fence (\d+)$", re.MULTILINE)


class Refusal(NamedTuple):
    reason: str
    token: str
    fence: int


def bear_witness() -> None:
    """From now on, in this process. What belongs to no token is a command, not a step that comes too late."""
    commit = PostgresLedger.commit

    async def witnessed(self: PostgresLedger, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes = await commit(self, batch)
        for transition, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Stale) and transition.token is not None:
                line = LINE.format(reason=outcome.reason, token=transition.token, fence=transition.fence)
                os.write(2, line.encode())
        return outcomes

    PostgresLedger.commit = witnessed  # type: ignore[method-assign]


def refusals(log: str) -> list[Refusal]:
    return [Refusal(reason, token, int(fence)) for reason, token, fence in PATTERN.findall(log)]

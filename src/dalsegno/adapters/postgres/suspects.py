"""Tokens that killed workers before, as far as they are leased in this process.

A worker has one of them at a time, so a claim leaves others behind although it was asked for more. When that one is
done nothing becomes ready, and nobody would announce anything: therefore whoever waits here is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from dalsegno.adapters.postgres.wanted import Key
from dalsegno.core.settlement.claim import SUSPECT_LOSSES
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Stale, Transition


class Suspects:
    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None
        """Called when the lease of one has ended."""
        self._leased: set[Key] = set()

    def note(self, leases: Iterable[Lease]) -> None:
        """Of those that were given, the suspects."""
        self._leased.update((lease.execution, lease.token) for lease in leases if is_suspect(lease))

    def settled(self, batch: Sequence[Transition], outcomes: Sequence[Outcome]) -> None:
        """Steps came to their end. One that was put off or refused is still under way."""
        if self._leased:
            over = (Applied, AlreadyApplied, Stale)
            steps = zip(batch, outcomes, strict=True)
            self._end(
                {
                    (step.execution, step.token)
                    for step, outcome in steps
                    if step.token and type(outcome) in over
                }
            )

    def handed_back(self, leases: Iterable[Lease]) -> None:
        if self._leased:
            self._end({(lease.execution, lease.token) for lease in leases})

    def _end(self, keys: Collection[Key]) -> None:
        if not self._leased.isdisjoint(keys):
            self._leased.difference_update(keys)
            self.tell()


def is_suspect(lease: Lease) -> bool:
    return lease.losses >= SUSPECT_LOSSES

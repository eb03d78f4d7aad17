"""Limits by key: what operators set, how much of a key is in use. The ledger of the same store keeps to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dalsegno.model.limits import Allowance, LimitView


class Limits(Protocol):
    """A token with a limit key needs a slot of its key to be leased. What holds for it is what operators have set for
    the key, and where they have set nothing, what the token's definition says.

    * **M1 bounded**: at no moment are more tokens of a key leased than its concurrency allows, whatever the process,
      and whether they are claimed or leased by name.
    * **M2 given back**: a slot belongs to a lease; it is free with the very change that consumes, parks, cancels,
      hands back or expires its token, or ends its execution. No crash leaks one.
    * **M3 paced**: in no period of a key's rate are more tokens leased than it allows.
    * **M4 in turns**: priorities come first; among tokens without a key and with keys that have room, age decides;
      keys of the same priority take turns. A key without room delays nobody else, however many tokens it has.
    """

    async def set(self, key: str, rule: Allowance) -> None:
        """From now on, in every process. What is leased already stays so."""

    async def remove(self, key: str) -> bool:
        """What definitions say holds again. Whether there was a rule."""

    async def get(self, key: str) -> LimitView: ...

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        """By key, those greater than ``after``: keys that have a rule, tokens in line, or slots in use."""

    def on_opening(self, tell: Callable[[float], None]) -> None:
        """Whom a claim tells when tokens that a rate has stopped may go on."""

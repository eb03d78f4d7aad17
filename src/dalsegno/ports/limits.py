"""The port of limits by key: the operators' rules and the current use. The ledger of the same store enforces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dalsegno.model.limits import Allowance, LimitView


class Limits(Protocol):
    """Rules for limit keys and their current use.

    A token with a limit key needs a slot of its key to be leased. The operators' rule for the key applies; without
    one, the token's definition.

    * **M1 bounded**: at no moment are more tokens of a key leased than its concurrency allows, in all processes
      together, and whether they are claimed or leased by name.
    * **M2 given back**: a slot belongs to a lease; it is free with the very change that consumes, parks, cancels,
      hands back or expires its token, or ends its execution. No crash leaks one.
    * **M3 paced**: in no period of a key's rate are more tokens leased than it allows.
    * **M4 in turns**: priorities come first; among tokens without a key and with keys that have room, age decides;
      keys of the same priority take turns. A key without room delays no other token, however many tokens it has.
    """

    async def set(self, key: str, rule: Allowance) -> None:
        """Set the rule from now on, in every process. Existing leases are not affected."""

    async def remove(self, key: str) -> bool:
        """Remove the rule, so that definitions apply again. Return True if there was one."""

    async def get(self, key: str) -> LimitView: ...

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        """Return keys greater than ``after``, by key: those that have a rule, waiting tokens, or slots in use."""

    def on_opening(self, callback: Callable[[float], None]) -> None:
        """Register the function that a claim calls when tokens stopped by a rate may continue."""

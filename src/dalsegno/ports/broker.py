"""The broker brings ready tokens to workers. It is only ever a hint: the ledger knows what is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken


class Broker(Protocol):
    """
    * **B1 at least once**: an announced token reaches some worker that serves its queue, maybe several times and in
      any order; what it is given is a lease from the ledger, so a duplicate yields nothing.
    * **B2 hint only**: losing every announcement loses no work; the reconciler announces again.
    """

    async def announce(self, tokens: Sequence[ReadyToken]) -> None: ...

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Announces them to other processes, where they are told apart from this one: it cannot run them."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Leases for at most ``limit`` ready tokens; waits until there is one."""

    async def close(self) -> None: ...

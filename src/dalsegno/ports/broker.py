"""The broker port: brings ready tokens to workers. It only gives hints: the ledger decides what is ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition


class Broker(Protocol):
    """Announces ready tokens and hands out leases.

    * **B1 at least once**: an announced token reaches some worker that serves its queue, maybe several times and
      in any order; the worker gets a lease from the ledger, so a duplicate yields nothing.
    * **B2 hint only**: losing every announcement loses no work; the reconciler announces again.
    """

    def committed(self, transition: Transition) -> None:
        """Note a commit of this process that made tokens ready, just before they are announced: a broker whose
        messages describe a token finds here what the commit has spawned.
        """

    async def announce(self, tokens: Sequence[ReadyToken]) -> None: ...

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Announce tokens to other processes, if they are known to be others: this process cannot run them."""

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Lease at most ``limit`` ready tokens; wait until there is one."""

    def settled(self, lease: Lease) -> None:
        """Note that this process no longer runs a leased token: its step is committed, or the lease is handed back,
        and what that made ready was announced before. A broker that holds the token's message acknowledges it.
        """

    async def close(self) -> None: ...

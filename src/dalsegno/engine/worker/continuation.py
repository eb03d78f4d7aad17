"""Continuation: which spawned tokens a worker asks to keep, and when it lets others go first.

A kept token is leased to the worker by the commit that spawns it, so a chain costs one commit per step and no claim.
Fairness: after ``MAX_HOPS`` steps or ``MAX_RUN`` seconds a chain goes through the queue if other tokens are known to
wait there; a waiting token of higher priority ends the chain at once. The time limit does not apply to a workflow
that holds few slots: on a busy worker it passes while its steps wait for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dalsegno.model.effect import SpawnToken
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.token import Lease, NewToken
from dalsegno.model.transition import Applied, ReadyToken, Transition

KEEPABLE = frozenset(("node", "task", "resume"))
"""Kinds of tokens that a worker may keep."""
MAX_HOPS = 32
MAX_RUN = 0.05


class Continuation:
    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self.others_wait = False
        self._highest: int | None = None

    def announced(self, ready: Sequence[ReadyToken]) -> None:
        """Note that tokens became ready which no worker has leased yet."""
        own_priorities = [token.priority for token in ready if token.queue in self.queues]
        if own_priorities:
            self.others_wait = True
            self._highest = (
                max(own_priorities) if self._highest is None else max(self._highest, *own_priorities)
            )

    def claimed(self, *, all_of_them: bool) -> None:
        """Note the result of a claim; ``all_of_them`` if it found less than there was room for."""
        self._highest = None
        self.others_wait = not all_of_them

    def may_continue(self, hops: int, seconds: float, priority: int, holds_few: Callable[[], bool]) -> bool:
        if self._highest is not None and self._highest > priority:
            return False
        return not self.others_wait or (hops < MAX_HOPS and (seconds < MAX_RUN or holds_few()))

    def keeping(
        self, transition: Transition, room: Callable[[], int], worker: str, at_least: int = 1
    ) -> tuple[Transition, list[NewToken]]:
        """Return the transition, asking to keep as many of the tokens it spawns for ``worker`` as there is ``room``
        for, and those tokens. ``room`` is called only if there are more than ``at_least``.
        """
        kept: list[NewToken] = []
        for effect in transition.effects:
            if type(effect) is SpawnToken:
                token = effect.token
                is_free = token.due is None and token.limit_key is None
                if is_free and token.kind in KEEPABLE and token.queue in self.queues:
                    kept.append(token)
        if len(kept) > at_least:
            del kept[max(room(), 0) :]
        if not kept:
            return transition, []
        names = (kept[0].id,) if len(kept) == 1 else tuple([token.id for token in kept])
        return msgspec.structs.replace(transition, keep=names, worker=worker), kept


def kept_leases(
    execution: str,
    definition: str,
    epoch: int,
    kept: Sequence[NewToken],
    applied: Applied,
    now: float,
    kind: ExecutionKind = "graph",
) -> list[Lease]:
    """Return leases for the tokens that the commit left to the worker."""
    return [
        Lease(
            token.id,
            execution,
            1,
            token.scope,
            token.kind,
            token.node,
            token.data,
            token.queue,
            token.priority,
            1,
            0,
            "",
            now,
            definition,
            epoch,
            token.live,
            kind,
        )
        for token in kept
        if token.id in applied.kept
    ]

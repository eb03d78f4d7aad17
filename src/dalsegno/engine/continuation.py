"""Going on with what one has spawned: which tokens a worker asks to keep, and when it lets others go first.

A kept token is leased to the worker by the very commit that spawns it, so a chain costs one commit per step and no
claim at all. Fairness: after ``MAX_HOPS`` steps or ``MAX_RUN`` seconds a chain goes through the queue if anything else
is known to wait there; a token of higher priority that waits ends it at once. The seconds do not count for a workflow
that holds few slots: on a busy worker they pass while its steps wait for others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from dalsegno.model.effect import SpawnToken
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.token import Lease, NewToken
from dalsegno.model.transition import Applied, ReadyToken, Transition

MAX_HOPS = 32
MAX_RUN = 0.05


class Continuation:
    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self.others_wait = False
        self._highest: int | None = None

    def announced(self, ready: Sequence[ReadyToken]) -> None:
        """Tokens became ready that nobody has taken yet."""
        mine = [token.priority for token in ready if token.queue in self.queues]
        if mine:
            self.others_wait = True
            self._highest = max(mine) if self._highest is None else max(self._highest, *mine)

    def claimed(self, *, all_of_them: bool) -> None:
        """A claim came back; ``all_of_them`` if it found less than there was room for."""
        self._highest = None
        self.others_wait = not all_of_them

    def may_go_on(self, hops: int, seconds: float, priority: int, holds_few: Callable[[], bool]) -> bool:
        if self._highest is not None and self._highest > priority:
            return False
        return not self.others_wait or (hops < MAX_HOPS and (seconds < MAX_RUN or holds_few()))

    def keeping(self, transition: Transition, room: int, worker: str) -> tuple[Transition, list[NewToken]]:
        """The transition, asking to keep at most ``room`` of the tokens it spawns for ``worker``."""
        kept: list[NewToken] = []
        for effect in transition.effects:
            if type(effect) is SpawnToken and self._keepable(effect.token) and len(kept) < room:
                kept.append(effect.token)
        if not kept:
            return transition, []
        names = tuple([token.id for token in kept])
        return msgspec.structs.replace(transition, keep=names, worker=worker), kept

    def _keepable(self, token: NewToken) -> bool:
        return (
            token.due is None
            and token.kind in ("node", "task", "resume")
            and token.limit_key is None
            and token.queue in self.queues
        )


def kept_leases(
    execution: str,
    definition: str,
    epoch: int,
    kept: Sequence[NewToken],
    applied: Applied,
    now: float,
    kind: ExecutionKind = "graph",
) -> list[Lease]:
    """Leases for the tokens that the commit really left to the worker."""
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

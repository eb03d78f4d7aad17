"""Whether an upgrade may be finished: not beside processes that use what it takes away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dalsegno.cli.problems import Refusal
from dalsegno.engine.roll_call import WorkerSeen, seen_among
from dalsegno.ports.ledger import WorkerView
from dalsegno.version import __version__

NAMED = 10
"""Workers that are named; the others are counted."""
RELEASE = re.compile(r"\d+(?:\.\d+)*")
HINT = (
    "Replace them by this version first, or stop them; one that was killed is forgotten when its lease ends. Look after"
    " schedulers, and servers without a worker, too: they are not among these. --force finishes all the same, and what"
    " is older breaks."
)


def refuse_beside_older(workers: Sequence[WorkerView], now: float) -> None:
    """As far as the heartbeats tell."""
    alive = [seen for seen in seen_among(workers, now) if seen.state == "alive"]
    older = list(dict.fromkeys(_told(seen) for seen in alive if is_older(seen.version)))
    if not older:
        return
    more = f" and {len(older) - NAMED} more" if len(older) > NAMED else ""
    raise Refusal(
        f"the upgrade cannot be finished while older workers are alive: {', '.join(older[:NAMED])}{more}",
        HINT,
    )


def is_older(version: str | None, than: str = __version__) -> bool:
    """Also where it is not known. What comes before a release (``1.0rc1``) counts as older than everything else of its
    number."""
    return version is None or (version != than and _release(version) <= _release(than))


def _release(version: str) -> tuple[int, ...]:
    found = RELEASE.match(version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _told(seen: WorkerSeen) -> str:
    return f"{seen.name} ({f'version {seen.version}' if seen.version else 'does not say its version'})"

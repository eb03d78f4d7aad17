"""Whether an upgrade may be finished: not beside processes that use what it takes away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dalsegno.cli.problems import Refusal
from dalsegno.engine.roll_call import seen_among
from dalsegno.ports.ledger import WorkerView
from dalsegno.ports.upgrading import ConnectedProcess
from dalsegno.version import __version__

NAMED = 10
"""Processes that are named; the others are counted."""
RELEASE = re.compile(r"\d+(?:\.\d+)*")
HINT = (
    "Replace them by this version first, or stop them; a worker that was killed is forgotten when its lease ends."
    " Behind a pooler look after schedulers, and servers without a worker, too: they may not show there."
    " --force finishes all the same, and what is older breaks."
)


def refuse_odd_options(*, check: bool, finish: bool, force: bool) -> None:
    """Before the store is opened: whoever mixes them up is about to do something else than they think."""
    if check and finish:
        raise Refusal(
            "--check only looks, and --finish takes something away",
            "Look first with `dalsegno migrate --check`, then write `dalsegno migrate --finish`.",
        )
    if force and not finish:
        raise Refusal(
            "--force says nothing without --finish",
            "Write `dalsegno migrate --finish --force` to take away what older processes may still use, or"
            " `dalsegno migrate` alone, which takes nothing away.",
        )


def refuse_beside_older(
    workers: Sequence[WorkerView], connected: Sequence[ConnectedProcess], now: float
) -> None:
    """As far as the heartbeats and the connections tell."""
    alive = [seen for seen in seen_among(workers, now) if seen.state == "alive"]
    older = [seen for seen in alive if is_older(seen.version)]
    named = {seen.name for seen in older}
    others = [each for each in connected if is_older(each.version) and each.name not in named]
    found = []
    if older:
        found.append(f"older workers are alive: {_some([_told(each.name, each.version) for each in older])}")
    if others:
        told = _some([_told(_place_of(each), each.version) for each in others])
        found.append(f"older processes are connected: {told}")
    if found:
        raise Refusal(f"the upgrade cannot be finished while {', and '.join(found)}", HINT)


def is_older(version: str | None, than: str = __version__) -> bool:
    """Also where it is not known. What comes before a release (``1.0rc1``) counts as older than everything else of its
    number."""
    return version is None or (version != than and _release(version) <= _release(than))


def _release(version: str) -> tuple[int, ...]:
    found = RELEASE.match(version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _some(told: Sequence[str]) -> str:
    different = list(dict.fromkeys(told))
    more = f" and {len(different) - NAMED} more" if len(different) > NAMED else ""
    return ", ".join(different[:NAMED]) + more


def _place_of(process: ConnectedProcess) -> str:
    name = process.name or "a process"
    return f"{name} at {process.address}" if process.address else name


def _told(name: str, version: str | None) -> str:
    return f"{name} ({f'version {version}' if version else 'does not say its version'})"

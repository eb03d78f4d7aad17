"""Workers as data and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import STYLES, iso, moment, print_table, signs_for, span, stdout
from dalsegno.engine.roll_call import WorkerSeen

LOOKS = {"alive": "RUNNING", "dead": "FAILED"}


def as_object(worker: WorkerSeen) -> dict[str, Any]:
    """As ``GET /v1/workers`` tells it, and its name."""
    return {
        "name": worker.name,
        **msgspec.to_builtins(worker),
        "since": iso(worker.since),
        "heard_at": iso(worker.heard_at),
        "expires_at": iso(worker.expires_at),
        "running": [
            {name: getattr(each, name) for name in each.__struct_fields__} for each in worker.running
        ],
    }


def print_workers(workers: Sequence[WorkerSeen], now: float) -> None:
    console = stdout()
    if not workers:
        console.print("no workers; `dalsegno worker` starts one", style="dim")
        return
    signs = signs_for(console)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, min_width=1)
    table.add_column("worker", no_wrap=True, overflow="ellipsis")
    for title in ("state", "version", "running", "queues", "since", "last heard"):
        table.add_column(title, no_wrap=title != "queues")
    for worker in sorted(workers, key=_alive_first):
        look = LOOKS[worker.state]
        table.add_row(
            Text(signs.states[look], STYLES[look]),
            Text(worker.name, "bold"),
            f"{worker.state}, remote" if worker.kind == "remote" else worker.state,
            worker.version or "?",
            _running(worker),
            ", ".join(worker.queues),
            moment(worker.since),
            f"{span(now - worker.heard_at)} ago" if worker.heard_at is not None else "",
        )
    print_table(console, table, crop=False)


def _alive_first(worker: WorkerSeen) -> tuple[bool, str]:
    return worker.state == "dead", worker.name


def _running(worker: WorkerSeen) -> str:
    """What it holds of how many it takes at once; a dead one holds them until they are taken back."""
    return f"{worker.leases:,} of {worker.concurrency:,}" if worker.concurrency else f"{worker.leases:,}"

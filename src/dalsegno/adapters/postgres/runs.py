"""What runs of scripts write, and what they get to run for: machines and their inboxes, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dalsegno.adapters.postgres.arrays import columns
from dalsegno.adapters.postgres.columns import counted_machine, stored_machine
from dalsegno.core.settlement import MachineRow
from dalsegno.model.machine import Completion


def parameters(
    machines: Mapping[int, MachineRow],
    completions: Mapping[tuple[int, int], Completion],
    removed: Sequence[tuple[int, int]],
) -> list[Any]:
    """``machines`` by the numbers of their executions, which the other keys begin with; then come numbers in an inbox.
    A machine without a snapshot is one that has not run: it is only counted."""
    saved = [stored_machine(*entry) for entry in machines.items() if entry[1].snapshot is not None]
    counted = [counted_machine(*entry) for entry in machines.items() if entry[1].snapshot is None]
    came = [(*key, row.promise, row.ok, row.data) for key, row in completions.items()]
    return [*columns(saved, 15), *columns(counted, 9), *columns(came, 5), *columns(removed, 2)]

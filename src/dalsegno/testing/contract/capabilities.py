"""Capabilities of a backend, declared as data, from which a binding selects its topics.

The suite never asks a backend for its name and skips nothing at run time: an unsupported topic is not part of the
binding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

Feature = Literal[
    "commit",
    "gates",
    "cancelling",
    "pausing",
    "leases",
    "time",
    "sweep",
    "scripts",
    "broker",
    "archive",
    "blobs",
    "records",
    "publications",
    "limits",
    "pending",
    "durable",
    "shared",
]
"""The features of a backend.

* commit: ``commit``, ``claim`` and reading.
* gates: ``AdjustGate``, ``gate_used``.
* cancelling: ``CancelTokens``.
* pausing: ``PauseExecution``, ``ResumeExecution``.
* leases: ``lease``, ``release``, ``heartbeat``, ``expire``.
* time: ``wake``.
* sweep: ``sweep``, ``untouched``.
* scripts: ``machine``, signals, and all effects on them.
* limits: slots and rates by key.
* pending: executions that have not begun yet, ``BeginExecution``.
* durable: the store outlives its connection.
* shared: several processes use one store.
"""

ALL_GUARANTEES = frozenset(
    f"{port}{number}"
    for port, count in (("L", 9), ("B", 2), ("A", 6), ("K", 6), ("R", 4), ("M", 4), ("C", 1))
    for number in range(1, count + 1)
)
WHOLE_STACK: frozenset[Feature] = frozenset(get_args(Feature)) - {"durable", "shared"}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """``guarantees`` restricts a binding to some guarantees while an adapter is under development."""

    features: frozenset[Feature] = WHOLE_STACK
    guarantees: frozenset[str] = ALL_GUARANTEES

    def cover(self, topic: type[Topic]) -> bool:
        return topic.guarantees <= self.guarantees and topic.needs <= self.features


class Topic:
    """Tests of one topic. A binding provides the fixture ``stack``, which yields a fresh ContractStack."""

    guarantees: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[Feature]] = frozenset(("commit",))

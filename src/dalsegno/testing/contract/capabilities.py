"""What a backend can do, declared as data, and how a binding picks its topics by it.

Nothing in the suite asks a backend for its name, and nothing is skipped while tests run: a topic that a backend
does not support is simply not part of its binding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

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
    "limits",
    "pending",
    "durable",
    "shared",
]
"""commit: ``commit``, ``claim`` and reading · gates: ``AdjustGate``, ``gate_used`` · cancelling: ``CancelTokens`` ·
pausing: ``PauseExecution``, ``ResumeExecution`` · leases: ``lease``, ``release``, ``heartbeat``, ``expire`` · time:
``wake`` · sweep: ``sweep``, ``untouched`` · scripts: ``machine``, signals, and all effects about them · limits:
slots and rates by key · pending: executions that wait to be begun, ``BeginExecution`` · durable: the store outlives its
connection · shared: several processes use one store."""

ALL_GUARANTEES = frozenset(
    f"{port}{number}"
    for port, count in (("L", 9), ("B", 2), ("A", 6), ("K", 5), ("R", 4), ("M", 4), ("C", 1))
    for number in range(1, count + 1)
)
WHOLE_STACK: frozenset[Feature] = frozenset(
    (
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
        "limits",
        "pending",
    )
)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """``guarantees`` lets an adapter that is being built bind some before it has them all."""

    features: frozenset[Feature] = WHOLE_STACK
    guarantees: frozenset[str] = ALL_GUARANTEES

    def cover(self, topic: type[Topic]) -> bool:
        return topic.guarantees <= self.guarantees and topic.needs <= self.features


class Topic:
    """Tests about one thing. A binding provides the fixture ``stack``, which yields a fresh ContractStack."""

    guarantees: ClassVar[frozenset[str]]
    needs: ClassVar[frozenset[Feature]] = frozenset(("commit",))

"""Retries from the failure: an execution starts with the machine of a failed one, as it was before the failed turn.

- What had completed stays completed. What failed where the program waited is asked again, under a new idempotency key
  unless the program gave the key.
- Tasks that were still pending became executions of their own when the execution failed. Their endings are awaited; one
  that has failed since is asked again.
- The failed turn is run again. The calls that it made were handed over as well: the same calls, with the same name and
  input, take up those executions, in their order.
"""

from __future__ import annotations

from dalsegno.core.scripts.earlier_calls import BEGUN
from dalsegno.core.scripts.kept import KeptMachine
from dalsegno.core.scripts.turn import Turn
from dalsegno.model.effect import Effect, PostSignal, SettlePromise
from dalsegno.model.event import NewEvent
from dalsegno.model.machine import Ranges, reaches


def keeps_machine(turn: Turn) -> bool:
    """Return True if the machine as it was before this turn is kept for a retry. One that failed in its first turn
    has nothing to keep: it starts from the beginning.
    """
    return turn.error is not None and not turn.cancel and turn.version > 0


def known_before(kept: KeptMachine, reachable: Ranges, now: float) -> list[Effect]:
    """Return the effects that make what had completed and arrived known to the new execution, in the same order."""
    failed = frozenset(kept.failed)
    placed: list[tuple[int, Effect]] = [
        (completion.number, SettlePromise(completion))
        for completion in kept.completions
        if completion.promise not in failed and reaches(reachable, completion.promise)
    ]
    for signal in kept.signals:
        if signal.name != BEGUN:
            event = NewEvent("SignalReceived", signal.name, "", now)
            placed.append((signal.place, PostSignal(signal.id, signal.name, signal.data, event)))
    return [effect for _, effect in sorted(placed, key=lambda one: one[0])]

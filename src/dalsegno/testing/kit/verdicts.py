"""What a mock says about the test itself: ``pytest.fail``, ``skip`` and ``exit`` inside a task are meant for the test,
whatever the workflow makes of the failed task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Verdicts:
    """Passes them on to the system that the test is waiting for."""

    def __init__(self) -> None:
        self.tell: Callable[[BaseException], None] = _to_nobody

    @contextmanager
    def overheard(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if _is_verdict(error):
                self.tell(error)
            raise


def _to_nobody(_: BaseException) -> None:
    """No system is open."""


def _is_verdict(error: BaseException) -> bool:
    """The kit itself needs no pytest; a test that has none cannot raise its exceptions."""
    outcomes = sys.modules.get("_pytest.outcomes")
    return outcomes is not None and isinstance(error, outcomes.OutcomeException | outcomes.Exit)

"""The state of a script's machine in the ledger: its snapshot, its inbox of completions, its mailbox of signals; and
which of its turns are kept in a journal.

A suspended script consists of this only: no token, no queue entry. A completion takes the next inbox number, and
the wake condition decides whether the machine is resumed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of promise numbers, in order."""

REQUEST = "request\x1f"
"""What the names and ids of requests begin with in the mailbox, where signals are, too; no signal's does."""

CancelReason = Literal["", "cancel", "timeout"]


def in_mailbox(request: str) -> str:
    """Return a request's name or id as the mailbox has it."""
    return REQUEST + request


def request_in(mail: str) -> str | None:
    """Return a request's name or id from the mailbox; None for a signal's."""
    return mail[len(REQUEST) :] if mail.startswith(REQUEST) else None


def in_words(mail: str) -> str:
    """Return what a name in the mailbox stands for: ``signal 'go'`` or ``request 'quote'``."""
    request = request_in(mail)
    return f"signal '{mail}'" if request is None else f"request '{request}'"


def reaches(ranges: Ranges, promise: int) -> bool:
    """Return True if a promise is in one of the ranges."""
    if len(ranges) == 1:  # the common case
        start, stop = ranges[0]
        return start <= promise < stop
    place = bisect_right(ranges, promise, key=_start) - 1
    return place >= 0 and promise < ranges[place][1]


def numbers_in(ranges: Ranges) -> Iterator[int]:
    return (promise for start, stop in ranges for promise in range(start, stop))


def _start(bounds: tuple[int, int]) -> int:
    return bounds[0]


class Wake(Struct, frozen=True, gc=False):
    """When a suspended machine is resumed.

    - After ``need`` (at least one) unread completions of promises in ``awaited``.
    - At the first failure or success among them, if those alone may decide.
    - When there is a signal of one of the names it waits for.
    """

    need: int = 1
    on_failure: bool = False
    on_success: bool = False
    signals: tuple[str, ...] = ()
    due: float | None = None
    """The first time at which an awaited timer fires: for the reconciler, if its token is missing."""
    awaited: Ranges = ()
    """Empty: all that are reachable."""

    def counts(self, promise: int) -> bool:
        """Return True if a completion of this promise counts towards ``need``."""
        return not self.awaited or reaches(self.awaited, promise)


class Completion(Struct, frozen=True, gc=False):
    """An entry of the inbox. ``number`` is its place in the order of completions; ``data`` is opaque to stores."""

    promise: int
    ok: bool
    data: bytes
    number: int = 0


class TakenSignal(Struct, frozen=True, gc=False):
    """A signal given to a promise by a resume."""

    signal: str
    promise: int


class SignalView(Struct, frozen=True, gc=False):
    """A signal in the mailbox that is not taken yet; ``number`` orders them (it is the event's)."""

    id: str
    name: str
    data: bytes
    number: int
    place: int = 0
    """Its number among the completions of a machine: when taken, it becomes a completion of that number."""


class PostedView(Struct, frozen=True, gc=False):
    """A signal or request that was posted, whether it was taken or not."""

    id: str
    name: str
    number: int
    """The number of its event."""
    taken: bool
    data: bytes
    """Of one that was taken: empty, or the answer to a request."""


class MachineView(Struct, frozen=True):
    """Everything a resume needs, read in one query."""

    version: int
    snapshot: bytes
    """Empty before the first run."""
    reachable: Ranges
    wake: Wake
    inbox: int
    """Number of the newest completion."""
    read: int
    """Number up to which the last resume has read."""
    line: int
    cancel: CancelReason
    """The requested cancellation or timeout."""
    interrupted: bool
    """The request has been delivered to the machine."""
    completions: tuple[Completion, ...]
    """Completions of promises that are still reachable, in order."""
    signals: tuple[SignalView, ...]
    """In the order of their arrival."""


LATEST_TURNS = 20
"""Turns that ``"failures"`` keeps beside those before a failure."""
MOST_TURNS = 100_000
"""The largest number of turns that can be asked for by number."""


class JournalSetting(Struct, frozen=True, gc=False):
    turns: int | None
    """How many of the latest turns are kept at least; 0: none, None: all."""
    is_written_each_turn: bool
    """Each turn is written with its own commit; otherwise several turns together."""


OFF = JournalSetting(0, False)
FAILURES = JournalSetting(LATEST_TURNS, False)
ALL = JournalSetting(None, True)

_NAMED = {"off": OFF, False: OFF, "failures": FAILURES, "all": ALL}
_EXPECTED = 'write "off", "failures", "all", or how many of the latest turns are kept, such as 50'


def read_journal(given: object) -> JournalSetting:
    """Return the setting that a workflow declares; without one no journal is kept. Raises ValueError. (YAML reads
    ``off`` as false.)
    """
    if given is None:
        return OFF
    if isinstance(given, str | bool):
        found = _NAMED.get(given)
        if found is not None:
            return found
        if isinstance(given, str) and given.isascii() and given.isdecimal():
            return read_journal(int(given[:9]))
    elif isinstance(given, int) and 1 <= given <= MOST_TURNS:
        return JournalSetting(given, True)
    raise ValueError(f"the journal cannot be {given!r}: {_EXPECTED}")

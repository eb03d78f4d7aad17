"""The journal setting of a workflow: which turns of its machine are kept beside the history."""

from __future__ import annotations

from msgspec import Struct

LATEST_TURNS = 20
"""Turns that are kept unless the workflow says otherwise."""
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
    """Return the setting that a workflow declares; None is the default. Raises ValueError. (YAML reads ``off`` as
    false.)
    """
    if given is None:
        return FAILURES
    if isinstance(given, str | bool):
        found = _NAMED.get(given)
        if found is not None:
            return found
    elif isinstance(given, int) and 1 <= given <= MOST_TURNS:
        return JournalSetting(given, True)
    raise ValueError(f"the journal cannot be {given!r}: {_EXPECTED}")

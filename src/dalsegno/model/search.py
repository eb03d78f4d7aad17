"""Text search for executions; the same in every store.

A text matches the beginning of an execution's id, its idempotency key, a part of its workflow's name, the value of
one of its tags, or words of the error that it failed with.
"""

from __future__ import annotations

import re

import msgspec

SHORTEST_ID = 8
"""Least characters of an id prefix. Fewer would match most executions of a store: ids begin with their time."""
MOST_WORDS = 24
"""Words kept per error: its first different ones."""

_WORD = re.compile(r"\w{2,40}")
_FIELDS = ("message", "code", "type", "node")
_LAST_CHARACTER = "\U0010ffff"


def words_of(text: str) -> tuple[str, ...]:
    """Return the different words of a text, in lower case, in their order."""
    return tuple(dict.fromkeys(_WORD.findall(text.casefold())))


def error_words(error: bytes | None) -> tuple[str, ...]:
    """Return the words under which a failed execution is found, from its error object."""
    found = msgspec.json.decode(error) if error else None
    if not isinstance(found, dict):
        return ()
    texts = (found.get(field) for field in _FIELDS)
    return words_of(" ".join(text for text in texts if isinstance(text, str)))[:MOST_WORDS]


def id_range(text: str) -> tuple[str, str] | None:
    """Return the first and the last id with this prefix; None if it is too short."""
    return (text, text + _LAST_CHARACTER) if len(text) >= SHORTEST_ID else None


def names_workflow(text: str, workflow: str) -> bool:
    return text.casefold() in workflow.casefold()

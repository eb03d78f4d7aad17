"""What a text means when somebody looks for executions; the same in every store.

It finds an execution by one of: the beginning of its id, its idempotency key, a part of its workflow's name, the value
of one of its tags, or the words of the error that it failed with.
"""

from __future__ import annotations

import re

import msgspec

SHORTEST_ID = 8
"""Characters of an id's beginning. Fewer would mean most executions of a store: ids begin with their time."""
MOST_WORDS = 24
"""Of one error: its first different ones."""

_WORD = re.compile(r"\w{2,40}")
_FIELDS = ("message", "code", "type", "node")
_LAST_CHARACTER = "\U0010ffff"


def words_of(text: str) -> tuple[str, ...]:
    """The different words of a text, in small letters, in their order."""
    return tuple(dict.fromkeys(_WORD.findall(text.casefold())))


def error_words(error: bytes | None) -> tuple[str, ...]:
    """The words under which a failed execution is found, from its error object."""
    found = msgspec.json.decode(error) if error else None
    if not isinstance(found, dict):
        return ()
    texts = (found.get(field) for field in _FIELDS)
    return words_of(" ".join(text for text in texts if isinstance(text, str)))[:MOST_WORDS]


def id_range(text: str) -> tuple[str, str] | None:
    """From the first id that begins with this text to the last; None of a text that is too short."""
    return (text, text + _LAST_CHARACTER) if len(text) >= SHORTEST_ID else None


def names_workflow(text: str, workflow: str) -> bool:
    return text.casefold() in workflow.casefold()

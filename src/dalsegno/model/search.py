"""Tags of executions, and text search; the same in every store.

A text matches the beginning of an execution's id, its idempotency key, a part of its workflow's name, the value of
one of its tags, or words of the error that it failed with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_CONTROL = re.compile("[\x00-\x1f\x7f]")

MOST_TAGS = 50
LONGEST_TAG_NAME = 200
LONGEST_TAG = 1000
RESERVED_TAGS = "dalsegno."
"""Prefix of tag names that belong to the engine."""


def read_tag_changes(value: Any) -> dict[str, str | None]:
    """Return a running workflow's tag changes: texts by name, None to remove one. The limits are those of a start."""
    if not isinstance(value, Mapping):
        raise ValueError(f"takes an object of names and texts, not {type(value).__name__}")
    for name, tag in value.items():
        if not _is_tag_text(name, LONGEST_TAG_NAME) or not name:
            raise ValueError(
                f"the tag's name {name!r:.100} must be a text of 1 to {LONGEST_TAG_NAME} printable characters"
            )
        if name.startswith(RESERVED_TAGS):
            raise ValueError(
                f"the tag '{name}' cannot be set: names that begin with '{RESERVED_TAGS}' are reserved"
            )
        if tag is not None and not _is_tag_text(tag, LONGEST_TAG):
            raise ValueError(
                f"the tag '{name}' must be a text of at most {LONGEST_TAG:,} printable characters, not {tag!r:.100}"
            )
    return dict(value)


def _is_tag_text(value: Any, longest: int) -> bool:
    """Return True if the API takes the text: valid Unicode without control characters.

    Stores and headers treat control characters differently.
    """
    if not isinstance(value, str) or len(value) > longest or _CONTROL.search(value) is not None:
        return False
    return not any("\ud800" <= sign <= "\udfff" for sign in value)


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

"""Tags of executions: names and texts by which lists are filtered, and their limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

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

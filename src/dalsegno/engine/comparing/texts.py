"""What is different between two versions of a text, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import takewhile
from typing import Any

MOST_LINES = 4000
"""Beyond this many changed lines the two are shown as one text instead of the other: comparing takes the square."""
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class TextChanges:
    added: int
    removed: int
    diff: tuple[str, ...]
    """In the unified format, without line ends."""

    def __bool__(self) -> bool:
        return bool(self.diff)

    def as_object(self) -> dict[str, Any]:
        return {"added": self.added, "removed": self.removed, "diff": "\n".join(self.diff)}


def compare_texts(before: str, after: str, names: tuple[str, str] = ("before", "after")) -> TextChanges:
    old, new = before.splitlines(), after.splitlines()
    if _changed(old, new) > MOST_LINES:
        diff = [f"--- {names[0]}", f"+++ {names[1]}", f"@@ -1,{len(old)} +1,{len(new)} @@"]
        diff += [f"-{line}" for line in old] + [f"+{line}" for line in new]
        return TextChanges(len(new), len(old), tuple(diff))
    diff = list(unified_diff(old, new, *names, n=CONTEXT, lineterm=""))
    added = sum(line.startswith("+") for line in diff[2:])
    return TextChanges(added, sum(line.startswith("-") for line in diff[2:]), tuple(diff))


def _changed(old: Sequence[str], new: Sequence[str]) -> int:
    """Lines between the common beginning and the common end."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    rest = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    same += sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], rest))
    return max(len(old), len(new)) - same

"""Tags that a running workflow sets, and their effect on the execution."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dalsegno.errors import LimitExceeded
from dalsegno.lang.runtime.effects import SetTags
from dalsegno.model.effect import ReplaceTags
from dalsegno.model.tags import MOST_TAGS


def merge_tags(asked: Iterable[SetTags]) -> dict[str, str | None]:
    """Merge the changes of several calls in one turn; None removes a tag."""
    found: dict[str, str | None] = {}
    for each in asked:
        found.update(each.tags)
    return found


def changed_tags(before: Iterable[tuple[str, str]], asked: Mapping[str, str | None]) -> ReplaceTags | None:
    """Return the change of tags; None if there is no difference."""
    had = tuple(before)
    kept = [(name, tag) for name, tag in had if name not in asked]
    tags = tuple(sorted([*kept, *((name, tag) for name, tag in asked.items() if tag is not None)]))
    if len(tags) > max(MOST_TAGS, len(had)):
        raise LimitExceeded(
            f"set_tags(): the execution would have {len(tags)} tags; the limit is {MOST_TAGS}. "
            "Remove some with None, or keep the data in a task"
        )
    if tags == tuple(sorted(had)):
        return None
    gone = tuple(tag for tag in had if tag not in tags)
    return ReplaceTags(tags, gone, tuple(tag for tag in tags if tag not in had))

"""Which executions can go on with another version of their graph."""

from __future__ import annotations

from typing import Any

from dalsegno.core.graph.other_version import obstacles
from dalsegno.core.history import RunFacts
from tests.graph.documents import plan_of
from tests.rows import rows

CHOICE: dict[str, Any] = {"c": "conditional"}


def facts(ran: str, **edges: tuple[str, ...]) -> dict[str, RunFacts]:
    return {name: RunFacts(name, None, False, edges.get(name)) for name in ran.split()}


@rows(
    ("old", "new", "starts", "ran", "found"),
    [
        # what has run is as it was
        (("a > b > c", {}), ("a > b > c", {}), "c", "a b c", ""),
        (("a > b > c", {}), ("a > b > c > d", {}), "c", "a b c", ""),
        (("a > b > c", {}), ("a > b > c", {"c": "http"}), "c", "a b c", ""),
        (("a > b > c", {}), ("a > b", {"b": "http"}), "b", "a b c", ""),
        (("c > a > d, c > b > d", CHOICE), ("c > a > d, c > b > d", CHOICE), "d", "c a d", ""),
        # it is not
        (("a > b > c", {}), ("a > c", {}), "c", "a b c", "'b' has run, and the new version does not have it"),
        (("a > b > c", {}), ("a > b > c", {"a": "http"}), "c", "a b c", "'a' has run with type log"),
        (("a > b", {}), ("a > c", {}), "b", "a b", "no node 'b' to start at"),
        (
            ("c > a, c > b", CHOICE),
            ("c > b, c > d, a > d", CHOICE),
            "a",
            "c a",
            "'c' has gone on to 'a', and the new version has no such edge",
        ),
        # what is new would never run
        (("a > c", {}), ("a > b > c", {}), "c", "a c", "'b' is new, and it is before a node that runs"),
        (("a > c", {}), ("a > c, a > b", {}), "c", "a c", "'b' comes after 'a' by a new edge"),
        (("a > c", {}), ("a > c, a > b", {}), "c b", "a c", ""),
    ],
)
def test_what_has_run_must_be_there(old: Any, new: Any, starts: str, ran: str, found: str) -> None:
    before, after = plan_of(old[0], **old[1]), plan_of(new[0], **new[1])
    told = obstacles(before, after, starts.split(), facts(ran, c=("c-a",)))
    assert bool(told) == bool(found), told
    assert found in "; ".join(told)

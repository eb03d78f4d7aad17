"""How a version of a workflow is named: ``checkout``, ``checkout@3``, ``checkout@stable``."""

from __future__ import annotations

import pytest

from dalsegno.errors import InvalidInput
from dalsegno.model.definition import Version, check_alias, format_target, parse_target, read_version

TARGETS = [
    ("checkout", ("checkout", None)),
    ("checkout@3", ("checkout", 3)),
    ("checkout@007", ("checkout", 7)),
    ("checkout@stable", ("checkout", "stable")),
    ("checkout@next-2", ("checkout", "next-2")),
    ("checkout@latest", ("checkout", None)),
    ("the big one@1", ("the big one", 1)),
    ("Größe", ("Größe", None)),
    ("checkout@0", ("checkout", 0)),
    ("checkout@" + "9" * 5000, ("checkout", 0)),
]


@pytest.mark.parametrize(("text", "meant"), TARGETS, ids=[text[:20] for text, _ in TARGETS])
def test_target_is_a_name_and_perhaps_a_version(text: str, meant: tuple[str, Version]) -> None:
    assert parse_target(text) == meant


@pytest.mark.parametrize("text", ["checkout", "checkout@3", "checkout@stable"])
def test_target_is_written_as_it_is_read(text: str) -> None:
    assert format_target(*parse_target(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no workflow"),
        ("  ", "names no workflow"),
        ("@3", "names no workflow"),
        ("a@b@3", "more than one '@'"),
        ("checkout@", "neither a version's number nor an alias"),
        ("checkout@Stable", "neither a version's number nor an alias"),
        ("checkout@-1", "neither a version's number nor an alias"),
        ("checkout@1.5", "neither a version's number nor an alias"),
        ("checkout@٣", "neither a version's number nor an alias"),
    ],
)
def test_bad_target_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_target(text)


def test_version_may_be_given_in_every_way() -> None:
    assert [read_version(each) for each in (None, 3, "3", "latest", "stable")] == [None, 3, 3, None, "stable"]


@pytest.mark.parametrize("alias", ["stable", "a", "next-2", "x" * 63])
def test_alias_is_a_small_word(alias: str) -> None:
    check_alias(alias)


def test_latest_is_taken() -> None:
    with pytest.raises(InvalidInput, match="cannot be set"):
        check_alias("latest")

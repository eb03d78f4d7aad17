"""SQL files: statements by name, and parts that several of them share."""

from __future__ import annotations

import pytest

from dalsegno.adapters.statements import _split

FILE = """-- What the file is about.

-- :part recent
  AND at > :since

-- :part from_thing
FROM thing
WHERE kind = :kind
-- :include recent

-- :name things
-- What it guarantees.
SELECT id
-- :include from_thing
ORDER BY at;

-- :name count
SELECT count(*) FROM (SELECT 1
-- :include from_thing
LIMIT :most);
"""


def test_parts_stand_where_they_are_included() -> None:
    assert dict(_split(FILE)) == {
        "things": "SELECT id\nFROM thing\nWHERE kind = :kind\nAND at > :since\nORDER BY at",
        "count": (
            "SELECT count(*) FROM (SELECT 1\nFROM thing\nWHERE kind = :kind\nAND at > :since\nLIMIT :most)"
        ),
    }


def test_parameters_of_a_part_are_counted_from_where_it_is_told() -> None:
    part = "-- :part rows\nFROM unnest($1::text[], $12::text[])\n"
    file = part + "-- :name a\nSELECT $1\n-- :include rows from $5\n-- :name b\nSELECT 1\n-- :include rows\n"
    assert dict(_split(file)) == {
        "a": "SELECT $1\nFROM unnest($5::text[], $16::text[])",
        "b": "SELECT 1\nFROM unnest($1::text[], $12::text[])",
    }


def test_a_part_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        dict(_split("-- :name a\nSELECT 1\n-- :include nowhere\n"))

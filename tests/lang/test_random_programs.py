"""For any program: storing and loading it at every instruction, or copying instead of changing, changes nothing."""

from __future__ import annotations

import os

import pytest

from dalsegno.lang import compile
from tests.effort import first
from tests.lang.driver import Failed, Later, play
from tests.lang.random_scripts import random_program

TASKS = {
    "one": lambda n: 1,
    "quick": lambda n: Later(1, n % 5),
    "slow": lambda n: Later(7, n if n < 3 else 2),
    "fail": lambda n: Failed("ON_PURPOSE"),
}
FIRST = int(os.environ.get("DALSEGNO_FIRST_SEED", "0"))


def check(seed: int) -> str:
    source = random_program(seed)
    ending = play(source, {"a": 2, "l": [1, 2]}, tasks=TASKS)
    assert ending.status in ("completed", "failed"), source
    return ending.status


@pytest.mark.parametrize("block", first(6, range(12)))
def test_every_route_gives_the_same(block: int) -> None:
    for seed in range(FIRST + block * 10, FIRST + block * 10 + 10):
        check(seed)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(100))
def test_every_route_gives_the_same_for_many_programs(block: int) -> None:
    for seed in range(10_000 + FIRST + block * 20, 10_000 + FIRST + block * 20 + 20):
        check(seed)


def test_random_programs_are_worth_running() -> None:
    """They parse, differ, wait, loop and throw."""
    sources = [random_program(seed) for seed in range(60)]
    assert len(set(sources)) == len(sources)
    for source in sources:
        compile(source)
    text = "\n".join(sources)
    for word in (
        "await",
        "while",
        "for (let",
        "try",
        "finally",
        "break",
        "continue",
        "=> {",
        ".push(",
        "throw",
    ):
        assert text.count(word) > 5, word

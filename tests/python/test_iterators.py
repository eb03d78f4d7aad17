"""Iterators of itertools and others go on at the place they had reached, in another process and on every Python."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python import PythonMachine, compile_workflow
from dalsegno.lang.python.compile import compiler
from dalsegno.lang.python.compile.unsupported import ITERTOOLS_CLASSES, ItertoolsSpellings
from tests.python.driving import Driver, drive, natively, outcome
from tests.python.tasks import echo
from tests.python.test_snapshot_names import edited, row_of, suspended

MODULES = {"python": itertools, "ours": SimpleNamespace(**ITERTOOLS_CLASSES)}


def is_small(number: int) -> bool:
    return number < 3


def nothing(left: Any, right: Any) -> None:
    return None


MAKERS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "count": lambda of: of.count(5, 2),
    "count of floats": lambda of: of.count(0.5, 0.25),
    "cycle": lambda of: of.cycle([1, 2, 3]),
    "cycle of nothing": lambda of: of.cycle([]),
    "repeat": lambda of: of.repeat("a"),
    "repeat five times": lambda of: of.repeat("a", 5),
    "chain": lambda of: of.chain([1, 2], [3, 4, 5], [], [6]),
    "chain of an iterable": lambda of: of.chain.from_iterable([[1, 2], [3]]),
    "islice": lambda of: of.islice(range(20), 1, 12, 3),
    "islice to the end": lambda of: of.islice(range(8), 2, None),
    "islice of the first": lambda of: of.islice(range(8), 3),
    "islice of none": lambda of: of.islice(range(8), 0),
    "accumulate": lambda of: of.accumulate([1, 2, 3, 4]),
    "accumulate from a value": lambda of: of.accumulate([1, 2, 30, 4], max, initial=9),
    "accumulate to None": lambda of: of.accumulate([None, 2, 3], nothing),
    "accumulate products": lambda of: of.accumulate([1, 2, 3], operator.mul),
    "zip_longest": lambda of: of.zip_longest([1, 2, 3], [4], "ab", fillvalue="-"),
    "product": lambda of: of.product([1, 2], "ab", [7]),
    "product with itself": lambda of: of.product([1, 2], repeat=2),
    "product of nothing": lambda of: of.product(),
    "product with nothing": lambda of: of.product([1], []),
    "permutations": lambda of: of.permutations([1, 2, 3], 2),
    "permutations of all": lambda of: of.permutations([1, 2, 3]),
    "permutations of none": lambda of: of.permutations([1, 2], 0),
    "permutations of too many": lambda of: of.permutations([1, 2], 5),
    "combinations": lambda of: of.combinations([1, 2, 3, 4], 2),
    "combinations of none": lambda of: of.combinations([1, 2], 0),
    "combinations of too many": lambda of: of.combinations([1, 2], 3),
    "combinations with replacement": lambda of: of.combinations_with_replacement([1, 2, 3], 2),
    "pairwise": lambda of: of.pairwise([1, 2, 3, 4]),
    "pairwise of one": lambda of: of.pairwise([1]),
    "takewhile": lambda of: of.takewhile(is_small, [1, 2, 9, 1]),
    "dropwhile": lambda of: of.dropwhile(is_small, [1, 9, 1, 2]),
    "filterfalse": lambda of: of.filterfalse(is_small, [0, 4, 1, 5, 7]),
    "filterfalse of falsehoods": lambda of: of.filterfalse(None, [0, 1, "", 2, None]),
    "starmap": lambda of: of.starmap(pow, [(1, 2), (3, 4), (5, 1)]),
    "compress": lambda of: of.compress("abcd", [1, 0, 1, 1]),
    "nested": lambda of: of.islice(zip(of.count(), of.cycle("ab"), strict=False), 1, 6, 2),
    "deque": lambda of: iter(collections.deque([1, 2, 3])),
    "reversed deque": lambda of: reversed(collections.deque([1, 2, 3])),
    "calls": lambda of: iter([3, 2, 1].pop, 3),
    "ordered dict": lambda of: iter(collections.OrderedDict(a=1, b=2)),
}
USED: dict[str, Any] = {}


def make() -> Iterator[Any]:
    return MAKERS[USED["maker"]](USED["module"])


async def goes_on(steps):
    iterator = make()
    found = [next(iterator, "end") for _ in range(steps)]
    await echo(1)
    found.append(next(iterator, "end"))
    await echo(2)
    found.extend(next(iterator, "end") for _ in range(5))
    return found


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("maker", MAKERS)
def test_an_iterator_goes_on_at_its_place(maker, module):
    USED.update(maker=maker, module=itertools)
    expected = [natively(goes_on, steps) for steps in range(9)]
    USED["module"] = MODULES[module]
    program = compile_workflow(goes_on)
    found = [outcome(Driver(program, lossy=True).run(steps)) for steps in range(9)]
    assert found == expected


async def groups(words):
    found = []
    for letter, group in itertools.groupby(words, key=lambda word: word[0]):
        await echo(letter)
        found.append([letter, next(group)])
        await echo(1)
        for word in group:  # noqa: B031 - what is left of it
            await echo(word)
            found.append(word)
            if len(word) > 3:
                break
    return found


async def branches(numbers):
    first, second = itertools.tee(numbers)
    found = [next(first), next(first)]
    await echo(1)
    found.append(next(second))
    await echo(2)
    third = itertools.tee(first, 1)[0]
    await echo(3)
    return [found, list(second), list(third)]


async def local_names(size):
    import itertools as tools

    found = []
    for number in tools.chain.from_iterable([tools.islice(tools.count(), size), tools.repeat(7, 2)]):
        found.append(number)
        await echo(number)
    product = itertools.product
    for pair in product("ab", repeat=2):
        await echo(1)
        found.append(pair)
    return found


CASES = [
    (groups, ["ant", "apple", "avocado", "axe", "bee", "boar", "cat"]),
    (branches, list(range(130))),
    (local_names, 3),
]


@pytest.mark.parametrize(("function", "argument"), CASES)
@pytest.mark.parametrize("hidden", [frozenset(), frozenset(ITERTOOLS_CLASSES)], ids=["visible", "hidden"])
def test_loops_over_iterators_do_what_cpython_does(function, argument, hidden, monkeypatch):
    """Where Python hides the places of its iterators, names of itertools mean ours."""
    expected = natively(function, argument)
    monkeypatch.setattr(compiler, "ItertoolsSpellings", lambda known: ItertoolsSpellings(known, hidden))
    assert outcome(drive(function, argument)) == expected


def test_an_iterator_that_python_hides_is_replaced_by_name(monkeypatch):
    monkeypatch.setattr(
        compiler, "ItertoolsSpellings", lambda known: ItertoolsSpellings(known, frozenset(ITERTOOLS_CLASSES))
    )
    program = compile_workflow(local_names)
    assert {"@itertools.chain", "@itertools.count", "@itertools.product"} <= program.outside


async def loops(items):
    for item in itertools.chain(items):
        await echo(item)


@pytest.mark.parametrize(
    "row", [["is", "Nothing"], ["is", "Chain", None], ["is", "StoredIterator"], ["is", "eval", None, None]]
)
def test_an_iterator_that_is_none_of_ours_is_refused(row):
    program, document = suspended(loops, [1, 2])
    row_of(document, "is")[:] = row
    with pytest.raises(SnapshotError):
        PythonMachine.loads(program, edited(document))

"""``flow-library.md``: every function of the script language, with the argument counts that the machine checks.

Names and counts come from the language itself; the meanings stand here, and a function without one fails the build of
the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dalsegno.lang.stdlib import CONSTANTS, FUNCTIONS, arrays, callbacks, strings
from dalsegno.lang.stdlib.arguments import Method
from dalsegno.lang.stdlib.orchestration_names import ORCHESTRATION
from scripts.pages.flow_meanings import (
    CALLBACKS,
    CHANGES,
    CONSTANT_VALUES,
    LIBRARY,
    LISTS,
    NUMBERS,
    PROMISES,
    TEXTS,
)
from scripts.pages.markdown import NOTICE, code, table

MANY = 1000
"""A count from which on "any number" is meant."""

INTRODUCTION = """
The functions that a [script](flow.md) can call. *Arguments* is their permitted number; another number throws
`WRONG_ARG_COUNT`, an argument of the wrong kind `WRONG_ARG_TYPE`. The namespaces may be written in lower case
(`task.run`, `math.abs`) where no variable has that name. Positions in text count characters (code points) from 0.
Functions that build a value check its size first, so that a huge one is refused with `LimitExceeded`.
"""

PROMISE_TEXT = """
These need a running workflow, so expressions in graphs do not have them. A call that returns a promise has already
requested the work: `await` only waits. A group (`Promise.*`, `Task.all`, …) takes a list or an object; plain values in
it count as resolved. `{cancel: true}` as second argument cancels the items that are still pending when the group is
decided.
"""

CHANGE_TEXT = """
Called on a place (a variable, a member, an index), these change the value in that place. Called on anything else they
change a temporary value, and only their result remains.
"""

CALLBACK_TEXT = """
The function gets `(item, index)`, that of `reduce` `(result, item, index)`, that of `sort` two items. It may `await`,
except in `sort`.
"""


def page() -> str:
    counts = {name: (builtin.least, builtin.most) for name, builtin in FUNCTIONS.items()}
    plain = {name: count for name, count in counts.items() if name not in ORCHESTRATION}
    sections = [
        ("Tasks, children, timers, signals", PROMISE_TEXT, _functions(ORCHESTRATION, PROMISES)),
        ("Functions", "", _functions(plain, LIBRARY)),
        ("Constants", "", _constants()),
        ("Methods of text", "\n`text.length` is its length.\n", _functions(_counts(strings.METHODS), TEXTS)),
        ("Methods of numbers", "", _functions(_counts(strings.NUMBER_METHODS), NUMBERS)),
        ("Methods of lists", "\n`list.length` is its length.\n", _functions(_counts(arrays.METHODS), LISTS)),
        ("Methods that change a list", CHANGE_TEXT, _functions(_counts(arrays.MUTATORS), CHANGES)),
        ("Methods that call a function", CALLBACK_TEXT, _callbacks()),
    ]
    body = "\n".join(f"## {title}\n{text}\n{rows}" for title, text, rows in sections)
    return f"# Library of scripts\n\n{NOTICE}{INTRODUCTION}\n{body}"


def _counts(methods: Mapping[str, Method]) -> dict[str, tuple[int, int | None]]:
    return {name: (method.least, method.most) for name, method in methods.items()}


def _functions(counts: Mapping[str, tuple[int, int | None]], meanings: Mapping[str, str]) -> str:
    rows = [(code(name), _count(*counts[name]), meanings[name]) for name in _in_order(counts, meanings)]
    return table(("function", "arguments", "meaning"), rows)


def _in_order(counts: Iterable[str], meanings: Mapping[str, str]) -> list[str]:
    """The order of the meanings, which groups what belongs together; both must name the same functions."""
    different = set(counts) ^ set(meanings)
    if different:
        raise ValueError(f"the library and the page do not name the same functions: {sorted(different)}")
    return list(meanings)


def _count(least: int, most: int | None) -> str:
    if most is None or most > MANY:
        return "any" if least == 0 else f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def _constants() -> str:
    names = _in_order(CONSTANTS, CONSTANT_VALUES)
    return table(("constant", "meaning"), [(code(name), CONSTANT_VALUES[name]) for name in names])


def _callbacks() -> str:
    names = _in_order(callbacks.CALLBACK_METHODS, CALLBACKS)
    rows = [(code(name), "1 to 2" if name == "reduce" else "1", CALLBACKS[name]) for name in names]
    return table(("method", "arguments", "meaning"), rows)

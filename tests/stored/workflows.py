"""The program whose executions are suspended in the stored fixtures.

Add functions and classes; never change, move or rename one: stored executions name them. ``STORED_WRITING`` in the
environment marks the process that writes a fixture: its clock stands still, and some of its tasks never end.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import operator
import os
import random
import uuid
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any, Self

from dalsegno import (
    App,
    Decision,
    EngineSettings,
    InvalidInput,
    NodeContext,
    NodeError,
    RetryPolicy,
    TaskError,
    approval,
    first,
    gather,
    log,
    now,
    race,
    run,
    set_tags,
    signal,
    sleep,
    start,
    timeout,
)
from dalsegno.testing import FakeClock

WRITING = bool(os.environ.get("STORED_WRITING"))
LATER = "later"
"""The queue that only readers serve."""
PROGRAMS = "programs"
"""The queue of remote programs."""

clock = FakeClock() if WRITING else None
app = App(
    "memory:",
    clock=clock,
    settings=EngineSettings(queues=("default",) if WRITING else ("default", LATER), heavy_processes=0),
)
"""Both set ``app.url`` before they open it."""


# -- values -------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Shortage(Exception):
    def __init__(self, sku: str, missing: int) -> None:
        super().__init__(f"{missing} of {sku} are missing")
        self.sku = sku
        self.missing = missing


Point = namedtuple("Point", "x y")  # noqa: PYI024 - the untyped form is what is stored here


@dataclass
class Item:
    sku: str
    price: Decimal
    due: datetime
    colour: Colour = Colour.RED
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Enrolment:
    course: str
    seats: int = 1


class Account:
    """Slots, a property, and a counter of its class."""

    __slots__ = ("_cents", "owner")

    def __init__(self, owner: str, cents: int) -> None:
        self.owner = owner
        self._cents = cents

    @property
    def cents(self) -> int:
        return self._cents

    def pay(self, cents: int) -> int:
        self._cents -= cents
        return self._cents


class Countdown:
    """An iterator of the program's own."""

    def __init__(self, start: int) -> None:
        self.left = start

    def __iter__(self) -> Countdown:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


class Noting:
    """A context manager that is open at an await."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def __enter__(self) -> Self:
        self.notes.append("in")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        self.notes.append(f"out {kind.__name__ if kind else None}")
        return kind is LookupError


class Meter:
    def __init__(self, unit: str) -> None:
        self.unit = unit


app.register_type(Meter, dump=lambda meter: meter.unit, load=Meter)


# -- tasks --------------------------------------------------------------------------------------------------------


@app.task
def add_one(n: int) -> int:
    return n + 1


@app.task(queue=LATER)
def tenfold(n: int) -> int:
    return n * 10


@app.task(queue=LATER)
def measure(text: str) -> int:
    return len(text)


@app.task(raises=(Shortage,))
def take(sku: str) -> int:
    raise Shortage(sku, 3)


@app.task
def break_down(word: str) -> None:
    class Breakdown(ValueError):
        pass

    raise Breakdown(word)


@app.task
def refuse(word: str) -> None:
    raise NodeError(word, code="REFUSED")


@app.task
def misread(word: str) -> None:
    raise InvalidInput(f"{word} cannot be read")


@app.task(queue=LATER)
def fail_later(word: str) -> None:
    raise LookupError(word)


@app.task(retries=RetryPolicy(max_attempts=3, initial_delay=3600.0))
def flaky(n: int, ctx: NodeContext) -> int:
    if ctx.attempt < 2:
        raise ConnectionError("not now")
    return n + 100


@app.task
async def hang(n: int) -> int:
    """Runs in the writer when its process ends."""
    if WRITING:
        await asyncio.sleep(1_000_000)
    return n + 1000


if not WRITING:

    @app.task
    def appear(n: int) -> int:
        """Is missing where the fixture is written."""
        return n + 10_000


outside = app.remote_task("outside", queue=PROGRAMS, returns=int)


# -- Python workflows ---------------------------------------------------------------------------------------------


@app.workflow
async def p_task(n: int) -> int:
    more = await add_one(n)
    return await tenfold(more) + more


@app.workflow
async def p_values(n: int) -> dict[str, Any]:
    zone = timezone(timedelta(hours=2))
    item = Item("a-1", Decimal("1.10"), datetime(2024, 2, 29, 12, 30, tzinfo=zone), Colour.BLUE, ["new"])
    same = item
    ring: list[Any] = [1]
    ring.append(ring)
    kept: dict[Any, Any] = {
        (1, "two"): {1, 2, 3},
        "counter": Counter("banana"),
        "deque": deque([1, 2, 3], maxlen=4),
        "ordered": OrderedDict(b=1, a=2),
        "default": defaultdict(list, {"x": [1]}),
        "chain": ChainMap({"a": 1}, {"b": 2}),
        "uuid": uuid.UUID(int=n),
        "date": date(2024, 1, 31),
        "delta": timedelta(days=1, microseconds=5),
        "point": Point(1, 2),
        "fraction": Fraction(1, 3),
        "path": PurePosixPath("/a/b"),
        "bytes": b"\x00\xff",
        "big": 2**80,
        "meter": Meter("kWh"),
        "floats": [0.1, float("inf"), -0.0],
        "frozen": frozenset({"x"}),
        "range": range(2, 9, 3),
        "complex": 1 + 2j,
    }
    go = await signal("go")
    kept["counter"].update("an")
    kept["deque"].extend([go, go])
    kept["default"]["y"].append(2)
    same.notes.append("same")
    return {
        "item": item,
        "ring": ring[1] is ring,
        "tuple key": sorted(kept[1, "two"]),
        "counter": kept["counter"]["a"],
        "deque": list(kept["deque"]),
        "ordered": list(kept["ordered"]),
        "default": dict(kept["default"]),
        "chain": dict(kept["chain"]),
        "uuid": kept["uuid"],
        "date": kept["date"] + kept["delta"],
        "point": kept["point"].y,
        "fraction": str(kept["fraction"] * 3),
        "path": kept["path"].name,
        "bytes": kept["bytes"],
        "big": kept["big"] + 1,
        "meter": kept["meter"].unit,
        "floats": [str(each) for each in kept["floats"]],
        "frozen": "x" in kept["frozen"],
        "range": list(kept["range"]),
        "complex": str(kept["complex"]),
    }


@app.workflow
async def p_in_except(sku: str) -> list[Any]:
    try:
        await take(sku)
    except Shortage as error:
        answer = await signal("go")
        return [error.sku, error.missing, str(error), answer]
    return []


@app.workflow
async def p_chained(sku: str) -> list[Any]:
    try:
        try:
            await take(sku)
        except Shortage as error:
            await signal("go")
            raise ValueError("wrapped") from error
    except ValueError as outer:
        cause = outer.__cause__
        return [str(outer), type(cause).__name__, str(cause)]
    return []


@app.workflow
async def p_in_finally(n: int) -> int:
    """Fails in the end: the exception is in flight while the clean-up waits."""
    notes = {"n": n}
    try:
        return notes["missing"]
    finally:
        await signal("go")
        log("cleaned up")


@app.workflow
async def p_returning(n: int) -> int:
    try:
        return n * 2
    finally:
        await sleep("1h")


@app.workflow
async def p_task_error(word: str) -> list[Any]:
    try:
        await break_down(word)
    except TaskError as error:
        await signal("go")
        return [error.type, error.code, error.message, isinstance(error, ValueError)]
    return []


@app.workflow
async def p_library_errors(word: str) -> list[Any]:
    kept: list[BaseException] = []
    try:
        await refuse(word)
    except NodeError as error:
        kept.append(error)
    try:
        await misread(word)
    except InvalidInput as error:
        kept.append(error)
    await signal("go")
    return [f"{type(each).__name__}: {each}" for each in kept]


@app.workflow
async def p_catching(word: str) -> str:
    """The failure comes only when the store is opened again."""
    try:
        await fail_later(word)
    except LookupError as error:
        return f"caught {error}"
    return "nothing"


@app.workflow
async def p_iterators(n: int) -> list[Any]:
    numbers = list(range(n))
    words = ["a", "b", "c", "d", "e"]
    every = {
        "enumerate": enumerate(words),
        "zip": zip(numbers, words, strict=False),
        "reversed": reversed(words),
        "map": map(operator.neg, numbers),
        "filter": filter(None, numbers),
        "list": iter(numbers),
        "dict": iter({"x": 1, "y": 2, "z": 3}.items()),
        "own": Countdown(5),
        "count": itertools.count(10, 2),
        "cycle": itertools.cycle(words),
        "chain": itertools.chain(numbers, words),
        "islice": itertools.islice(numbers, 1, None, 2),
        "accumulate": itertools.accumulate(numbers),
        "takewhile": itertools.takewhile(bool, [1, 2, 0, 3]),
        "dropwhile": itertools.dropwhile(bool, [1, 0, 3, 4]),
        "filterfalse": itertools.filterfalse(None, [0, 1, 0, "", []]),
        "starmap": itertools.starmap(pow, [(2, 3), (3, 2), (2, 5)]),
        "repeat": itertools.repeat("x", 4),
        "pairwise": itertools.pairwise(numbers),
        "compress": itertools.compress(words, [1, 0, 1, 1, 0]),
        "product": itertools.product("ab", repeat=2),
        "permutations": itertools.permutations("abc"),
        "combinations": itertools.combinations("abcd", 2),
        "replacement": itertools.combinations_with_replacement("abc", 2),
        "longest": itertools.zip_longest("ab", "cde"),
    }
    left, right = itertools.tee(numbers)
    groups = itertools.groupby("aabbbc")
    begun = {name: next(each) for name, each in every.items()}
    next(left)
    key, _ = next(groups)
    go = await signal("go")
    rest = {name: next(each, None) for name, each in every.items()}
    return [begun, rest, next(left), next(right), key, [name for name, _ in groups], go]


@app.workflow
async def p_closures(n: int) -> list[Any]:
    total = n
    calls: list[int] = []

    def add(more: int) -> int:
        nonlocal total
        total += more
        return total

    def multiplied(factor: int) -> Any:
        return lambda value: value * factor * total

    @functools.cache
    def slow(value: int) -> int:
        calls.append(value)
        return value * value

    async def ask(name: str, *, times: int = 1) -> list[Any]:
        answers = []
        for _ in range(times):
            answers.append(await signal(name))
            add(len(answers))
        return answers

    slow(3)
    add(1)
    thrice = multiplied(3)
    halved = functools.partial(operator.floordiv, 100)
    answers = await ask("go", times=2)
    slow(3)
    return [answers, total, thrice(2), halved(7), calls, sorted([3, 1, 2], key=lambda each: -each)]


@app.workflow
async def p_loop(words: list[str]) -> list[Any]:
    found = []
    for number, word in enumerate(words):
        if number % 2:
            continue
        while True:
            answer = await signal("go")
            if answer != "again":
                break
        found.append([number, word, answer])
    found.append(["end"])
    return found


@app.workflow
async def p_comprehension(numbers: list[int]) -> dict[str, int]:
    return {f"n{n}": await tenfold(n) + m for n in numbers if n for m in (1,)}


@app.workflow
async def p_gather(n: int) -> list[Any]:
    settled = await gather(
        add_one(n), tenfold(n), sleep("1h"), break_down("x"), fail_later("y"), return_exceptions=True
    )
    return [each if not isinstance(each, BaseException) else type(each).__name__ for each in settled]


@app.workflow
async def p_gather_limited(numbers: list[int]) -> list[int]:
    return await gather(*[tenfold(n) for n in numbers], limit=2)


@app.workflow
async def p_race_signal() -> Any:
    return list(await race(paid=signal("paid"), late=sleep("36500d")))


@app.workflow
async def p_race_timer() -> Any:
    return list(await race(paid=signal("paid"), late=sleep("1h")))


@app.workflow
async def p_first(n: int) -> Any:
    return await first(break_down("bang"), fail_later("boom"), tenfold(n))


@app.workflow
async def p_first_fails() -> list[str]:
    try:
        await first(break_down("bang"), fail_later("boom"))
    except ExceptionGroup as group:
        return sorted(type(each).__name__ for each in group.exceptions)
    return []


@app.workflow
async def p_promise_kept(n: int) -> list[Any]:
    pending = tenfold(n)
    timer = sleep("1h")
    answer = await signal("go")
    return [answer, await pending, await timer, await pending]


@app.workflow
async def p_timeout() -> str:
    try:
        async with timeout("1h"):
            await signal("never")
    except TimeoutError:
        return "nobody answered"
    return "somebody answered"


@app.workflow
async def p_signal_timeout() -> str:
    try:
        return str(await signal("never", timeout="1h"))
    except TimeoutError:
        return "nobody answered"


@app.workflow(timeout="2h")
async def p_over_time() -> str:
    """Fails: the limit of the whole execution has passed."""
    return str(await signal("never"))


@app.workflow
async def p_approval(name: str) -> list[Any]:
    decision = await approval(f"Enrol {name}?", form=Enrolment, approvers=["ann"], timeout="36500d")
    return [decision.approved, decision.by, decision.comment, decision.data]


@app.workflow
async def p_decision_kept(name: str) -> list[Any]:
    decision: Decision = await approval(f"Enrol {name}?", form=Enrolment)
    go = await signal("go")
    return [decision.approved, decision.by, decision.data, type(decision).__name__, go]


@app.workflow
async def p_child(n: int) -> list[Any]:
    answer = await signal("go")
    return [n, answer]


@app.workflow
async def p_parent(n: int) -> list[Any]:
    return [await p_child(n), "parent"]


@app.workflow
async def p_parent_of_script(n: int) -> list[Any]:
    free = start(p_task, n)
    return [await run("s_child", {"n": n}), len(free)]


@app.workflow
async def p_clock() -> list[Any]:
    begun = now()
    await sleep(timedelta(hours=2))
    later = now()
    await sleep(datetime(2023, 12, 1, tzinfo=UTC))
    return [later - begun >= timedelta(hours=2), now() >= later, begun.year]


@app.workflow
async def p_remote(n: int) -> int:
    return await outside(n) + n


@app.workflow
async def p_cleaning() -> str:
    """Was cancelled: it cleans up when the fixture is written."""
    try:
        await signal("never")
    except asyncio.CancelledError:
        set_tags(stage="cleaning")
        await signal("cleaned")
        raise
    return "never"


@app.workflow
async def p_left_cleaning() -> str:
    """Was cancelled and terminated: its clean-up is a dead letter."""
    try:
        await signal("never")
    finally:
        await signal("cleaned")
    return "never"


@app.workflow
async def p_verbs(n: int) -> list[Any]:
    verbs: dict[str, Any] = {
        "sleep": sleep,
        "gather": gather,
        "signal": signal,
        "first": first,
        "race": race,
        "run": run,
        "start": start,
        "log": log,
        "timeout": timeout,
        "approval": approval,
        "task": add_one,
        "workflow": p_child,
        "kind": Decision,
        "failure": TaskError,
        "count": itertools.count,
        "nodes": NodeError,
    }
    await signal("go")
    several: Awaitable[list[Any]] = verbs["gather"](verbs["task"](n), verbs["sleep"](0))
    async with verbs["timeout"]("36500d"):
        results = await several
    verbs["log"]("kept")
    return [results, verbs["kind"].__name__, verbs["failure"] is TaskError, next(verbs["count"](7))]


@app.workflow
async def p_retry(n: int) -> int:
    return await flaky(n)


@app.workflow
async def p_running(n: int) -> int:
    """Its task ran in a process that is gone."""
    return await hang(n)


@app.workflow
async def p_instances(n: int) -> list[Any]:
    account = Account("ann", 500)
    chance = random.Random(n)
    chance.random()
    pay = account.pay
    await signal("go")
    pay(100)
    return [account.owner, account.cents, round(chance.random(), 12), account.pay(1)]


@app.workflow
async def p_manager(n: int) -> list[str]:
    notes: list[str] = []
    with Noting(notes):
        await signal("go")
        raise LookupError(n)
    return notes


@app.workflow
async def p_match(order: dict[str, Any]) -> str:
    match order:
        case {"kind": "book", "copies": int(copies)} if copies > 1:
            answer = await signal("go")
            return f"{copies} books, {answer}"
        case _:
            return "else"


@app.workflow
async def p_large(n: int) -> int:
    rows = [f"row {number}: {'x' * 50}" for number in range(n)]
    await signal("go")
    return sum(map(len, rows))


@app.workflow
async def p_done(n: int) -> int:
    return await add_one(n)


@app.workflow
async def p_failed(n: int) -> int:
    raise Shortage("a-1", n)


@app.workflow(concurrency={"key": "p-$trigger", "limit": 1})
async def p_limited(customer: str) -> Any:
    return [customer, await signal("go")]

"""Generator of random programs: every kind of await, nested in loops, functions, ``try`` and ``if``."""

from __future__ import annotations

from itertools import count
from random import Random

from dalsegno.testing.simulation.programs.program import (
    ALWAYS,
    MAIN,
    Attempt,
    Await,
    Begin,
    Body,
    Child,
    Choose,
    Detach,
    Fan,
    Fire,
    Given,
    Group,
    GroupKind,
    Inner,
    Program,
    Promise,
    Repeat,
    Saved,
    Signal,
    Statement,
    Throw,
    Timer,
    Work,
)

MAX_DEPTH = 3


class Character:
    """The character of one program: some race a lot, some fail a lot, some only fan out."""

    def __init__(self, random: Random) -> None:
        self.failures = random.choice((0.0, 0.1, 0.3))
        self.races = random.choice((0.0, 0.0, 0.3))
        self.signals = random.choice((0.0, 0.2, 0.5))
        self.slow = random.choice((0.0, 0.3, 0.7))
        self.forgets = random.choice((0.0, 0.2))
        self.late_signals = random.random() < 0.1
        self.cancels = random.random() < 0.1
        self.large = random.random() < 0.08
        self.wide = random.random() < 0.1


class _Drawing:
    def __init__(self, random: Random, character: Character, children: tuple[str, ...], budget: int) -> None:
        self.random = random
        self.character = character
        self.children = children
        self.budget = budget
        self.is_main = True
        self._sites = count(1)
        self._variables = count(1)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # -- statements -----------------------------------------------------------------------------------------------

    def body(self, depth: int, known: tuple[str, ...] = ()) -> Body:
        """``known``: variables with promises that can be named here."""
        found: list[Statement] = []
        for _ in range(self.random.randint(1, 4)):
            if self.budget <= 0 and found:
                break
            statement = self._statement(depth, known)
            found.append(statement)
            if isinstance(statement, Begin):
                known = (*known, statement.variable)
            if isinstance(statement, Throw):
                break
        return tuple(found)

    def _statement(self, depth: int, known: tuple[str, ...]) -> Statement:
        self.budget -= 1
        draws = self.random.random()
        if depth < MAX_DEPTH and draws < 0.35 and self.budget > 0:
            return self._compound(depth, known)
        if draws < 0.45:
            return Begin(f"p{next(self._variables)}", self._saveable(known))
        if draws < 0.45 + self.character.forgets * 0.5:
            return self._forgotten()
        if draws < 0.62 and depth and self.chance(self.character.failures):
            return Throw(next(self._sites))
        return Await(self._promise(known, depth=0))

    def _forgotten(self) -> Statement:
        if self.children and self.chance(0.3):
            return Detach(self.random.choice(self.children))
        return Fire(self._work(failing=self.character.failures))

    def _compound(self, depth: int, known: tuple[str, ...]) -> Statement:
        kind = self.random.choice(("repeat", "choose", "attempt", "attempt", "inner"))
        if kind == "repeat":
            return Repeat(self.random.choice((1, 2, 3)), self.body(depth + 1, known))
        if kind == "choose":
            return Choose(self.body(depth + 1, known), self.body(depth + 1, known))
        if kind == "inner":
            return Inner(self.body(depth + 1, known))
        tried = self.body(depth + 1, known)
        catches = self.chance(0.8)
        caught = self.body(depth + 1, known) if catches else None
        lastly = self.body(depth + 1, known) if not catches or self.chance(0.3) else None
        return Attempt(tried, caught, lastly)

    # -- promises -------------------------------------------------------------------------------------------------

    def _saveable(self, known: tuple[str, ...]) -> Promise:
        """Return a promise that may be awaited late or never.

        A signal is excluded: it would be taken without an await.
        """
        if self.chance(0.3):
            return self._group(known, depth=1, plain=True)
        return self.random.choice((self._timer(), self._work(), self._child() or self._work()))

    def _promise(self, known: tuple[str, ...], depth: int) -> Promise:
        draws = self.random.random()
        if draws < self.character.signals * 0.4 and self.is_main and depth == 0:
            return Signal(self.random.choice("ab"), self._limit())
        if known and draws < 0.35:
            return Saved(self.random.choice(known))
        if depth < 2 and draws < 0.65:
            return self._group(known, depth)
        if draws < 0.75:
            return self._timer()
        return (self._child() if draws < 0.85 else None) or self._work()

    def _limit(self) -> float | None:
        return self.random.choice((0.5, 5.0, 60.0)) if self.character.late_signals else None

    def _group(self, known: tuple[str, ...], depth: int, *, plain: bool = False) -> Promise:
        kind = self._kind(settles=depth == 0 and not plain)
        if self.chance(0.25):
            most = 40 if self.character.wide else 4
            return Fan(kind, self.random.randint(1, most), self._work("index", self._failing_in(kind)))
        size = self.random.choice((1, 2, 2, 3))
        items = tuple(self._promise(known, depth + 1) for _ in range(size))
        if kind in ("all", "all_settled") and self.chance(self.character.signals * 0.3) and not plain:
            items = self._with_signal(kind, items)
        cancel = kind in ("any", "race") and self.character.cancels and self.chance(0.5)
        return Group(kind, items, cancel)

    def _with_signal(self, kind: GroupKind, items: tuple[Promise, ...]) -> tuple[Promise, ...]:
        """Add a signal only to groups that cannot fail: an abandoned wait would leave its signal to the next."""
        if not self.is_main or (kind == "all" and any(not isinstance(item, Timer) for item in items)):
            return items
        return (*items, Signal(self.random.choice("ab")))

    def _kind(self, *, settles: bool) -> GroupKind:
        if self.chance(self.character.races):
            return self.random.choice(("any", "race"))
        return "all_settled" if settles and self.chance(0.3) else "all"

    def _failing_in(self, kind: GroupKind) -> float:
        return 0.0 if kind == "all" and self.chance(0.7) else self.character.failures

    def _timer(self) -> Timer:
        return Timer(self.random.choice((0, 0.2, 0.2, 1.5, 1.5, 20, 60)))

    def _child(self) -> Child | None:
        if not self.children:
            return None
        return Child(self.random.choice(self.children), self.random.choice(("count", "last")))

    def _any_given(self) -> Given:
        return self.random.choice(("count", "last"))

    def _work(self, given: Given | None = None, failing: float | None = None) -> Work:
        random, character = self.random, self.character
        failing = character.failures if failing is None else failing
        fails = random.choice((1, 1, 2, ALWAYS)) if self.chance(failing) else 0
        retries = random.choice((0, 1, 2)) if fails else 0
        return Work(
            next(self._sites),
            given if given is not None else self._any_given(),
            fails,
            retries,
            random.choice((0.0, 0.3, 4.0)) if retries else 0.0,
            random.choice((0.01, 0.4) if character.wide else (0.01, 0.4, 3.0, 30.0))
            if self.chance(character.slow)
            else 0.0,
            random.choice((0.5, 10.0)) if self.chance(character.slow * 0.2) else 0.0,
            random.choice((300, 40_000)) if character.large and self.chance(0.4) else 0,
        )


def draw_program(random: Random) -> Program:
    character = Character(random)
    names = tuple(f"child{number}" for number in range(random.choice((0, 0, 1, 2))))
    workflows: dict[str, Body] = {}
    for number, name in enumerate(names):
        drawing = _Drawing(random, character, names[:number], random.randint(1, 4))
        drawing.is_main = False
        workflows[name] = drawing.body(1)
    main = _Drawing(random, character, names, random.randint(2, 14))
    body: list[Statement] = []
    while main.budget > 0:
        body += main.body(0)
    workflows[MAIN] = tuple(body)
    timeout = random.choice((2.0, 30.0)) if random.random() < 0.04 else None
    return Program(workflows, timeout)

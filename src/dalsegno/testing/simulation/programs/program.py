"""Random programs as data: what they await, in which order, and how they handle failures.

Every program keeps a list ``seen`` of the results of its awaits and returns it. The same data is written as a script
and as a Python function (:mod:`sources`), and read by an independent interpreter (:mod:`reference`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

GroupKind = Literal["all", "any", "race", "all_settled"]
Given = Literal["count", "last", "index"]
"""The input of a task: the number of results so far, the last result, or its index in a fan-out."""

ALWAYS = 1000


class Work(Struct, frozen=True, tag=True):
    """A task: a pure function of ``site`` and its input, after a delay, or a failure."""

    site: int
    given: Given = "count"
    fails: int = 0
    """Number of first attempts that fail."""
    retries: int = 0
    pause: float = 0.0
    """Delay before a retry."""
    seconds: float = 0.0
    delay: float = 0.0
    pad: int = 0
    """Characters that make the result large."""

    @property
    def succeeds(self) -> bool:
        return self.fails <= self.retries


class Timer(Struct, frozen=True, tag=True):
    seconds: float


class Signal(Struct, frozen=True, tag=True):
    name: str
    timeout: float | None = None


class Child(Struct, frozen=True, tag=True):
    """A child workflow whose result is awaited."""

    workflow: str
    given: Given = "count"


class Saved(Struct, frozen=True, tag=True):
    """A promise saved in a variable before."""

    variable: str


class Fan(Struct, frozen=True, tag=True):
    """The same task many times, joined."""

    kind: GroupKind
    count: int
    work: Work


class Group(Struct, frozen=True, tag=True):
    kind: GroupKind
    items: tuple[Promise, ...]
    cancel: bool = False


Promise = Work | Timer | Signal | Child | Saved | Fan | Group


class Await(Struct, frozen=True, tag=True):
    promise: Promise


class Begin(Struct, frozen=True, tag=True):
    """``let p1 = …``: awaited later, more than once, or never."""

    variable: str
    promise: Promise


class Fire(Struct, frozen=True, tag=True):
    """Started and never awaited."""

    promise: Work | Child


class Detach(Struct, frozen=True, tag=True):
    """A child workflow that is started and not awaited."""

    workflow: str


class Repeat(Struct, frozen=True, tag=True):
    times: int
    body: Body


class Choose(Struct, frozen=True, tag=True):
    """A branch on whether the number of results so far is even."""

    even: Body
    odd: Body


class Attempt(Struct, frozen=True, tag=True):
    body: Body
    caught: Body | None = None
    lastly: Body | None = None


class Throw(Struct, frozen=True, tag=True):
    site: int


class Inner(Struct, frozen=True, tag=True):
    """The same statements inside a function of the program, called at once: one more frame in the snapshot."""

    body: Body


Statement = Await | Begin | Fire | Detach | Repeat | Choose | Attempt | Throw | Inner
Body = tuple[Statement, ...]


class Program(Struct, frozen=True):
    """``workflows``: the main one under ``main``, and its children."""

    workflows: dict[str, Body]
    timeout: float | None = None
    """Timeout of the main execution."""


MAIN = "main"


def statements(body: Body) -> Iterator[Statement]:
    """Yield all statements, nested ones too."""
    for statement in body:
        yield statement
        for inner in bodies_of(statement):
            yield from statements(inner)


def bodies_of(statement: Statement) -> tuple[Body, ...]:
    match statement:
        case Repeat(body=body) | Inner(body=body):
            return (body,)
        case Choose(even, odd):
            return (even, odd)
        case Attempt(body, caught, lastly):
            return tuple(each for each in (body, caught, lastly) if each is not None)
        case _:
            return ()


def promises(body: Body) -> Iterator[Promise]:
    """Yield all promises that are made or named, items of groups too."""
    for statement in statements(body):
        if isinstance(statement, Await | Begin | Fire):
            yield from leaves(statement.promise)


def leaves(promise: Promise) -> Iterator[Promise]:
    yield promise
    if isinstance(promise, Group):
        for item in promise.items:
            yield from leaves(item)
    if isinstance(promise, Fan):
        yield promise.work

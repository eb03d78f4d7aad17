"""Workflows that keep instances of ordinary classes across their awaits."""

from __future__ import annotations

import threading
from typing import Any

from tests.python import shelf
from tests.python.shelf import Shelf
from tests.python.tasks import echo


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.other: Any = None

    @property
    def shown(self) -> str:
        return f"<{self.value}>"

    @shown.setter
    def shown(self, value: str) -> None:
        CALLED.append(value)


class Private:
    __slots__ = ("__dict__", "__hidden", "unset")

    def __init__(self, hidden: Any) -> None:
        self.__hidden = hidden
        self.open = [hidden]

    @property
    def hidden(self) -> Any:
        return self.__hidden


class Stateful:
    def __init__(self, value: Any) -> None:
        self.value, self.lock = value, threading.Lock()

    def __getstate__(self) -> Any:
        return ["state", self.value]

    def __setstate__(self, state: Any) -> None:
        CALLED.append(state)
        self.value, self.lock = state[1], threading.Lock()


class Reduced:
    def __init__(self, *parts: Any) -> None:
        CALLED.append(parts)
        self.parts = parts

    def __reduce__(self) -> Any:
        return type(self), self.parts


class Sly:
    """Says that it is made by something else."""

    def __reduce__(self) -> Any:
        return eval, ("1",)


class Freeing:
    def __del__(self) -> None:
        CALLED.append("freed")


class Locked:
    def __init__(self) -> None:
        self.parts = {"lock": threading.Lock()}


class Hashed:
    def __init__(self, name: str) -> None:
        self.name, self.near = name, {}

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashed) and other.name == self.name


class Handle:
    """Cannot be stored by itself."""

    def __init__(self, name: str) -> None:
        self.name, self.lock = name, threading.Lock()


CALLED: list[Any] = []


async def keeps_plain(value):
    plain, private = Plain(value), Private(value)
    plain.other = [plain, private]
    pair = (plain, {"again": plain})
    await echo(1)
    return [
        plain.value,
        plain.shown,
        plain.other[0] is plain,
        pair[0] is pair[1]["again"] is plain,
        private.hidden,
        plain.other[1] is private,
        hasattr(private, "unset"),
    ]


async def keeps_state(value):
    stateful = Stateful(value)
    held = [stateful, {"again": stateful}]
    await echo(1)
    return [stateful.value, held[0] is held[1]["again"] is stateful, stateful.lock.locked()]


async def keeps_reduced(value):
    reduced = Reduced(value, [value])
    await echo(1)
    return [list(reduced.parts)]


async def keeps_ring(names):
    found = [Hashed(name) for name in names]
    for one in found:
        for other in found:
            one.near[other] = other.name
    members = set(found)
    await echo(1)
    return [
        [found[0].near[other] for other in found],
        all(each in members for each in found),
        Hashed(names[0]) in found[-1].near,
    ]


async def keeps_of_another_module(value):
    """The class of what the shelf holds is not named here."""
    filled = Shelf(value)
    inner = shelf.fill(value)
    await echo(1)
    return [filled.books[0].title, inner.books[0].title, type(filled.books[0]).__name__]


async def keeps_sly(value):
    sly = Sly()
    await echo(1)
    return sly


async def keeps_freeing(value):
    freeing = Freeing()
    await echo(1)
    return freeing


async def keeps_locked(value):
    locked = Locked()
    await echo(1)
    return locked


async def keeps_handle(value):
    handle = Handle(value)
    twice = [handle, handle]
    await echo(1)
    return [handle.name, twice[0] is twice[1] is handle]


async def calls_the_kept(value):
    kept = Plain(value)
    await echo(1)
    return kept.shown

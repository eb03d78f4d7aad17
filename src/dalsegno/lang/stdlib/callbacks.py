"""Methods of lists that call a function: frames of the machine, one class per method.

Each frame holds plain data only (its slots), so that a snapshot can be taken between any two calls.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dalsegno.lang.errors import ScriptThrow, type_error, wrong_argument
from dalsegno.lang.runtime.frames import CallbackFrame
from dalsegno.lang.runtime.limits import BYTES_PER_ITEM, COPIED
from dalsegno.lang.stdlib.arguments import Arguments
from dalsegno.lang.values.kinds import Host, Value, is_number, kind_of, truthy


class _EachItem:
    """Calls back with ``(item, index)`` for each item until `done`."""

    __slots__ = ("callback", "done", "index", "items", "output")
    name: ClassVar[str] = ""
    state: ClassVar[tuple[str, ...]] = ("callback", "items", "index", "output", "done")
    """Its slots in the order of the stored format: append, never reorder."""

    def __init__(self, host: Host, items: list[Value], arguments: Arguments) -> None:
        self.callback = arguments.function(0)
        self.items = items
        self.index = 0
        self.output: Value = []
        self.done = False

    def next_arguments(self, host: Host) -> list[Value] | None:
        if self.done or self.index >= len(self.items):
            return None
        return [self.items[self.index], self.index]

    def accept(self, host: Host, answer: Value) -> None:
        item = self.items[self.index]
        self.index += 1
        self.take(host, item, answer)

    def take(self, host: Host, item: Value, answer: Value) -> None:
        """Process the answer for ``item``."""

    def keep(self, host: Host, value: Value) -> None:
        host.meter.keep(BYTES_PER_ITEM, self.name)
        self.output.append(value)

    def stop(self, output: Value) -> None:
        self.output = output
        self.done = True

    def result(self, host: Host) -> Value:
        return self.output


class MapFrame(_EachItem):
    __slots__ = ()
    name = "map"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        self.keep(host, answer)


class FlatMapFrame(_EachItem):
    __slots__ = ()
    name = "flatMap"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        values = answer if isinstance(answer, list) else [answer]
        host.meter.items(len(values), "flatMap()")
        self.output.extend(values)


class FilterFrame(_EachItem):
    __slots__ = ()
    name = "filter"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        if truthy(answer):
            self.keep(host, item)


class ForEachFrame(_EachItem):
    __slots__ = ()
    name = "forEach"

    def result(self, host: Host) -> Value:
        return None


class FindFrame(_EachItem):
    __slots__ = ()
    name = "find"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        if truthy(answer):
            self.stop(item)

    def result(self, host: Host) -> Value:
        return self.output if self.done else None


class FindIndexFrame(_EachItem):
    __slots__ = ()
    name = "findIndex"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        if truthy(answer):
            self.stop(self.index - 1)

    def result(self, host: Host) -> Value:
        return self.output if self.done else -1


class SomeFrame(_EachItem):
    __slots__ = ()
    name = "some"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        if truthy(answer):
            self.stop(True)

    def result(self, host: Host) -> Value:
        return self.done


class EveryFrame(_EachItem):
    __slots__ = ()
    name = "every"

    def take(self, host: Host, item: Value, answer: Value) -> None:
        if not truthy(answer):
            self.stop(False)

    def result(self, host: Host) -> Value:
        return not self.done


class ReduceFrame(_EachItem):
    """Calls back with ``(accumulator, item, index)``; without an initial value, the first item is the accumulator."""

    __slots__ = ()
    name = "reduce"

    def __init__(self, host: Host, items: list[Value], arguments: Arguments) -> None:
        super().__init__(host, items, arguments)
        if len(arguments.given) > 1:
            self.output = arguments.get(1)
        elif items:
            self.output, self.index = items[0], 1
        else:
            raise type_error("reduce() of an empty list needs an initial value")

    def next_arguments(self, host: Host) -> list[Value] | None:
        if self.index >= len(self.items):
            return None
        return [self.output, self.items[self.index], self.index]

    def take(self, host: Host, item: Value, answer: Value) -> None:
        self.output = answer


class SortFrame:
    """A stable bottom-up merge sort that asks the callback ``(a, b)`` which comes first.

    If a variable's list is sorted, ``place`` and ``keys`` are where the machine stores the result.
    """

    __slots__ = ("callback", "end", "items", "keys", "left", "merged", "middle", "place", "right", "width")
    name: ClassVar[str] = "sort"
    state: ClassVar[tuple[str, ...]] = (
        "callback", "items", "merged", "width", "left", "middle", "right", "end", "place", "keys",
    )  # fmt: skip

    def __init__(self, host: Host, items: list[Value], arguments: Arguments) -> None:
        self.callback = arguments.function(0)
        host.meter.items(2 * len(items), "sort()")
        self.items = list(items)
        self.merged: list[Value] = []
        self.width = 1
        self.left = self.middle = self.right = self.end = 0
        self.place = -1
        self.keys: list[Value] = []
        self.next_run()

    def next_run(self) -> None:
        """Advance to the next pair of runs; after the last pair, to the next pass with runs twice as long."""
        if self.end >= len(self.items) and self.merged:
            self.items, self.merged = self.merged, []
            self.width *= 2
            self.end = 0
        self.left = self.end
        self.middle = self.right = min(self.left + self.width, len(self.items))
        self.end = min(self.left + 2 * self.width, len(self.items))

    def next_arguments(self, host: Host) -> list[Value] | None:
        while self.width < len(self.items):
            if self.left < self.middle and self.right < self.end:
                return [self.items[self.left], self.items[self.right]]
            host.meter.work(1 + (self.middle - self.left + self.end - self.right) // COPIED)
            self.merged.extend(self.items[self.left : self.middle])
            self.merged.extend(self.items[self.right : self.end])
            self.next_run()
        return None

    def accept(self, host: Host, answer: Value) -> None:
        if not is_number(answer):
            raise wrong_argument(f"the function given to sort() must return a number, not {kind_of(answer)}")
        if answer > 0:
            self.merged.append(self.items[self.right])
            self.right += 1
        else:
            self.merged.append(self.items[self.left])
            self.left += 1

    def result(self, host: Host) -> Value:
        return self.items


_FRAMES: tuple[type[Any], ...] = (
    MapFrame, FlatMapFrame, FilterFrame, ForEachFrame, FindFrame, FindIndexFrame, SomeFrame, EveryFrame, ReduceFrame,
    SortFrame,
)  # fmt: skip
CALLBACK_METHODS: dict[str, type[Any]] = {frame.name: frame for frame in _FRAMES}


def start_callback(host: Host, items: list[Value], name: str, given: list[Value]) -> CallbackFrame:
    """Return the frame that runs ``items.name(callback, …)``."""
    most = 2 if name == "reduce" else 1
    if not 1 <= len(given) <= most:
        wanted = "1 or 2 arguments" if most == 2 else "1 argument"
        raise ScriptThrow("WRONG_ARG_COUNT", f"{name}() takes {wanted}, not {len(given)}")
    frame: CallbackFrame = CALLBACK_METHODS[name](host, items, Arguments(name, given))
    return frame

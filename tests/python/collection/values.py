"""Programs with values: texts, formats, numbers, dates, matching, unpacking, comprehensions, sorting, bits."""

from __future__ import annotations

import bisect
import copy
import json
import re
import string
from collections import ChainMap, OrderedDict, deque
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from operator import itemgetter
from string import Template
from typing import Any


def caesar(text: str, by: int) -> str:
    result = ""
    for char in text:
        if char.isalpha():
            base = ord("a" if char.islower() else "A")
            result += chr((ord(char) - base + by) % 26 + base)
        else:
            result += char
    return result


def roman(number: int) -> str:
    numerals = {1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X"}
    numerals |= {9: "IX", 5: "V", 4: "IV", 1: "I"}
    found = []
    for value, text in numerals.items():
        times, number = divmod(number, value)
        found.append(text * times)
    return "".join(found)


def formatted(name: str, amount: float) -> list[str]:
    width, places = 10, 2
    lines = [f"{name:>{width}}|{amount:{width}.{places}f}|{amount!r}"]
    lines.append("%-5s|%05d" % (name, amount))
    lines.append("{0} {n[0]} {1:,}".format(name, 1234567, n=[1]))
    template = Template("$who owes $$ $what")
    lines.append(template.substitute(who=name, what=amount))
    table = str.maketrans("aeiou", "12345")
    lines.append(name.translate(table))
    return lines


def run_length(text: str) -> list[Any]:
    runs: list[list[Any]] = []
    for char in text:
        if runs and runs[-1][0] == char:
            runs[-1][1] += 1
        else:
            runs.append([char, 1])
    encoded = "".join(f"{number}{char}" for char, number in runs)
    decoded = "".join(char * int(number) for number, char in re.findall(r"(\d+)(.)", encoded))
    return [encoded, decoded == text]


def vowels(text: str) -> list[Any]:
    pattern = re.compile(r"[aeiou]", re.IGNORECASE)
    found = pattern.findall(text)
    replaced = pattern.sub(lambda match: match.group().upper(), text)
    letters = set(string.ascii_lowercase) - set(text.lower())
    return [found, replaced, len(letters), sorted(letters)[:3]]


def invoice(prices: list[str]) -> list[str]:
    total, tax = Decimal(0), Decimal("0.19")
    for price in prices:
        total += Decimal(price)
    gross = (total * (1 + tax)).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
    share = Fraction(1, len(prices))
    shares = [share * number for number in range(len(prices))]
    return [str(gross), str(sum(shares)), str(total.as_tuple().exponent)]


def calendar(start: str, days: int) -> list[Any]:
    day = date.fromisoformat(start)
    step, workdays = timedelta(days=1), []
    for _ in range(days):
        if day.weekday() < 5:
            workdays.append(day)
        day += step
    moment = datetime(day.year, day.month, day.day, 12, 30)
    later = moment + timedelta(hours=36)
    return [workdays, later, (later - moment).total_seconds(), f"{later:%d.%m.%Y %H:%M}"]


def matched(commands: list[Any]) -> list[str]:
    said = []
    for command in commands:
        match command:
            case {"go": str(direction), **rest} if not rest:
                said.append(f"go {direction}")
            case ["move", int(x), int(y)] | ["jump", int(x), int(y)]:
                said.append(f"to {x},{y}")
            case [first, *others]:
                said.append(f"{first} and {len(others)}")
            case 0 | None:
                said.append("nothing")
            case int() | float() as number:
                said.append(f"number {number}")
            case _:
                said.append("unknown")
    return said


@dataclass
class Circle:
    radius: float


@dataclass
class Box:
    width: float
    height: float = 1


def matched_classes(sizes: list[float]) -> list[Any]:
    shapes: list[Any] = [Circle(sizes[0]), Box(*sizes), Box(sizes[1])]
    found = []
    for shape in shapes:
        match shape:
            case Circle(radius=radius):
                found.append(["circle", radius])
            case Box(width, 1):
                found.append(["flat", width])
            case Box(width=width, height=height):
                found.append(["box", width * height])
    return found


def unpacking(numbers: list[int]) -> list[Any]:
    first, *middle, last = numbers
    (left, right), [third] = (first, last), middle[:1]
    left, right = right, left
    merged = [*middle, *range(2), first]
    both = {**{"a": left}, "b": right, **dict(c=third)}
    first, numbers[first] = 1, 99
    return [first, middle, last, left, right, merged, both, numbers]


def comprehensions(size: int) -> list[Any]:
    table = [[row * column for column in range(1, size)] for row in range(1, size)]
    flat = [cell for row in table for cell in row if cell % 2]
    squares = {number: number**2 for number in flat}
    unique = {cell % 3 for row in table for cell in row}
    transposed = [list(row) for row in zip(*table, strict=True)]
    halves = [half for number in flat if (half := number // 2) > 1]
    return [flat, squares, unique, transposed == table, halves, sum(number for number in unique)]


def insertion_sort(numbers: list[int]) -> list[int]:
    result = numbers[:]
    for place in range(1, len(result)):
        current, at = result[place], place - 1
        while at >= 0 and result[at] > current:
            result[at + 1] = result[at]
            at -= 1
        result[at + 1] = current
    return result


def quick_sort(numbers: list[int]) -> list[int]:
    def sort(items: list[int]) -> list[int]:
        if len(items) < 2:
            return items
        pivot, *rest = items
        return [*sort([n for n in rest if n < pivot]), pivot, *sort([n for n in rest if n >= pivot])]

    result = sort(numbers)
    assert result == sorted(numbers), "not sorted"
    return result


def binary_search(numbers: list[int], wanted: int) -> list[Any]:
    low, high, steps = 0, len(numbers) - 1, 0
    found = -1
    while low <= high:
        steps += 1
        middle = (low + high) // 2
        if numbers[middle] == wanted:
            found = middle
            break
        elif numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle - 1
    else:
        found = None
    place = bisect.bisect_left(numbers, wanted)
    bisect.insort(numbers, wanted)
    return [found, place, numbers]


def breadth_first(grid: list[str]) -> int:
    start, goal = (0, 0), (len(grid) - 1, len(grid[0]) - 1)
    queue, seen = deque([(start, 0)]), {start}
    while queue:
        (row, column), distance = queue.popleft()
        if (row, column) == goal:
            return distance
        for dr, dc in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            place = (row + dr, column + dc)
            inside = 0 <= place[0] < len(grid) and 0 <= place[1] < len(grid[0])
            if inside and grid[place[0]][place[1]] != "#" and place not in seen:
                seen.add(place)
                queue.append((place, distance + 1))
    return -1


def levenshtein(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for number, left in enumerate(first, 1):
        before, row[0] = row[0], number
        for place, right in enumerate(second, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (left != right))
    return row[-1]


def knapsack(weights: list[int], values: list[int], capacity: int) -> list[Any]:
    best = [[0] * (capacity + 1) for _ in range(len(weights) + 1)]
    for item, (weight, value) in enumerate(zip(weights, values, strict=True), 1):
        for room in range(capacity + 1):
            best[item][room] = best[item - 1][room]
            if weight <= room:
                best[item][room] = max(best[item][room], best[item - 1][room - weight] + value)
    taken, room = [], capacity
    for item in range(len(weights), 0, -1):
        if best[item][room] != best[item - 1][room]:
            taken.append(item - 1)
            room -= weights[item - 1]
    return [best[-1][-1], taken]


def topological(graph: dict[str, list[str]]) -> list[str]:
    state: dict[str, int] = {}
    order: list[str] = []

    def visit(node: str) -> None:
        if state.get(node) == 1:
            raise ValueError(f"cycle at {node}")
        if node in state:
            return
        state[node] = 1
        for neighbour in graph.get(node, []):
            visit(neighbour)
        state[node] = 2
        order.append(node)

    for node in graph:
        visit(node)
    return order[::-1]


def disjoint_sets(pairs: list[list[int]]) -> list[list[int]]:
    parent: dict[int, int] = {}

    def find(item: int) -> int:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for left, right in pairs:
        parent[find(left)] = find(right)
    groups: dict[int, list[int]] = {}
    for item in sorted(parent):
        groups.setdefault(find(item), []).append(item)
    return sorted(groups.values())


def bits(number: int) -> list[Any]:
    ones, shifted = 0, number
    while shifted:
        ones += shifted & 1
        shifted >>= 1
    powers = [1 << place for place in range(5)]
    mask = ~number & 0xFF
    return [ones, bin(number), powers, mask, number ^ mask, (2**70 + number) % 97, -number // 3]


def layered(overrides: dict[str, int]) -> list[Any]:
    defaults = {"a": 1, "b": 2}
    settings = ChainMap({}, overrides, defaults)
    settings["c"] = 3
    ordered = OrderedDict(sorted(settings.items()))
    ordered.move_to_end("a")
    for key in ordered:
        settings[key] *= 2
    return [dict(settings), list(ordered), settings.maps[0], defaults]


def sorted_records(records: list[dict[str, Any]]) -> list[Any]:
    by_age = itemgetter("age")
    oldest = max(records, key=by_age)
    records.sort(key=lambda record: (-record["age"], record["name"]))
    names = [*map(itemgetter("name"), records)]
    copies = copy.deepcopy(records)
    copies[0]["name"] = "changed"
    return [oldest["name"], names, records[0]["name"], copies[0], by_age(records[0])]


def json_walk(text: str) -> list[Any]:
    data = json.loads(text)
    paths: list[str] = []
    waiting: list[tuple[str, Any]] = [("$", data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend((f"{path}.{key}", inner) for key, inner in value.items())
        elif isinstance(value, list):
            waiting.extend((f"{path}[{place}]", inner) for place, inner in enumerate(value))
        else:
            paths.append(f"{path}={value}")
    return sorted(paths)


def mutation_during_loops(size: int) -> list[Any]:
    numbers, entries, said = list(range(size)), {n: n for n in range(size)}, []
    for number in numbers:
        if number % 2:
            numbers.remove(number)
    try:
        for key in entries:
            entries[key + size] = key
    except RuntimeError as error:
        said.append(str(error))
    letters = {"a"}
    for letter in letters:
        said.append(letter)
    waiting = deque([1, 2, 3])
    try:
        for item in waiting:
            waiting.append(item)
    except RuntimeError as error:
        said.append(str(error))
    return [numbers, len(entries), said]


def aliases(n: int) -> list[Any]:
    row = [0] * n
    grid = [row] * 2
    grid[0][0] = 5
    other = grid[1]
    other += [7]
    pair = (row, {"row": row})
    pair[1]["row"].append(8)
    return [grid, pair[0] is grid[1], row is other, len(row)]


def undefined(flag: bool) -> Any:
    if flag:
        value = 1
    try:
        return value
    except UnboundLocalError as error:
        said = type(error).__name__
    del flag
    return said


def exceptions_of_python(n: int) -> list[str]:
    said = []
    attempts = [
        lambda: [1][n],
        lambda: {}["key"],
        lambda: int("x"),
        lambda: 1 / 0,
        lambda: None.attribute,
        lambda: "a" + 1,
        lambda: next(iter([])),
    ]
    for attempt in attempts:
        try:
            attempt()
        except (IndexError, KeyError) as error:
            said.append(f"lookup {error}")
        except StopIteration:
            said.append("stop")
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def chained(n: int) -> list[Any]:
    try:
        try:
            [][n]
        except IndexError as error:
            raise KeyError("inner") from error
    except KeyError as error:
        cause, context = error.__cause__, error.__context__
        shown = [type(cause).__name__, cause is context, error.args]
    group = ExceptionGroup("several", [ValueError(1), TypeError("t")])
    kinds = [type(each).__name__ for each in group.exceptions]
    return [shown, kinds, str(group)]


PROGRAMS: dict[Any, list[tuple[Any, ...]]] = {
    caesar: [("Hello, World!", 3)],
    roman: [(1994,)],
    formatted: [("ann", 3), ("bob", 2.5)],
    run_length: [("aaabbc",)],
    vowels: [("Some Text",)],
    invoice: [(["1.10", "2.25", "0.99"],)],
    calendar: [("2024-02-27", 6)],
    matched: [([{"go": "north"}, {"go": "a", "b": 1}, ["move", 1, 2], ["x", 1], 0, None, 2.5, "s", []],)],
    matched_classes: [([2, 3],), ([2, 1],)],
    unpacking: [([1, 2, 3, 4],)],
    comprehensions: [(4,)],
    insertion_sort: [([3, 1, 2],)],
    quick_sort: [([5, 3, 8, 3, 1],)],
    binary_search: [([1, 3, 5, 7], 5), ([1, 3, 5, 7], 4)],
    breadth_first: [([".#.", "...", "#.."],), ([".#", "#."],)],
    levenshtein: [("kitten", "sit")],
    knapsack: [([2, 3], [30, 40], 5)],
    topological: [({"a": ["b", "c"], "b": ["c"], "c": []},), ({"a": ["b"], "b": ["a"]},)],
    disjoint_sets: [([[1, 2], [3, 4], [2, 5]],)],
    bits: [(202,)],
    layered: [({"b": 5},)],
    sorted_records: [([{"name": "a", "age": 3}, {"name": "b", "age": 5}],)],
    json_walk: [('{"a": [1, {"b": null}], "c": "x"}',)],
    mutation_during_loops: [(4,)],
    aliases: [(2,)],
    undefined: [(True,), (False,)],
    exceptions_of_python: [(3,)],
    chained: [(1,)],
}

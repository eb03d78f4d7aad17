"""Programs with functions: closures, decorators, caches, iterators, recursion, star parameters, exceptions."""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial, reduce, wraps
from itertools import accumulate, chain, count, cycle, groupby, islice, permutations, product, zip_longest
from typing import Any


def fibonacci_cached(n: int) -> list[Any]:
    calls = []

    @cache
    def fibonacci(number: int) -> int:
        calls.append(number)
        return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)

    first = fibonacci(n)
    again = fibonacci(n)
    larger = fibonacci(n + 2)
    return [first, again, larger, len(calls), fibonacci.cache_info().hits, fibonacci.__name__]


def bounded_cache(numbers: list[int]) -> list[Any]:
    seen = []

    @lru_cache(maxsize=2)
    def square(number: int, *, plus: int = 0) -> int:
        seen.append(number)
        return number**2 + plus

    results = []
    for number in numbers:
        results.append(square(number))
        results.append(square(number, plus=1))
    return [results, seen, list(square.cache_info())]


def decorated(n: int) -> list[Any]:
    log = []

    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            log.append((function.__name__, args, kwargs))
            return function(*args, **kwargs)

        return wrapper

    def repeated(times: int) -> Callable[..., Any]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def wrapper(*args: Any) -> list[Any]:
                return [function(*args) for _ in range(times)]

            return wrapper

        return decorate

    @logged
    @repeated(times=2)
    def add(left: int, right: int = 1) -> int:
        """Adds."""
        return left + right

    first = add(n)
    second = add(n, 5)
    return [first, second, log, add.__name__, add.__doc__, add.__wrapped__.__name__]


def counter_factory(start: int) -> list[Any]:
    def make() -> tuple[Callable[[], int], Callable[[], int]]:
        value = start

        def up() -> int:
            nonlocal value
            value += 1
            return value

        def down() -> int:
            nonlocal value
            value -= 1
            return value

        return up, down

    up, down = make()
    other, _ = make()
    up()
    up()
    down()
    return [up(), other(), up is other]


def _adder(by: int) -> Callable[[int], int]:
    def add(number: int) -> int:
        return number + by

    return add


def _memoised(function: Callable[[int], int]) -> Callable[[int], int]:
    known: dict[int, int] = {}

    @wraps(function)
    def wrapper(number: int) -> int:
        if number not in known:
            known[number] = function(number)
        return known[number]

    wrapper.known = known  # type: ignore[attr-defined]
    return wrapper


def closures_of_helpers(n: int) -> list[Any]:
    add = _adder(n)
    functions = [_adder(number) for number in range(3)]

    @_memoised
    def square(number: int) -> int:
        return number * number

    total = add(1)
    for function in functions:
        total = function(total)
    results = [square(3), square(3), square(4)]
    return [total, results, square.known, square.__name__]


def composed(n: int) -> list[Any]:
    compose = lambda *functions: reduce(lambda f, g: lambda x: f(g(x)), functions)
    increase, double = lambda x: x + 1, lambda x, by=2: x * by
    both = compose(increase, double, abs)
    power = partial(pow, 2)
    triple = partial(double, by=3)
    folded = reduce
    add = operator.add
    return [both(-n), power(n), triple(n), folded(add, range(n), 100), list(map(power, range(4)))]


def iterators_of_itertools(n: int) -> list[Any]:
    found: list[Any] = []
    for number in count(n, 3):
        if number > n + 7:
            break
        found.append(number)
    for colour, number in zip(cycle("rgb"), range(5), strict=False):
        found.append(f"{colour}{number}")
    for item in chain([1, 2], (3,), "ab"):
        found.append(item)
    for item in islice(count(), 2, 11, 4):
        found.append(item)
    for total in accumulate([1, 2, 3], operator.mul, initial=10):
        found.append(total)
    for pair in zip_longest("ab", [1, 2, 3], fillvalue="-"):
        found.append(pair)
    for pair in itertools.pairwise([1, 4, 9]):
        found.append(pair)
    return found


def combinatorics(items: str) -> list[Any]:
    found: list[Any] = []
    for order in permutations(items):
        found.append("".join(order))
    for pair in product(items, repeat=2):
        found.append("".join(pair))
    for pair in itertools.combinations(items, 2):
        found.append("".join(pair))
    for pair in itertools.combinations_with_replacement(items, 2):
        found.append("".join(pair))
    return found


def grouped(words: list[str]) -> list[Any]:
    found: list[Any] = []
    for letter, group in groupby(sorted(words), key=lambda word: word[0]):
        members = []
        for word in group:
            members.append(word)
            if len(members) == 2:
                break
        found.append((letter, members))
    return found


def filtering(numbers: list[int]) -> list[Any]:
    small, large = lambda number: number < 5, lambda number: number > 8
    found: list[Any] = []
    for number in itertools.takewhile(small, numbers):
        found.append(number)
    for number in itertools.dropwhile(small, numbers):
        found.append(-number)
    for number in itertools.filterfalse(large, filter(None, numbers)):
        found.append(number * 10)
    for number in itertools.starmap(pow, enumerate(numbers)):
        found.append(number)
    for number in itertools.compress(numbers, cycle([1, 0])):
        found.append(str(number))
    for item in itertools.repeat("x", 2):
        found.append(item)
    return found


def tee_and_iter(numbers: list[int]) -> list[Any]:
    first, second = itertools.tee(iter(numbers))
    found = [next(first), next(first)]
    found.append(next(second))
    rest = iter(numbers)
    for pair in zip(rest, rest, strict=False):
        found.append(pair)
    source = iter(numbers)
    head = next(source)
    stop = iter(lambda: next(source), numbers[-1])
    for number in stop:
        found.append(number + head)
    return [found, list(first), list(second)]


def maximum(*numbers: float) -> float:
    best = numbers[0]
    for number in numbers[1:]:
        if number > best:
            best = number
    return best


def html(tag: str, *children: str, sep: str = " ", **attributes: str) -> str:
    shown = "".join(f' {name}="{value}"' for name, value in sorted(attributes.items()))
    inner = sep.join(children)
    return f"<{tag}{shown}>{inner}</{tag}>"


def options(**settings: int) -> list[Any]:
    total = 0
    for name, value in settings.items():
        total += value
    settings["total"] = total
    return [settings, total]


def average(numbers: Iterable[float]) -> float:
    total, number = 0, 0
    for number, value in enumerate(numbers, 1):
        total += value
    if not number:
        raise ZeroDivisionError("no numbers")
    return total / number if total % number else total // number


def half(value: float) -> float:
    result = value / 2
    return int(result) if result == int(result) else result


def merged(first: Mapping[str, int], second: Mapping[str, int], keys: Sequence[str]) -> dict[str, int]:
    result = dict(first)
    for key, value in second.items():
        result[key] = result.get(key, 0) + value
    return {key: result[key] for key in keys if key in result}


def hanoi(disks: int) -> list[Any]:
    moves: list[tuple[str, str]] = []

    def move(count: int, source: str, target: str, spare: str) -> None:
        if count:
            move(count - 1, source, spare, target)
            moves.append((source, target))
            move(count - 1, spare, target, source)

    move(disks, "A", "C", "B")
    return [len(moves), moves[:3]]


def primes(limit: int) -> list[int]:
    def sieve() -> Iterator[int]:
        marked = [False] * (limit + 1)
        for number in range(2, limit + 1):
            if not marked[number]:
                yield number
                for multiple in range(number * number, limit + 1, number):
                    marked[multiple] = True

    found = list(sieve())
    total = sum(prime for prime in sieve() if prime % 2)
    *_, last = found
    return [*found, total, last]


def collatz(n: int) -> list[int]:
    path = [n]
    while (n := n // 2 if n % 2 == 0 else 3 * n + 1) != 1:
        path.append(n)
    return path


def n_queens(size: int) -> list[list[int]]:
    found: list[list[int]] = []

    def place(row: int, columns: list[int]) -> None:
        if row == size:
            found.append(columns[:])
            return
        for column in range(size):
            if all(column != other and abs(column - other) != row - at for at, other in enumerate(columns)):
                columns.append(column)
                place(row + 1, columns)
                columns.pop()

    place(0, [])
    return found


class ParseError(ValueError):
    def __init__(self, text: str, position: int) -> None:
        super().__init__(f"unexpected {text[position]!r} at {position}")
        self.position = position


def calculator(text: str) -> Any:
    tokens = text.split()
    stack: list[float] = []
    operators = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    for position, token in enumerate(tokens):
        if token in operators:
            right, left = stack.pop(), stack.pop()
            stack.append(operators[token](left, right))
        else:
            try:
                stack.append(float(token) if "." in token else int(token))
            except ValueError as error:
                raise ParseError(text, text.index(token)) from error
    [result] = stack
    return result


def retries(failures: int) -> list[Any]:
    attempts, log = 0, []
    while True:
        try:
            attempts += 1
            if attempts <= failures:
                raise ConnectionError(f"attempt {attempts}")
        except ConnectionError as error:
            log.append(str(error))
            if attempts == 3:
                raise RuntimeError("gave up") from error
        else:
            log.append("worked")
            break
        finally:
            log.append("tried")
    return log


def cleaning_up(fails: bool) -> list[str]:
    log = []

    @contextlib.contextmanager
    def opened(name: str) -> Iterator[str]:
        log.append(f"open {name}")
        try:
            yield name.upper()
        finally:
            log.append(f"close {name}")

    def use(name: str) -> str:
        with opened(name) as found:
            if fails:
                raise LookupError(found)
            return found

    with contextlib.suppress(LookupError):
        log.append(use("a"))
    log.append("end")
    return log


def nested_finally(n: int) -> list[Any]:
    log: list[Any] = []
    for number in range(n):
        try:
            try:
                if number == 1:
                    continue
                if number == 3:
                    break
                log.append(number)
            finally:
                log.append(-number)
        except ZeroDivisionError:
            log.append("never")
        else:
            log.append("else")
    else:
        log.append("not broken")
    return log


@functools.singledispatch
def _shown(value: Any) -> str:
    return "?"


@_shown.register(int)
def _(value: int) -> str:
    return f"int {value}"


@_shown.register(list)
def _(value: list[Any]) -> str:
    return f"list of {len(value)}"


def dispatching(values: list[Any]) -> list[str]:
    show = _shown
    found = []
    for value in values:
        found.append(show(value))
    return found


def default_arguments(n: int) -> list[Any]:
    functions = [lambda x, by=number: x * by for number in range(3)]

    def collect(item: int, into: list[int] = []) -> list[int]:
        into.append(item)
        return into

    collect(1)
    collect(2)
    return [[function(n) for function in functions], collect(3), [lambda: number for number in range(2)][0]()]


def pipelines(words: list[str]) -> list[Any]:
    lengths = map(len, words)
    longer = filter(lambda length: length > 2, lengths)
    first = next(longer)
    numbered = enumerate(reversed(words), start=first)
    second = next(numbered)
    rest = dict(numbered)
    return [first, second, rest, list(longer)]


def word_counts(text: str) -> list[Any]:
    counts: Counter[str] = Counter()
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(text.lower().split()):
        counts[word] += 1
        places[word].append(place)
    best, number = counts.most_common(1)[0]
    return [best, number, dict(places), counts["none"], sum(counts.values())]


PROGRAMS: dict[Any, list[tuple[Any, ...]]] = {
    fibonacci_cached: [(8,)],
    bounded_cache: [([1, 2, 1, 3, 1],)],
    decorated: [(3,)],
    counter_factory: [(5,)],
    closures_of_helpers: [(2,)],
    composed: [(4,)],
    iterators_of_itertools: [(2,)],
    combinatorics: [("abc",)],
    grouped: [(["apple", "avocado", "ant", "bee", "cat"],)],
    filtering: [([1, 3, 9, 2, 0, 8],)],
    tee_and_iter: [([1, 2, 3, 4, 5],)],
    maximum: [(1, 3.5, 2), (4,), ()],
    html: [("p", "a", "b"), ("a", "x", "y")],
    options: [()],
    average: [([1, 2, 3],), ([1.5, 2],), ([],)],
    half: [(12,), (12.0,), (5,)],
    merged: [({"a": 1, "b": 2}, {"b": 3}, ["b", "c"])],
    hanoi: [(4,)],
    primes: [(20,)],
    collatz: [(7,)],
    n_queens: [(4,)],
    calculator: [("3 4 + 2 *",), ("1 2 /",), ("1 x +",), ("+",)],
    retries: [(2,), (5,)],
    cleaning_up: [(True,), (False,)],
    nested_finally: [(5,), (2,)],
    dispatching: [([1, [1, 2], "a"],)],
    default_arguments: [(5,)],
    pipelines: [(["a", "bcd", "ef", "ghij"],)],
    word_counts: [("the cat and the dog and the bird",)],
}

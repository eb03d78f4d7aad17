"""Workflows whose loops enclose awaits: what is iterated, what changes meanwhile, how a loop is left."""

# ruff: noqa: B905, C901, PERF401, PLC0208, PLR0912, PLW0120 - odd on purpose

from __future__ import annotations

from tests.python.tasks import echo


async def while_loop(x):
    n, seen = 0, []
    while await echo(n) < x:
        n += 1
        if n == 2:
            continue
        seen.append(n)
    else:
        seen.append("else")
    while True:
        n -= 1
        if await echo(n) <= 0:
            break
        seen.append(-n)
    else:
        seen.append("never")
    return seen


async def for_else(x):
    found = []
    for n in range(x):
        await echo(n)
        if n == 99:
            break
    else:
        found.append("done")
    for n in range(10):
        if await echo(n) == 2:
            break
    else:
        found.append("never")
    return [found, n]


async def nested_loops(x):
    found = []
    for i in range(3):
        for j in range(3):
            if j == await echo(1):
                continue
            if i == 2:
                break
            found.append((i, j))
        else:
            found.append("inner done")
            continue
        found.append("broke")
        break
    return found


async def native_loop_with_return(x):
    await echo(1)
    for n in range(100):
        if n * n > x:
            return n
    return -1


async def native_loop_without_match(x):
    await echo(1)
    for n in range(2):
        if n > 50:
            return "never"
    else:
        return "else"


async def native_block_returns_none(x):
    await echo(1)
    if x:
        while True:
            return None
    return 5


async def iteration_of_every_kind(x):
    found = []
    for item in [1, 2]:
        found.append(await echo(item))
    for item in (3, 4):
        found.append(await echo(item))
    for character in "aé":
        found.append(await echo(character))
    for index, item in enumerate(["a", "b"], 5):
        found.append([index, await echo(item)])
    for left, right in zip([1, 2, 3], "xy"):
        found.append([left, await echo(right)])
    for item in reversed([1, 2, 3]):
        found.append(await echo(item))
    for item in reversed((1, 2)):
        found.append(await echo(item))
    for item in range(10, 0, -4):
        found.append(await echo(item))
    for key in {"k": 1, "l": 2}:
        found.append(await echo(key))
    for key, value in {"k": 1, "l": 2}.items():
        found.append([key, await echo(value)])
    for value in {"k": 1, "l": 2}.values():
        found.append(await echo(value))
    for key in reversed({"k": 1, "l": 2}):
        found.append(await echo(key))
    for number in sorted({3, 1, 2}):
        found.append(await echo(number))
    total = 0
    for number in {5, 6, 7}:
        total += await echo(number)
    for item in map(str, [1, 2]):
        found.append(await echo(item))
    for item in filter(None, [0, 1, 2]):
        found.append(await echo(item))
    for byte in b"ab":
        found.append(await echo(byte))
    for index, (left, right) in enumerate(zip(range(2), reversed([5, 6]))):
        found.append(await echo([index, left, right]))
    return [found, total]


async def explicit_iterator(x):
    numbers = iter([1, 2, 3, 4])
    first = next(numbers)
    await echo(0)
    rest = []
    for number in numbers:
        rest.append(await echo(number))
        if number == 2:
            break
    await echo(0)
    return [first, rest, list(numbers), next(numbers, "end")]


async def list_grows_while_iterated(x):
    items = [1]
    for item in items:
        if await echo(item) < 4:
            items.append(item + 1)
    return items


async def iterators_of_dicts_and_sets(x):
    data, numbers = {"a": 1, "b": 2, "c": 3}, {1, 2, 3}
    keys, values, items = iter(data), iter(data.values()), iter(data.items())
    members, done, empty = iter(numbers), iter({"z": 1}), iter({5})
    found = [next(keys), next(values), next(items), len(list(done)), len(list(empty))]
    first = next(members)
    await echo(1)
    found += [next(keys), next(values), next(items), list(done), list(empty)]
    await echo(2)
    return [found, list(keys), list(values), list(items), sorted([first, *members]), next(keys, "end")]


async def dict_changed_before_the_await(x):
    data = {"a": 1, "b": 2}
    keys = iter(data)
    next(keys)
    data["c"] = 3
    await echo(1)
    return next(keys)


async def set_changed_before_the_await(x):
    numbers = {1, 2}
    members = iter(numbers)
    next(members)
    numbers.add(3)
    await echo(1)
    return next(members)


async def dict_changed_after_the_await(x):
    data = {"a": 1, "b": 2}
    keys = iter(data)
    next(keys)
    await echo(1)
    del data["a"]
    return next(keys)


async def set_changed_after_the_await(x):
    numbers = {1, 2}
    members = iter(numbers)
    next(members)
    await echo(1)
    numbers.add(3)
    return next(members)


async def values_change_while_iterated(x):
    data, seen = {"a": 1, "b": 2, "c": 3}, []
    for key, value in data.items():
        seen.append([key, await echo(value)])
        data["c"] = 30
    return seen


async def dict_changes_size_while_iterated(x):
    data = {"a": 1, "b": 2}
    for key in data:
        await echo(key)
        data["c"] = 3
    return "never"


async def set_changes_size_while_iterated(x):
    data = {1, 2, 3}
    for key in data:
        await echo(key)
        data.add(key + 100)
    return "never"


CASES = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__ and callable(value) and not isinstance(value, type)
]

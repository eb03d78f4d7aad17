"""Runs one call of the library, an operator or an instruction with sizes that were chosen to hurt, and measures it.

A row's sources are expressions over the values of `values`. Each is run four ways: on tiny values, where it must
succeed; on values near the largest there may be; again and again, until the work of a turn is used up; and again and
again while its results are kept, until the memory is.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from dalsegno.lang import ExpressionFailed, Limits, Machine, RootNames, compile, compile_expression
from tests.peak_memory import peak_kib, reset_peak

NOW = 1_700_000_000.0
LIMITS = Limits()
REPEATED = Limits(instructions=20_000)
KEPT = Limits(instructions=8_000, allocated_bytes=400_000)

ONCE_SECONDS = 3.0
"""One call within the default limits, on a machine that is busy with other things; most take milliseconds."""
REPEATED_SECONDS = 0.6
"""All that `REPEATED` allows: 30 µs for each unit of work, where 0.5 µs are usual."""
ONCE_KIB = 4 * LIMITS.allocated_bytes // 1024
"""Resident memory of one call."""
KEPT_BYTES = 2 * KEPT.allocated_bytes + 600_000
"""Memory of Python objects that are kept under `KEPT`."""

TINY, MEDIUM, LARGE = 60, 60_000, 15_000_000

NAMED = ["t", "u", "w", "b", "k", "p", "l", "s", "o", "e", "g", "d", "j"]
PRELUDE = "let i = 0; " + " ".join([f"let {name} = Inputs.{name};" for name in NAMED]) + " "


def values(size: int) -> dict[str, Any]:
    """What sources refer to, of about that size in characters or bytes."""
    items = min(size, 80_000) // 4
    half = size // 2
    shared: Any = ["leaf"]
    for _ in range(min(items, 40)):
        shared = [shared, shared]
    deep: Any = 1
    for _ in range(min(items, 150)):
        deep = [deep]
    text = "a" * size
    return {
        "t": text,
        "u": "".join(["a" * half, "a" * (size - half)]),  # equal to t, and another object
        "w": "😀" * (size // 4),
        "b": " " * size,
        "k": "b" + "a" * half,  # not in t, and as bad to search for as possible
        "p": "a" * half + "b" + "a" * (half - 1),
        "l": [float(number % 1000) for number in range(items, 0, -1)],
        "s": [text] * min(items, 80),
        "o": {f"key {number}": number for number in range(items // 4)},
        "e": [[f"key {number}", number] for number in range(items // 4)],
        "g": shared,
        "d": deep,
        "j": "[" + "{},[]," * (size // 6) + "1]",
    }


class Cost(NamedTuple):
    """What running a source took, and how it ended."""

    seconds: float
    peak: int
    ending: str


def run_script(source: str, inputs: dict[str, Any], limits: Limits) -> str:
    machine = Machine.start(compile(source), inputs, {"executionId": "e-1"}, now=NOW, limits=limits)
    if machine.error is None:
        return machine.status
    assert machine.error.code != "INTERNAL_ERROR", (source, machine.error)
    return machine.error.code


def run_expression(source: str, inputs: dict[str, Any], limits: Limits, *, condition: bool) -> str:
    """The values are members of a node's output; ``condition`` selects the rules of conditions."""
    compiled = compile_expression(source, names=NAMES, condition=condition)
    try:
        compiled.evaluate({"n": inputs}.__getitem__, now=NOW, limits=limits)
    except ExpressionFailed as failure:
        return failure.code
    return "completed"


NAMES = RootNames.of(["n"])


@contextmanager
def only_its_own_time() -> Iterator[Callable[[], float]]:
    """Seconds of this thread, without those that the collector takes for the garbage of other tests. What lives now
    stays out of later collections: after ``gc.unfreeze`` each of them would look at all tests that were collected."""
    gc.collect()
    gc.freeze()
    started = time.thread_time()
    yield lambda: time.thread_time() - started


def once(source: str, inputs: dict[str, Any], limits: Limits = LIMITS) -> Cost:
    program = source if source.endswith(";") else f"let x = {source};"
    before = reset_peak()
    with only_its_own_time() as seconds:
        ending = run_script(f"{PRELUDE}{program} return 1", inputs, limits)
    return Cost(seconds(), peak_kib() - before, ending)


def again_and_again(source: str, inputs: dict[str, Any]) -> Cost:
    program = source if source.endswith(";") else f"x = {source};"
    with only_its_own_time() as seconds:
        ending = run_script(
            f"{PRELUDE}let x = null; while (true) {{ i = i + 1; {program} }}", inputs, REPEATED
        )
    return Cost(seconds(), 0, ending)


def kept(source: str, inputs: dict[str, Any]) -> Cost:
    program = source if source.endswith(";") else f"kept.push({source});"
    script = f"{PRELUDE}let kept = []; let x = null; while (true) {{ i = i + 1; {program} }}"
    tracemalloc.start()
    try:
        with only_its_own_time() as seconds:
            ending = run_script(script, inputs, KEPT)
        return Cost(seconds(), tracemalloc.get_traced_memory()[1], ending)
    finally:
        tracemalloc.stop()


def rows_of(table: dict[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    for name, sources in table.items():
        for source in sources:
            yield name, source

"""The listing workload: first pages of every filter and of pairs of filters, over a store of finished executions."""

from __future__ import annotations

import asyncio
import time

from dalsegno.bench import seed
from dalsegno.bench.report import Meter, Report, percentile, reported
from dalsegno.bench.seed import EPOCH, PER_CUSTOMER, SPAN, name_of, workflow_of
from dalsegno.bench.workloads import Progress
from dalsegno.errors import UsageError
from dalsegno.ports.archive import Archive, ExecutionFilter, Place
from dalsegno.wiring import is_postgres, open_stack

PAGE = 50
RETAINED = 2000
"""Executions that retention removes while it is measured."""

COMMON, RARE = workflow_of(0), workflow_of(199)
PROD = (("env", "prod"),)


def filters(executions: int) -> dict[str, ExecutionFilter]:
    """Return every filter alone, with many and with few matches, and the common pairs."""
    end = EPOCH + SPAN
    customer = (("customer", f"c-{executions // PER_CUSTOMER // 2}"),)
    some = name_of(executions // 2)
    where = ExecutionFilter
    singles = {
        "everything": where(),
        "workflow, common": where(COMMON),
        "workflow, rare": where(RARE),
        "workflow, absent": where("nobody"),
        "state COMPLETED": where(states=("COMPLETED",)),
        "state FAILED": where(states=("FAILED",)),
        "state RUNNING (none)": where(states=("RUNNING",)),
        "states FAILED, CANCELLED": where(states=("FAILED", "CANCELLED")),
        "kind graph": where(kinds=("graph",)),
        "kind task": where(kinds=("task",)),
        "kind schedule (none)": where(kinds=("schedule",)),
        "tag, common": where(tags=PROD),
        "tag, rare": where(tags=customer),
        "tag, absent": where(tags=(("env", "nowhere"),)),
        "parent": where(parent=some),
        "relation": where(relations=("retry",)),
        "created, a day long ago": where(
            created_since=EPOCH + SPAN / 3, created_until=EPOCH + SPAN / 3 + 86_400
        ),
        "created, before all": where(created_until=EPOCH),
        "ended, the last hour": where(ended_since=end - 3600),
        "ended, an hour long ago": where(ended_since=EPOCH + SPAN / 3, ended_until=EPOCH + SPAN / 3 + 3600),
        "ended, the last month": where(ended_since=end - 30 * 86_400),
        "ended, before all": where(ended_until=EPOCH),
        "text: an id": where(text=some),
        "text: beginning of an id": where(text=some[:12]),
        "text: a key": where(text="key-1000"),
        "text: a tag's value": where(text=customer[0][1]),
        "text: part of many names": where(text="workflow"),
        "text: part of one name": where(text="workflow-123"),
        "text: a word of many errors": where(text="timeout"),
        "text: two words": where(text="w007 w070"),
        "text: nothing": where(text="nothing at all"),
    }
    pairs = {
        "workflow, rare + FAILED": where(RARE, ("FAILED",)),
        "workflow, common + FAILED": where(COMMON, ("FAILED",)),
        "workflow, rare + kind": where(RARE, kinds=("python",)),
        "workflow + created": where(COMMON, created_until=EPOCH + SPAN / 2),
        "workflow + ended": where(COMMON, ended_since=end - 86_400),
        "workflow, rare + tag, common": where(RARE, tags=PROD),
        "workflow, common + tag, rare": where(COMMON, tags=customer),
        "tag, common + FAILED": where(states=("FAILED",), tags=PROD),
        "tag, rare + FAILED": where(states=("FAILED",), tags=customer),
        "two tags": where(tags=(*customer, *PROD)),
        "kind + FAILED": where(states=("FAILED",), kinds=("task",)),
        "FAILED + ended": where(states=("FAILED",), ended_since=end - 86_400),
        "FAILED + created": where(states=("FAILED",), created_until=EPOCH + SPAN / 2),
        "parent + FAILED": where(states=("FAILED",), parent=some),
        "relation + FAILED": where(states=("FAILED",), relations=("retry",)),
        "relation + workflow": where(COMMON, relations=("retry",)),
        "text: a word + workflow": where(RARE, text="timeout"),
        "text: many names + FAILED": where(states=("FAILED",), text="workflow"),
        "text: many names + tag, rare": where(tags=customer, text="workflow"),
    }
    return singles | pairs


async def listing(url: str, progress: Progress, *, executions: int = 1_000_000, rounds: int = 100) -> Report:
    """Measure p50 and p99 over all filters. The details have the figures of each filter."""
    stack = await open_stack(url)
    await stack.close()
    await _seed(url, executions, progress)
    began = time.perf_counter()
    stack = await open_stack(url)
    opened = (time.perf_counter() - began) * 1000
    with Meter() as meter:
        pages = await _measure_pages(stack.archive, executions, rounds, progress)
    removal = await _measure_retention(stack.archive)
    await stack.close()
    times = [each for found in pages.values() for each in found]
    worst = max(pages, key=lambda name: percentile(pages[name], 0.99) or 0)
    figures = {
        "executions": executions,
        "open_ms": opened,
        "cpu_ms_per_page": meter.cpu * 1000 / len(times),
        "worst_filter_p99_ms": percentile(pages[worst], 0.99) or 0.0,
        **removal,
        **{f"{name}, p99 ms": percentile(found, 0.99) or 0.0 for name, found in pages.items()},
    }
    return await reported("listing", url, len(times), times, meter, figures)


async def _seed(url: str, executions: int, progress: Progress) -> None:
    """Fill an empty store in bulk."""
    with Meter() as seeding:
        if is_postgres(url):
            if await seed.known_in_postgres(url):
                return
            await seed.seed_postgres(url, executions, progress)
        elif url.startswith("sqlite:"):
            if seed.known_in_sqlite(url):
                return
            await asyncio.to_thread(seed.seed_sqlite, url, executions, progress)
        else:
            raise UsageError("listing is measured on a store that is seeded in bulk: SQLite or PostgreSQL")
    progress(f"{executions:,} executions seeded in {seeding.seconds:.0f} s")


async def _measure_pages(
    archive: Archive, executions: int, rounds: int, progress: Progress
) -> dict[str, list[float]]:
    """Measure in rounds over all filters, so that no filter finds its own pages cached; then a page from the middle."""
    wanted = filters(executions)
    found: dict[str, list[float]] = {name: [] for name in (*wanted, "a page from the middle")}
    middle = Place(EPOCH + SPAN / 2, "")
    for number in range(rounds):
        for name, where in wanted.items():
            found[name].append(await _time(archive, where, None))
        found["a page from the middle"].append(await _time(archive, ExecutionFilter(), middle))
        if number == 0:
            progress(f"first round: worst page {max(times[0] for times in found.values()):.1f} ms")
    return found


async def _time(archive: Archive, where: ExecutionFilter, before: Place | None) -> float:
    began = time.perf_counter()
    await archive.executions(where, before, PAGE)
    return (time.perf_counter() - began) * 1000


async def _measure_retention(archive: Archive) -> dict[str, float]:
    """Remove the oldest executions in chunks, as the reconciler does."""
    chunks: list[float] = []
    removed = 0
    began = time.perf_counter()
    while removed < RETAINED:
        start = time.perf_counter()
        went = await archive.remove_ended(EPOCH + SPAN, 200, ("COMPLETED", "FAILED"))
        chunks.append((time.perf_counter() - start) * 1000)
        if not went:
            break
        removed += went
    seconds = time.perf_counter() - began
    return {"removed_per_s": removed / seconds, "removal_chunk_p99_ms": percentile(chunks, 0.99) or 0.0}

"""Many seeds: in this process, or spread over several."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from msgspec import Struct

from dalsegno.testing.simulation.kinds import KINDS, KindName
from dalsegno.testing.simulation.report import describe
from dalsegno.testing.simulation.shrink import shrink_with

CHUNK = 20


class Tally(Struct):
    """What some seeds came to."""

    seeds: int = 0
    confluent: int = 0
    foretold: int = 0
    faults: int = 0
    steps: int = 0
    failures: list[str] = []
    """Printed reports of the seeds that failed."""

    def add(self, other: Tally) -> None:
        self.seeds += other.seeds
        self.confluent += other.confluent
        self.foretold += other.foretold
        self.faults += other.faults
        self.steps += other.steps
        self.failures = [*self.failures, *other.failures]


def run_seed(seed: int, *, shrink_seconds: float = 20.0, kind: KindName = "graphs") -> Tally:
    """One seed; if it fails, its report tells the shortest form that was found in the given time."""
    craft = KINDS[kind]
    case = craft.draw(seed)
    verdict = craft.judge(case)
    tally = Tally(1, verdict.confluent, verdict.foretold, len(verdict.struck), verdict.steps)
    if verdict.findings:
        smaller, finding = shrink_with(case, verdict, shrink_seconds, craft.judge, craft.simpler)
        tally.failures = [describe(smaller, finding, seed=seed)]
    return tally


def run_chunk(seeds: range, shrink_seconds: float = 20.0, kind: KindName = "graphs") -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(run_seed(seed, shrink_seconds=shrink_seconds, kind=kind))
    return tally


def run_seeds(
    seeds: range, jobs: int = 1, shrink_seconds: float = 20.0, kind: KindName = "graphs"
) -> Iterator[Tally]:
    """Tallies of chunks, as they are done; together they cover all seeds."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield run_chunk(chunk, shrink_seconds, kind)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_chunk, chunks, repeat(shrink_seconds), repeat(kind))

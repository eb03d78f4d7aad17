"""What is looked at every few seconds, and what is made of it at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Any

from dalsegno.bench.report import percentile

HOT = ("flight", "token", "scope", "barrier", "slot", "machine", "inbox", "mailbox", "outbox")
"""What is in flight: small tables in which every step writes."""
HISTORY = ("execution", "event", "output")
"""What is kept until the retention time is over."""

# A partition counts for its parent. Sizes are those of tables with their indexes and large values.
TABLES = """
SELECT coalesce(parent.relname, child.relname) AS name, sum(pg_total_relation_size(child.oid))::float8 / 1e6 AS mb,
       sum(stat.n_dead_tup)::bigint AS dead, sum(stat.n_live_tup)::bigint AS live
FROM pg_class AS child
JOIN pg_stat_user_tables AS stat ON stat.relid = child.oid
LEFT JOIN pg_inherits ON inhrelid = child.oid
LEFT JOIN pg_class AS parent ON parent.oid = inhparent
WHERE stat.schemaname = 'dalsegno' AND child.relkind = 'r'
GROUP BY 1
"""


@dataclass(slots=True)
class Sample:
    at: float
    """Seconds since the steady load began."""
    rss: dict[str, float]
    """MB by process."""
    tables: dict[str, dict[str, float]]
    """By table: ``mb``, ``dead`` and ``live`` rows."""
    ended: int
    """Executions since the last sample; ``steps`` likewise."""
    steps: int
    seconds: float
    load: float
    """Of the machine: a soak that shares it with others judges them, too."""
    latencies: list[float] = field(default_factory=list)
    depths: dict[str, float] = field(default_factory=dict)
    """What waits in each queue and stream of the brokers."""
    speed: float = 0.0
    """Steps per second that the bare loop made on the store at the last look; 0 if nobody looked."""

    def size(self, tables: Sequence[str]) -> float:
        return sum(self.tables[name]["mb"] for name in tables if name in self.tables)

    def dead(self, tables: Sequence[str]) -> float:
        return sum(self.tables[name]["dead"] for name in tables if name in self.tables)


def thirds(samples: Sequence[Sample]) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """The second and the last: the first is for caches to fill and tables to reach their size."""
    third = len(samples) // 3
    return samples[third : 2 * third], samples[2 * third :]


def latency(samples: Sequence[Sample], share: float) -> float:
    return percentile([each for sample in samples for each in sample.latencies], share) or 0.0


def middle(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    return percentile([value(sample) for sample in samples], 0.5) or 0.0


def largest(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    return max((value(sample) for sample in samples), default=0.0)


def growth(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """How much a line laid through the samples rises from the first to the last. A peak here and there does not lift it
    much; what leaks a little all the time does."""
    if len(samples) < 2:
        return 0.0
    times = [sample.at for sample in samples]
    slope = linear_regression(times, [value(sample) for sample in samples]).slope
    return slope * (times[-1] - times[0])


def summary(samples: Sequence[Sample], peak: float | None, rate: float) -> dict[str, Any]:
    """``peak``: None if none was looked for."""
    before, after = thirds(samples)
    judged = [*before, *after]
    names = sorted(samples[-1].rss) if samples else []
    queues = sorted(samples[-1].depths) if samples else []
    lasted = sum(sample.seconds for sample in samples) or 1.0
    return {
        "peak_executions_per_s": peak,
        "asked_executions_per_s": rate,
        "executions_per_s": sum(sample.ended for sample in samples) / lasted,
        "steps_per_s": sum(sample.steps for sample in samples) / lasted,
        "p50_ms": [latency(each, 0.5) for each in (before, after)],
        "p99_ms": [latency(each, 0.99) for each in (before, after)],
        "rss_mb": {name: [middle(each, rss_of(name)) for each in (before, after)] for name in names},
        "rss_growth_mb": {name: growth(judged, rss_of(name)) for name in names},
        "store_steps_per_s": [middle(each, lambda sample: sample.speed) for each in (before, after)],
        "machine_load": [middle(each, lambda sample: sample.load) for each in (before, after)],
        "hot_mb": [largest(each, lambda sample: sample.size(HOT)) for each in (before, after)],
        "hot_dead_rows": [largest(each, lambda sample: sample.dead(HOT)) for each in (before, after)],
        "history_mb": [largest(each, lambda sample: sample.size(HISTORY)) for each in (before, after)],
        "depths": {name: [middle(each, depth_of(name)) for each in (before, after)] for name in queues},
        "depth_growth": {name: growth(judged, depth_of(name)) for name in queues},
    }


def rss_of(process: str) -> Callable[[Sample], float]:
    return lambda sample: sample.rss.get(process, 0.0)


def depth_of(queue: str) -> Callable[[Sample], float]:
    return lambda sample: sample.depths.get(queue, 0.0)

"""Whether half an hour went well: nothing is lost, and nothing grows from the second third to the last.

A machine that became slower, as the bare loop on the same store shows, is not taken for a fault of the system:
latencies are compared, and a second look for the peak is judged, by what the store alone could do at that time.

The limits are two to five times what a good half hour showed over its last two thirds: the memory of one worker rose by
2.6 MB of 103, that of the other processes by 0.3 MB at most; the largest size of history by 2 %, that of the tables in
flight and the number of their dead rows by nothing; the p99 by 6 %, while medians of five minutes differed by 13 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

RSS_SHARE, RSS_MB = 0.05, 5.0
"""Memory may rise by this share or by so many MB over the last two thirds, whichever is more."""
SERVER_SHARE, SERVER_MB = 0.10, 20.0
"""Of Redis and RabbitMQ, which give memory back late and in large pieces."""
DEPTH_SHARE, DEPTH = 0.25, 50.0
"""What waits in a queue or a stream may rise by this share of its middle or by so many over the last two thirds."""
SIZE_SHARE, SIZE_MB = 1.10, 8.0
"""Tables likewise, from one third to the other: vacuum comes when it comes, so sizes go up and down."""
DEAD_SHARE, DEAD_ROWS = 1.25, 50_000
LATENCY_SHARE = 1.3
PEAK_SHARE = 0.6
"""Least part of the first peak that the last one may be, each by the speed of the store at its time."""
SERVERS = ("Redis", "RabbitMQ")
KEPT_UP = 0.95
"""Share of the asked rate that must have ended."""


def complaints(found: dict[str, Any]) -> Iterator[str]:
    """``found`` is a summary of samples with what the generator said at its end."""
    yield from losses(found)
    if found["executions_per_s"] < KEPT_UP * found["asked_executions_per_s"]:
        yield (
            f"{found['executions_per_s']:.1f} executions/s ended of {found['asked_executions_per_s']:.1f} that were"
            " started: the system did not keep up"
        )
    if found["inexact"]:
        yield f"{len(found['inexact'])} inconsistencies in the newest histories, such as: {found['inexact'][0]}"
    for name, (before, after) in found["rss_mb"].items():
        more = found["rss_growth_mb"][name]
        share, least = (SERVER_SHARE, SERVER_MB) if name in SERVERS else (RSS_SHARE, RSS_MB)
        if more > max(before * share, least):
            yield (
                f"the memory of {name} rose by {more:.1f} MB over the last two thirds, from {before:.0f} to"
                f" {after:.0f} MB in the middle of each"
            )
    for what, share, more in (
        ("hot_mb", SIZE_SHARE, SIZE_MB),
        ("history_mb", SIZE_SHARE, SIZE_MB),
        ("hot_dead_rows", DEAD_SHARE, DEAD_ROWS),
    ):
        before, after = found[what]
        if after > max(before * share, before + more):
            yield f"{what} grew from {before:,.0f} to {after:,.0f}"
    before, after = found["p99_ms"]
    if after > before * LATENCY_SHARE * _slower(found["store_steps_per_s"]):
        yield f"the p99 of start to end grew from {before:.0f} to {after:.0f} ms"
    yield from _lower_peak(found.get("peaks", ()))
    for name, (before, after) in found["depths"].items():
        more = found["depth_growth"][name]
        if more > max(before * DEPTH_SHARE, DEPTH):
            yield (
                f"{name} grew by {more:,.0f} over the last two thirds, from {before:,.0f} to {after:,.0f} in the"
                " middle of each"
            )


def _slower(speeds: Sequence[float]) -> float:
    """Return how many times slower the store alone became; 1 if it did not, or nobody looked."""
    before, after = speeds
    return max(before / after, 1.0) if before and after else 1.0


def _lower_peak(peaks: Sequence[Sequence[float]]) -> Iterator[str]:
    """``peaks``: executions per second, steps per second of the bare loop, and their ratio, first and last."""
    if len(peaks) < 2:
        return
    (first, speed, per_step), (last, last_speed, last_per_step) = peaks
    if last_per_step < PEAK_SHARE * per_step:
        yield (
            f"the peak fell from {first:.0f} to {last:.0f} executions/s, while the store alone made {speed:,.0f} and"
            f" {last_speed:,.0f} steps/s"
        )


def losses(found: dict[str, Any]) -> Iterator[str]:
    """What is wrong however short the soak was."""
    if found["failed"]:
        yield f"{found['failed']} of {found['started']} executions did not end well: {found['failures']}"
    if found["deadlocks"]:
        yield f"PostgreSQL broke {found['deadlocks']} deadlocks"
    for name, count in found["left"].items():
        yield f"{count:,.0f} are left in {name} after everything has ended"
    if (told := found.get("told")) is not None:
        if told["completions"] != found["graphs"]:
            yield f"{told['completions']:,} completions were told of {found['graphs']:,} graphs"
        if told["misplaced"]:
            yield f"{told['misplaced']} messages came out of order or twice, such as: {told['wrong'][0]}"

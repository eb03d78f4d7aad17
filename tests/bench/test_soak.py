"""The soak's verdict and its plot, without the half hour; and the whole of it, for seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import asyncpg
import pytest

from bench.postgres.bare import measure
from bench.soak.master import Master
from bench.soak.pace import SCHEMA, Peak, find_peak
from bench.soak.plot import draw, scale
from bench.soak.samples import Sample, summary, thirds
from bench.soak.verdict import complaints, losses
from dalsegno.adapters.rabbitmq.topology import COMPLETION, NODE_STATUS

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def sample(number: int, **changes: Any) -> Sample:
    tables = {"token": {"mb": 8.0, "dead": 100, "live": 50}, "event": {"mb": 90.0, "dead": 10, "live": 9000}}
    usual = {
        "at": number * 5.0,
        "rss": {"worker 1": 80.0, "scheduler": 60.0, "RabbitMQ": 200.0},
        "tables": tables,
        "ended": 500,
        "steps": 4500,
        "seconds": 5.0,
        "load": 1.5,
        "latencies": [10.0] * 98 + [40.0] * 2,
        "depths": {"workflow.execution": 400.0},
    }
    return Sample(**{**usual, **changes})


def found_in(samples: list[Sample]) -> dict[str, Any]:
    ending = {"failed": 0, "failures": [], "started": 9000, "deadlocks": 0, "inexact": [], "left": {}}
    return {**summary(samples, peak=200.0, rate=100.0), **ending}


def test_a_soak_in_which_nothing_grows_is_good() -> None:
    found = found_in([sample(number) for number in range(1, 91)])
    assert found["executions_per_s"] == 100
    assert found["p99_ms"] == [40.0, 40.0]
    assert found["hot_mb"] == [8.0, 8.0]
    assert list(complaints(found)) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"rss": {"worker 1": 84.0, "scheduler": 60.0}}, "memory of worker 1 rose by 5.9 MB"),
        ({"latencies": [10.0] * 98 + [53.0] * 2}, "p99 of start to end grew from 40 to 53 ms"),
        ({"tables": {"token": {"mb": 30.0, "dead": 100, "live": 50}}}, "hot_mb grew from 8 to 30"),
        ({"tables": {"token": {"mb": 8.0, "dead": 90_000, "live": 50}}}, "hot_dead_rows grew"),
        ({"tables": {"event": {"mb": 120.0, "dead": 0, "live": 50}}}, "history_mb grew from 90 to 120"),
        ({"ended": 300}, "did not keep up"),
        ({"depths": {"workflow.execution": 600.0}}, "workflow.execution grew by 295"),
        (
            {"rss": {"worker 1": 80.0, "scheduler": 60.0, "RabbitMQ": 220.0}},
            "memory of RabbitMQ rose by 29.5 MB",
        ),
    ],
)
def test_what_grows_in_the_last_third_is_told(change: dict[str, Any], complaint: str) -> None:
    samples = [sample(number, **(change if number > 60 else {})) for number in range(1, 91)]
    [told] = complaints(found_in(samples))
    assert complaint in told


@pytest.mark.parametrize(
    "change",
    [
        {"rss": {"worker 1": 82.5, "scheduler": 60.0}},
        {"latencies": [10.0] * 98 + [51.0] * 2},
        {"tables": {"token": {"mb": 15.0, "dead": 40_000, "live": 50}}},
        {"tables": {"event": {"mb": 98.0, "dead": 0, "live": 50}}},
        {"depths": {"workflow.execution": 460.0}},
        {"rss": {"worker 1": 80.0, "scheduler": 60.0, "RabbitMQ": 213.0}},
    ],
)
def test_what_a_good_half_hour_shows_too_is_not_told(change: dict[str, Any]) -> None:
    samples = [sample(number, **(change if number > 60 else {})) for number in range(1, 91)]
    assert list(complaints(found_in(samples))) == []


def with_memory(mb: list[float]) -> list[Sample]:
    return [sample(number, rss={"worker 1": each}) for number, each in enumerate(mb, start=1)]


def test_a_small_leak_shows_over_two_thirds() -> None:
    """Between the medians of the two it is half as much."""
    [told] = complaints(found_in(with_memory([80 + number * 0.1 for number in range(90)])))
    assert "memory of worker 1 rose by 5.9 MB over the last two thirds, from 84 to 88 MB" in told
    assert list(complaints(found_in(with_memory([80 + number * 0.08 for number in range(90)])))) == []


def test_memory_that_settles_in_the_first_third_or_jumps_for_a_moment_is_no_leak() -> None:
    settles = [80.0 + number for number in range(30)] + [110.0] * 60
    jumps = [80.0] * 80 + [120.0] + [80.0] * 9
    for mb in (settles, jumps):
        assert list(complaints(found_in(with_memory(mb)))) == []


def slow_in_the_end(**changes: Any) -> list[Sample]:
    return [
        sample(number, **({"speed": 15_000.0, **changes} if number > 60 else {"speed": 30_000.0}))
        for number in range(1, 91)
    ]


def test_latency_is_judged_by_what_the_store_alone_could_do() -> None:
    twice = [20.0] * 98 + [75.0] * 2
    assert list(complaints(found_in(slow_in_the_end(latencies=twice)))) == []
    [told] = complaints(found_in(slow_in_the_end(latencies=[20.0] * 98 + [110.0] * 2)))
    assert "p99 of start to end grew from 40 to 110 ms" in told
    [told] = complaints(found_in(slow_in_the_end(latencies=twice, speed=30_000.0)))
    assert "p99 of start to end grew from 40 to 75 ms" in told


def test_a_peak_that_falls_faster_than_the_store_alone_is_told() -> None:
    found = found_in([sample(number) for number in range(1, 91)])
    half_a_machine = [[200.0, 30_000.0, 0.00667], [95.0, 15_000.0, 0.00633]]
    half_a_system = [[200.0, 30_000.0, 0.00667], [95.0, 29_000.0, 0.00328]]
    assert list(complaints(found | {"peaks": half_a_machine})) == []
    assert list(complaints(found | {"peaks": half_a_system})) == [
        "the peak fell from 200 to 95 executions/s, while the store alone made 30,000 and 29,000 steps/s"
    ]


def test_half_the_peak_is_asked_and_less_where_the_store_alone_is_slower() -> None:
    peak = Peak([150.0, 200.0, 210.0], [20_000.0, 30_000.0, 30_000.0])
    assert peak.rate == 200
    assert peak.asked(peak.speed) == 100
    assert peak.asked(15_000) == pytest.approx(52.5)
    assert peak.asked(60_000) == 100


async def test_each_round_for_the_peak_has_its_own_look_at_the_store() -> None:
    looks: list[str] = []

    async def crowd() -> float:
        looks.append("crowd")
        return 100.0 * len(looks)

    async def speed() -> float:
        looks.append("speed")
        return 1000.0

    peak = await find_peak(3, crowd, speed)
    assert looks == ["speed", "crowd"] * 3
    assert (peak.rates, peak.rate) == ([200, 400, 600], 400)


async def test_bare_loop_begins_empty_each_time(postgres_url: str) -> None:
    first, second = [await measure(postgres_url, 5, 2, SCHEMA) for _ in range(2)]
    assert min(first, second) > 0
    connection = await asyncpg.connect(postgres_url)
    try:
        assert await connection.fetchval(f"SELECT count(*) FROM {SCHEMA}.bare_event") == 10
    finally:
        await connection.close()


def test_losses_and_deadlocks_are_told() -> None:
    found = found_in([sample(number) for number in range(1, 91)])
    found |= {"failed": 2, "failures": ["chain: TimeoutError"], "deadlocks": 1, "inexact": ["x: ended twice"]}
    assert [line.split(":")[0] for line in complaints(found)] == [
        "2 of 9000 executions did not end well",
        "PostgreSQL broke 1 deadlocks",
        "1 inconsistencies in the newest histories, such as",
    ]


def test_what_is_left_told_twice_or_not_told_is_wrong_in_the_shortest_soak() -> None:
    told = {"statuses": 9, "completions": 499, "misplaced": 1, "wrong": ["x:3:success came after"]}
    found = found_in([sample(1)]) | {"left": {"workflow.results": 2}, "graphs": 500, "told": told}
    assert list(losses(found)) == [
        "2 are left in workflow.results after everything has ended",
        "499 completions were told of 500 graphs",
        "1 messages came out of order or twice, such as: x:3:success came after",
    ]


def test_a_master_notes_what_comes_out_of_order_twice_or_after_the_completion() -> None:
    master = Master()
    for queue, identity in [
        (NODE_STATUS, "a:b:4:running"),
        (NODE_STATUS, "a:b:4:success"),
        (NODE_STATUS, "c:2:running"),
        (NODE_STATUS, "a:b:3:running"),
        (COMPLETION, "a:b:6:completed"),
        (COMPLETION, "a:b:6:completed"),
        (NODE_STATUS, "a:b:6:cancelled"),
    ]:
        master.note(queue, identity)
    assert master.misplaced == 3
    assert master.wrong == [
        "a:b:3:running came after the status of event 4",
        "a:b:6:completed came after the completion",
        "a:b:6:cancelled came after the completion",
    ]


def test_the_first_third_is_not_judged() -> None:
    samples = [sample(number) for number in range(1, 10)]
    assert [[each.at for each in third] for third in thirds(samples)] == [[20, 25, 30], [35, 40, 45]]


def test_the_plot_shows_every_line_at_every_time() -> None:
    samples = [sample(number) for number in range(1, 91)]
    root = ET.fromstring(draw(samples, found_in(samples)))
    lines = root.findall(f"{SVG}polyline")
    assert len(lines) == 1 + 2 + 2 + 2 + 2 + 1 + 1
    assert all(len(line.attrib["points"].split()) == 90 for line in lines)
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="no samples to draw"):
        draw([], {})


@pytest.mark.parametrize("largest", [0, 0.3, 1, 7, 12, 99, 100, 101, 4321])
def test_scales_are_round_and_hold_everything(largest: float) -> None:
    highest, step = scale(largest)
    assert highest >= largest
    assert 1 <= round(highest / step) <= 5


def test_seconds_of_it_lose_nothing(tmp_path: Path) -> None:
    """Two workers, a scheduler and a generator on a server of their own."""
    command = ["-m", "bench.soak.run", "--seconds", "8", "--rate", "20", "--into", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "soak-postgres.json").read_text())
    assert (told["found"]["failed"], told["found"]["started"]) == (0, 160)
    assert set(told["samples"][0]["rss"]) == {"worker 1", "worker 2", "scheduler", "generator"}
    assert all(mb > 10 for mb in told["samples"][0]["rss"].values())
    assert told["samples"][-1]["tables"]["event"]["mb"] > 0
    ET.parse(tmp_path / "soak-postgres.svg")


@pytest.mark.parametrize("broker", ["rabbitmq", pytest.param("redis", marks=pytest.mark.soak)])
def test_seconds_of_it_over_a_broker_leave_nothing_behind(tmp_path: Path, broker: str) -> None:
    """Also a server, workers of others and, on RabbitMQ, a master."""
    command = ["--broker", broker, "--seconds", "10", "--rate", "20", "--into", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.soak.run", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / f"soak-{broker}.json").read_text())
    assert "verdict: passed, nothing is lost\n" in done.stdout
    found, last = told["found"], told["samples"][-1]
    assert (found["failed"], found["started"], found["left"]) == (0, 200, {})
    others = {"rabbitmq": {"RabbitMQ", "rabbitmq worker"}, "redis": set()}[broker] | {"Redis", "redis worker"}
    assert set(last["rss"]) == {"worker 1", "worker 2", "scheduler", "server", "generator", *others}
    assert all(mb > 3 for mb in last["rss"].values())
    assert last["depths"]["keys in Redis"] > 0
    if broker == "rabbitmq":
        assert found["told"]["completions"] == found["graphs"] > 140
        assert found["told"]["statuses"] > 10 * found["graphs"]
    ET.parse(tmp_path / f"soak-{broker}.svg")

"""``schedule``: adding, looking, steering; and a worker that fires."""

from __future__ import annotations

import json
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Programs
from tests.waiting import until


@pytest.fixture
def hello(invoke: Invoke, folder: Path) -> Invoke:
    write(folder, hello_yaml=HELLO)
    assert invoke("deploy", "hello.yaml").exit_code == 0
    return invoke


def add(invoke: Invoke, *options: str, name: str = "nightly") -> Any:
    result = invoke("schedule", "add", name, "--workflow", "hello", *options, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def shown(invoke: Invoke, name: str = "nightly") -> Any:
    return json.loads(invoke("schedule", "show", name, "--json").stdout)


def test_added_schedule_is_shown_in_full(hello: Invoke) -> None:
    told = add(hello, "--cron", "0 2 * * *", "--timezone", "Europe/Berlin", "--input", '{"name": "Ada"}')
    assert (told["state"], told["cron"], told["timezone"], told["missed"]) == (
        "active",
        "0 2 * * *",
        "Europe/Berlin",
        "skip",
    )
    assert told["input"] == {"name": "Ada"}
    assert len(told["next"]) == 5
    assert shown(hello)["runs"] == []
    said = hello("schedule", "show", "nightly").stdout
    assert "0 2 * * * (Europe/Berlin)" in said
    assert " 02:00:00 CE" in said


def test_interval_is_another_way_to_say_when(hello: Invoke) -> None:
    assert add(hello, "--every", "90m")["every"] == 5400
    assert "every 90m" in hello("schedule", "show", "nightly").stdout


def test_schedules_are_listed(hello: Invoke) -> None:
    assert "no schedules" in hello("schedule", "ls").stdout
    add(hello, "--cron", "@daily", name="b")
    add(hello, "--every", "1h", name="a")
    rows = hello("schedule", "ls").stdout.splitlines()
    assert [row.split()[1] for row in rows[1:]] == ["a", "b"]
    assert "every 1h" in rows[1]
    assert "never" in rows[1]
    listed = json.loads(hello("schedule", "ls", "--json").stdout)["schedules"]
    assert [each["name"] for each in listed] == ["a", "b"]
    assert "no executions" in hello("ls").stdout


def test_schedule_without_a_worker_is_overdue(hello: Invoke) -> None:
    add(hello, "--every", "1s")
    until(lambda: shown(hello)["overdue"], "the first time passes")
    assert "due since" in hello("schedule", "show", "nightly").stdout
    assert " ago" in hello("schedule", "ls").stdout


def test_schedule_is_paused_resumed_and_removed(hello: Invoke) -> None:
    add(hello, "--cron", "@daily")
    assert hello("schedule", "pause", "nightly").stdout == "nightly: paused\n"
    assert (shown(hello)["state"], shown(hello)["next"]) == ("paused", [])
    assert hello("schedule", "resume", "nightly").stdout == "nightly: active\n"
    assert shown(hello)["state"] == "active"
    assert json.loads(hello("schedule", "rm", "nightly", "--json").stdout)["state"] == "removed"
    assert json.loads(hello("schedule", "ls", "--json").stdout) == {"schedules": []}


def test_schedule_is_changed_only_if_asked(hello: Invoke) -> None:
    add(hello, "--cron", "@daily")
    refused = hello("schedule", "add", "nightly", "--workflow", "hello", "--cron", "@hourly")
    assert refused.exit_code == 2
    assert "there is a schedule 'nightly' already" in refused.stderr
    assert add(hello, "--cron", "@hourly", "--replace")["cron"] == "0 * * * *"


def test_triggered_schedule_starts_its_workflow(hello: Invoke) -> None:
    add(hello, "--cron", "@daily", "--input", '{"name": "Ada"}', "--tag", "team=a")
    execution = hello("schedule", "trigger", "nightly").stdout.strip()
    (run,) = shown(hello)["runs"]
    assert (run["execution_id"], run["workflow"], run["relation"]) == (execution, "hello", "schedule")
    assert run["tags"]["schedule"] == "nightly"
    assert run["tags"]["team"] == "a"
    told = json.loads(hello("resume", execution, "--json").stdout)
    assert told["output"] == "Hello Ada"
    assert execution in hello("schedule", "show", "nightly").stdout


REFUSED = {
    "no timing": (("add", "x", "-w", "hello"), "a schedule needs either --cron or --every"),
    "two timings": (("add", "x", "-w", "hello", "--cron", "@daily", "--every", "1h"), "either --cron or --every"),
    "a bad line": (("add", "x", "-w", "hello", "--cron", "0 25 * * *"), "bad hour (field 2): '25'"),
    "seconds": (("add", "x", "-w", "hello", "--cron", "0 0 2 * * *"), "6 fields"),
    "a bad interval": (("add", "x", "-w", "hello", "--every", "soon"), "the interval 'soon' is not a duration"),
    "words for a line": (("add", "x", "-w", "hello", "--cron", "every day"), "every day at midnight write '0 0 * * *'"),
    "words for an interval": (("add", "x", "-w", "hello", "--every", "daily"), "(a command takes --every 1d)"),
    "a bad zone": (("add", "x", "-w", "hello", "--cron", "@daily", "--timezone", "Europe/Berln"), "did you mean"),
    "a bad policy": (("add", "x", "-w", "hello", "--cron", "@daily", "--missed", "never"), "skip, once, all"),
    "a bad time": (("add", "x", "-w", "hello", "--cron", "@daily", "--end", "later"), "is not a point in time"),
    "an unknown workflow": (("add", "x", "-w", "nobody", "--cron", "@daily"), "no workflow is named 'nobody'"),
    "an unknown schedule": (("show", "x"), "there is no schedule 'x'; there are: none yet"),
    "removing what is not there": (("rm", "x"), "there is no schedule 'x'"),
    "triggering what is not there": (("trigger", "x"), "there is no schedule 'x'"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_with_a_reason(hello: Invoke, arguments: tuple[str, ...], message: str) -> None:
    result = hello("schedule", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert json.loads(hello("schedule", "ls", "--json").stdout) == {"schedules": []}


def test_workflow_may_come_later(invoke: Invoke) -> None:
    told = add(invoke, "--cron", "@daily", "--allow-unknown")
    assert told["workflow"] == "hello"


def test_looking_creates_no_store(invoke: Invoke, folder: Path) -> None:
    assert invoke("schedule", "ls").exit_code == 2
    assert not (folder / "dalsegno.db").exists()


def test_killed_worker_misses_no_time_and_fires_none_twice(hello: Invoke, programs: Programs) -> None:
    add(hello, "--every", "1s", "--missed", "all", name="often")

    def fired(count: int) -> None:
        until(lambda: shown(hello, "often")["started"] >= count, f"{count} starts")

    for number in range(1, 4):
        worker = programs.begin("worker")
        fired(2 * number)
        worker.send(signal.SIGKILL)
    programs.begin("worker")
    fired(8)
    hello("schedule", "pause", "often")
    started = shown(hello, "often")["started"]

    def times() -> list[float]:
        listed = json.loads(hello("ls", "--tag", "schedule=often", "-n", "1000", "--json").stdout)
        moments = [datetime.fromisoformat(run["tags"]["scheduled_at"]) for run in listed["executions"]]
        return sorted(moment.timestamp() for moment in moments)

    until(lambda: len(times()) >= started, "everything that was ordered is there")
    found = times()
    assert found == [found[0] + second for second in range(len(found))]

"""The comparison with peers: reading what contenders tell, and setting it side by side."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import environments, run
from bench.peers.figures import Figures, NoFigures, middle, read, table
from bench.peers.peer_report import report

ROOT = Path(__file__).parents[2]


def test_report_of_a_peer_is_read_as_ours_is() -> None:
    seconds = [0.001 * number for number in range(100)]
    told = "warming up\n" + json.dumps(report(250.0, seconds)) + "\n"
    assert read(told) == Figures(250.0, 50.0, 99.0)
    assert read(json.dumps(report(250.0))) == Figures(250.0, None, None)


@pytest.mark.parametrize(
    "output", ["", "no JSON", "{}", '{"steps_per_s": null, "p50_ms": 1, "p99_ms": 1}', "[1]"]
)
def test_who_tells_nothing_is_named(output: str) -> None:
    with pytest.raises(NoFigures, match="the last line should be a report"):
        read(output)


def test_the_median_of_several_turns_counts() -> None:
    turns = [Figures(10, 1.0, None), Figures(1000, 9.0, None), Figures(30, 2.0, None)]
    assert middle(turns) == Figures(30, 2.0, None)


def test_throughput_is_compared_by_throughput() -> None:
    lines = table(
        "chain", {"ours": Figures(12_000, 40.0, 55.5, 2.04), "peer": Figures(200, None, None)}
    ).splitlines()
    assert lines == [
        "chain",
        "  contender  per second  p50 ms  p99 ms  ratio  CPU s",
        "  ours           12,000    40.0    55.5    1.0    2.0",
        "  peer              200       -       -   60.0      -",
    ]


def test_latency_is_compared_by_the_median_time() -> None:
    shown = table("latency", {"ours": Figures(500, 2.0, 4.0), "peer": Figures(90, 11.0, 18.0)})
    assert shown.splitlines()[-1].split() == ["peer", "90", "11.0", "18.0", "5.5", "-"]


def test_a_failed_contender_has_its_reason_in_the_table() -> None:
    shown = table("chain", {"ours": Figures(100, None, None), "peer": "exit code 1"}).splitlines()
    assert shown[-1] == "  peer       failed: exit code 1"
    without_base = table("chain", {"ours": "exit code 1", "peer": Figures(100, None, None)})
    assert without_base.splitlines()[-1].split() == ["peer", "100", "-", "-", "-", "-"]


def test_environments_differ_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = environments.folder_name("dbos")
    assert before == environments.folder_name("dbos")
    monkeypatch.setitem(environments.REQUIREMENTS, "dbos", ("dbos==0.0.1",))
    assert environments.folder_name("dbos") != before


def test_an_environment_that_cannot_be_made_is_no_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(environments.REQUIREMENTS, "dbos", (str(tmp_path / "nothing-here"),))
    with pytest.raises(environments.EnvironmentFailed, match="nothing-here"):
        environments.interpreter("dbos", tmp_path)
    assert list(tmp_path.rglob("installed")) == []


def test_unknown_contenders_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--contenders", "dalsegno-sqlite,airflow"])
    assert "choose from dalsegno-postgres, " in capsys.readouterr().err


def test_a_contender_that_fails_is_reported_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = run.Contender(lambda _: "nonsense://store", None)
    monkeypatch.setitem(run.CONTENDERS, "dbos-sqlite", broken)
    code = run.main([
        "--contenders", "dbos-sqlite,dalsegno-sqlite", "--workloads", "latency", "--rounds", "3",
        "--cache", str(tmp_path), "--json",
    ])  # fmt: skip
    told = json.loads(capsys.readouterr().out)["results"]["latency"]
    assert code == 1
    assert told["dbos-sqlite"]["failed"].startswith("exit code")
    assert told["dalsegno-sqlite"]["per_s"] > 1
    assert 0.1 < told["dalsegno-sqlite"]["cpu_s"] < 60


def test_a_busy_machine_is_mentioned() -> None:
    assert run.doubt(0.4, 2) == ""
    assert "load 7.3 on 2 cores" in run.doubt(7.3, 2)


def test_the_program_says_what_it_takes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers.run", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--contenders" in done.stdout


def test_contenders_with_a_broker_are_told_of_it() -> None:
    told = {
        name: run.variables(contender, "store", "broker")
        for name, contender in run.CONTENDERS.items()
        if contender.broker is not None
    }
    assert told["dalsegno-rabbitmq"] == {"DALSEGNO_BROKER": "broker"}
    assert (
        told["celery-rabbitmq"]
        == told["dramatiq-redis"]
        == {"PEER_RESULTS": "store", "PEER_BROKER": "broker"}
    )
    assert len(told) == 6

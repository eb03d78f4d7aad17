"""What the files do when they run: probes against a real server, secrets from files, metrics that rules name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from tests.deploy.files import COMPOSE, DEPLOY, containers, documents
from tests.server.conftest import LiveServer
from tests.servers.process import free_port, wait_until

METRIC = re.compile(r"\bdalsegno_[a-z_]+\b")


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(App(f"sqlite:///{tmp_path / 'deploy.db'}")) as server:
        yield server


def probe(port: str, service: str = "server") -> int:
    """The healthcheck of the compose file, with the port of this test."""
    test = documents(COMPOSE)[0]["services"][service]["healthcheck"]["test"]
    assert test[:2] == ["CMD", "python"]
    words = [sys.executable, *(re.sub(r"870[01]", port, word) for word in test[2:])]
    return subprocess.run(words, stderr=subprocess.DEVNULL, timeout=30, check=False).returncode


def test_healthcheck_tells_a_server_that_answers_from_one_that_does_not(tmp_path: Path) -> None:
    with LiveServer(App(f"sqlite:///{tmp_path / 'deploy.db'}")) as server:
        port = server.url.rpartition(":")[2]
        assert probe(port) == 0
    assert probe(port) != 0


def probed_paths(*, health_port: bool) -> set[str]:
    """That Kubernetes asks for: of servers, or of those who have a health port only."""
    return {
        probe["httpGet"]["path"]
        for _, _, container in containers()
        for name, probe in container.items()
        if name.endswith("Probe") and (probe["httpGet"]["port"] == "health") is health_port
    }


def test_probes_ask_for_paths_that_need_no_key(live: LiveServer) -> None:
    paths = probed_paths(health_port=False)
    assert paths == {"/v1/health/live", "/v1/health/ready"}
    for path in paths:
        with urllib.request.urlopen(live.url + path, timeout=10) as reply:
            assert reply.status == 200


@pytest.mark.parametrize("service", ["worker", "scheduler"])
def test_health_port_answers_what_is_asked_there(tmp_path: Path, service: str) -> None:
    """The command of the compose file, and the probes of both kinds of files."""
    port = str(free_port())
    command = documents(COMPOSE)[0]["services"][service]["command"]
    assert command[0] == "dalsegno"
    words = [sys.executable, "-m", *(port if word == "8701" else word for word in command)]
    environment = {**os.environ, "DALSEGNO_STORE": f"sqlite:///{tmp_path / 'probed.db'}"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: probe(port, service) == 0, seconds=60, what="readiness")
            assert probed_paths(health_port=True) == {"/live", "/ready"}
            for path in probed_paths(health_port=True):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
                    assert reply.status == 200
        finally:
            process.terminate()
    assert process.returncode == 0
    assert probe(port, service) != 0


ROLES = [container for _, _, container in containers() if "livenessProbe" in container]


@pytest.mark.parametrize("container", ROLES, ids=[container["name"] for container in ROLES])
def test_probes_do_not_restart_what_waits_for_its_store(container: dict[str, Any]) -> None:
    """The command of the Pod, with a database that nobody serves."""
    port = str(free_port())
    words = [re.sub(r"870[01]", port, word) for word in container["command"][1:]]
    environment = {**os.environ, "DALSEGNO_STORE": f"postgresql://me@127.0.0.1:{free_port()}/db"}
    command = [sys.executable, "-m", "dalsegno", *words]
    probes = {name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: status(port, probes["livenessProbe"]) == 200, seconds=60, what="life")
            told = {name: status(port, path) for name, path in probes.items()}
            assert told.pop("readinessProbe") == 503
            assert set(told.values()) == {200}
        finally:
            process.terminate()
    assert process.returncode == 0


def status(port: str, path: str) -> int:
    """0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_rules_and_autoscalers_name_metrics_that_are_told(live: LiveServer) -> None:
    with urllib.request.urlopen(live.url + "/metrics", timeout=10) as reply:
        told = set(METRIC.findall(reply.read().decode()))
    # Those by queue are told when something waits, those of a broker where there is one; tests/server/operations looks
    # there.
    source = (Path(__file__).parents[2] / "src/dalsegno/server/operations/metrics.py").read_text(
        encoding="utf-8"
    )
    told |= {f"dalsegno_{name}" for name in re.findall(r'_by_queue\(\s*"([a-z_]+)"', source)}
    told |= set(re.findall(r'GaugeMetricFamily\(\s*"(dalsegno_(?:server|broker)_[a-z_]+)"', source))
    told |= {f"dalsegno_{name}" for name in re.findall(r'"(executions_unpublished)"', source)}
    told |= {f"dalsegno_{name}_total" for name in re.findall(r'_single\("(tasks_lost)"', source)}
    rules = (DEPLOY / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
    named = set(METRIC.findall(rules))
    assert len(named) > 6
    assert named <= told, named - told


def test_autoscalers_go_by_a_number_that_is_recorded() -> None:
    [rules] = documents(DEPLOY / "prometheus" / "rules.yaml")
    recorded = {
        rule["record"]: rule["labels"]["queue"]
        for group in rules["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    assert recorded == {"dalsegno:queue_demand": "default"}
    folder = DEPLOY / "kubernetes" / "autoscaling"
    [keda], [hpa], [adapter] = (
        documents(folder / name) for name in ("keda.yaml", "hpa.yaml", "adapter.yaml")
    )
    assert keda["spec"]["triggers"][0]["metadata"]["query"] == 'dalsegno:queue_demand{queue="default"}'
    [rule] = adapter["externalRules"]
    assert re.match(rule["name"]["matches"], "dalsegno:queue_demand")
    metric = hpa["spec"]["metrics"][0]["external"]["metric"]
    assert metric == {"name": rule["name"]["as"], "selector": {"matchLabels": {"queue": "default"}}}


def test_no_number_takes_no_worker_away() -> None:
    """KEDA sets the workers to the number of a fallback without a behavior, however many there are; without a fallback
    it leaves them alone, unless a number that is missing counts as none."""
    [keda] = documents(DEPLOY / "kubernetes" / "autoscaling" / "keda.yaml")
    assert "fallback" not in keda["spec"]
    assert keda["spec"]["triggers"][0]["metadata"]["ignoreNullValues"] == "false"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("two words\n", encoding="utf-8")
    return path


def with_secrets(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(
        [DEPLOY / "with-secrets", *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["PGPASSWORD", "DALSEGNO_BROKER", "DALSEGNO_REDIS"])
def test_secret_comes_from_its_file(secret: Path, name: str) -> None:
    done = with_secrets("sh", "-c", f'printf %s "${name}"; exit 7', **{f"{name}_FILE": str(secret)})
    assert (done.returncode, done.stdout, done.stderr) == (7, "two words", "")


def test_without_a_file_nothing_is_set() -> None:
    assert with_secrets("sh", "-c", 'printf %s "${PGPASSWORD-unset}"').stdout == "unset"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = with_secrets("true", PGPASSWORD_FILE=str(tmp_path / "missing"))
    assert done.returncode == 78
    assert str(tmp_path / "missing") in done.stderr

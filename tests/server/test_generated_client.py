"""A client generated from the server's own document: nothing is left out of it, and it works against a real server."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.cli.programs import PATIENCE, Program, Programs

PACKAGE = "generated_dalsegno_client"
SCRIPT = """\
workflow approval(inputs) {
  const answer = await Signal.when("decision")
  return `${inputs.order}: ${answer.by}`
}
"""
GRAPH: dict[str, Any] = {
    "name": "thumbnails",
    "input_schema": {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string"}, "size": {"type": "integer"}},
    },
    "nodes": [
        {
            "id": "resize",
            "type": "task",
            "queue": "images",
            "parameters": {"task": "resize", "input": "{{ input.file }}"},
        }
    ],
    "output": "$resize.small",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``dalsegno dev`` as a process of its own; its URL."""
    folder = tmp_path_factory.mktemp("server")
    names = ("DALSEGNO_STORE", "DALSEGNO_SERVER", "DALSEGNO_KEY")
    environment = {key: value for key, value in os.environ.items() if key not in names}
    running: list[Program] = []
    program = Programs(folder, environment, running).begin("dev", "--port", "0", "--json")
    assert program.process.stdout is not None
    line = program.process.stdout.readline()
    assert line, program.process.communicate()
    yield json.loads(line)["url"]
    program.end()


@pytest.fixture(scope="module")
def document(server: str) -> dict[str, Any]:
    return dict(httpx.get(f"{server}/v1/openapi.json", timeout=PATIENCE).json())


@pytest.fixture(scope="module")
def generated(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The generator is called as users call it, with its defaults; a warning is an error."""
    folder = tmp_path_factory.mktemp("generated")
    source, target = folder / "openapi.json", folder / PACKAGE
    source.write_text(json.dumps(document), encoding="utf-8")
    tools = str(Path(sys.executable).parent)  # it formats what it has written with ruff
    done = subprocess.run(
        [
            sys.executable, "-m", "openapi_python_client", "generate", "--path", source,
            "--output-path", target, "--meta", "none", "--fail-on-warning",
        ],
        env={**os.environ, "PATH": f"{tools}:{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.splitlines() == [f"Generating {target}"], said
    sys.path.insert(0, str(folder))
    yield target
    sys.path.remove(str(folder))
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


class Api:
    """Calls of the generated client by the names of their operations."""

    def __init__(self, generated: Path, url: str) -> None:
        self.models: ModuleType = importlib.import_module(f"{PACKAGE}.models")
        self.client: Any = importlib.import_module(f"{PACKAGE}.client").Client(
            base_url=url, timeout=httpx.Timeout(PATIENCE), raise_on_unexpected_status=True
        )
        self._folders = {each.stem: each.parent.name for each in generated.glob("api/*/*.py")}

    def __getattr__(self, operation: str) -> Any:
        module = importlib.import_module(f"{PACKAGE}.api.{self._folders[operation]}.{operation}")

        def call(*path: str, **given: Any) -> Any:
            return module.sync(*path, client=self.client, **given)

        return call

    def deploy(self, **source: Any) -> Any:
        return self.deploy_definition(body=self.models.DefinitionSource.from_dict(source))

    def start(self, workflow: str, input: Any) -> Any:
        return self.start_execution(
            body=self.models.StartRequest.from_dict({"workflow": workflow, "input": input})
        )


@pytest.fixture
def api(generated: Path, server: str) -> Iterator[Api]:
    made = Api(generated, server)
    with made.client:
        yield made


def test_the_generator_leaves_no_route_out(generated: Path, document: dict[str, Any]) -> None:
    wanted = {each["operationId"] for path in document["paths"].values() for each in path.values()}
    found = {each.stem for each in generated.glob("api/*/*.py") if each.stem != "__init__"}
    assert len(wanted) > 100
    assert found == wanted


def test_every_generated_module_can_be_imported(generated: Path) -> None:
    for file in generated.rglob("*.py"):
        importlib.import_module(".".join(file.relative_to(generated.parent).with_suffix("").parts))


def test_the_client_deploys_starts_signals_waits_and_lists(api: Api) -> None:
    deployed = api.deploy(source=SCRIPT, kind="script")
    assert (deployed.name, deployed.version, deployed.kind) == ("approval", 1, "script")
    started = api.start("approval", {"order": 7})
    assert isinstance(started, api.models.Execution)
    assert api.wait_for_execution(started.id, seconds=0).state == "RUNNING"
    api.signal_execution(
        started.id, body=api.models.SignalRequest.from_dict({"name": "decision", "payload": {"by": "Ann"}})
    )
    ended = api.wait_for_execution(started.id, seconds=20.0)
    assert (ended.state, ended.output, ended.input_) == ("COMPLETED", "7: Ann", {"order": 7})
    page = api.list_executions(workflow="approval", state=[api.models.ExecutionState.COMPLETED])
    assert isinstance(page, api.models.ExecutionInfoPage)
    assert [(each.id, each.state) for each in page.items] == [(started.id, "COMPLETED")]
    assert [each.kind for each in api.list_execution_events(started.id).events][-1] == "ExecutionCompleted"


def test_the_client_works_on_tasks(api: Api) -> None:
    api.deploy(document=GRAPH)
    started = api.start("thumbnails", {"file": "a.png"})
    asked = api.models.ClaimRequest(worker="w1", queues=["images"], wait=10.0)
    [task] = api.claim_tasks(body=asked).tasks
    assert (task.execution, task.name, task.input_, task.attempt) == (started.id, "resize", "a.png", 1)
    kept = api.heartbeat_tasks(
        body=api.models.HeartbeatRequest.from_dict(
            {"worker": "w1", "tasks": [{"id": task.id, "fence": task.fence}]}
        )
    )
    assert kept.lost == []
    done = api.models.CompleteRequest.from_dict({"fence": task.fence, "output": {"small": "a-small.png"}})
    assert api.complete_task(task.id, body=done).repeated is False
    assert api.wait_for_execution(started.id, seconds=20.0).output == "a-small.png"


def test_errors_are_typed(api: Api) -> None:
    missing = api.get_execution("none")
    assert isinstance(missing, api.models.Problem)
    assert (missing.status, missing.code, missing.findings) == (404, "DS-130", [])
    api.deploy(document=GRAPH)
    refused = api.start("thumbnails", {"size": "large"})
    assert isinstance(refused, api.models.Problem)
    assert (refused.status, refused.code) == (422, "DS-120")
    assert {each.pointer: each.rule for each in refused.findings} == {
        "": "input-schema",
        "/size": "input-schema",
    }


def test_operation_is_typed_too(api: Api) -> None:
    """Among them lists whose class could be mistaken for their field."""
    assert "default" in [queue for each in api.list_workers().workers for queue in each.queues]
    assert api.list_queues().queues is not None
    assert "DS-130" in [each.code for each in api.list_error_codes().errors]
    assert api.get_readiness().status == "ok"

"""An input that a workflow cannot take is refused with a list of what is wrong, each with its place in the input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno import App, Client
from dalsegno.errors import InvalidInput
from tests.cli.conftest import Invoke
from tests.cli.documents import write
from tests.server.conftest import LiveServer

ORDER = """\
name: order
input_schema:
  type: object
  required: [id]
  properties:
    id: {type: integer}
    lines: {type: array, items: {type: object, required: [sku]}}
nodes:
  - {id: note, type: log, parameters: {message: hi}}
"""
SCRIPT = """\
```
name: script-order
input_schema: {type: object, required: [id]}
```
return inputs.id
"""
PYTHON = """\
from dalsegno import App

app = App()


@app.workflow
async def ship(order: int, to: str) -> int:
    return order


@app.workflow
async def count(n: int) -> int:
    return n
"""
WRONG = json.dumps({"id": "seven", "lines": [{"sku": 1}, {}]})
PLACES = {"/id": "input-schema", "/lines/1": "input-schema"}


def places(told: dict[str, Any]) -> dict[str, str]:
    assert told["error"]["code"] == InvalidInput.code
    assert all(each["message"] and each["severity"] == "error" for each in told["findings"])
    return {each["pointer"]: each["rule"] for each in told["findings"]}


def refused(invoke: Invoke, *arguments: str) -> dict[str, str]:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 2, result.output
    return places(json.loads(result.stdout))


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    with LiveServer(App(f"sqlite:///{folder / 'dalsegno.db'}")) as live:
        yield live.url


def test_run_lists_what_does_not_fit_the_schema(invoke: Invoke, folder: Path) -> None:
    write(folder, order_yaml=ORDER, order_flow=SCRIPT)
    assert refused(invoke, "run", "order.yaml", "-i", WRONG) == PLACES
    assert refused(invoke, "run", "order.flow", "-i", "{}") == {"": "input-schema"}


def test_start_and_submit_list_it_too(invoke: Invoke, folder: Path) -> None:
    write(folder, order_yaml=ORDER)
    invoke("deploy", "order.yaml")
    for command in ("start", "submit"):
        assert refused(invoke, command, "order", "-i", WRONG) == PLACES
    assert json.loads(invoke("ls", "--json").stdout)["executions"] == []


def test_parameters_of_functions_have_places(invoke: Invoke, folder: Path) -> None:
    write(folder, m_py=PYTHON)
    for target, given, pointer in (
        ("ship", '{"order": "x", "to": "Bern"}', "/order"),
        ("ship", '{"order": 1, "two": 2}', "/two"),
        ("ship", '{"order": 1}', ""),
        ("ship", "3", ""),
        ("count", '"x"', ""),
    ):
        assert refused(invoke, "run", f"m.py:{target}", "-i", given) == {pointer: "parameters"}


def test_a_server_lists_the_same(invoke: Invoke, folder: Path, server: str) -> None:
    write(folder, order_yaml=ORDER)
    invoke("deploy", "order.yaml", "--server", server)
    assert refused(invoke, "run", "order.yaml", "-i", WRONG, "--server", server) == PLACES
    assert refused(invoke, "start", "order", "-i", WRONG, "--server", server) == PLACES
    body = {"workflow": "order", "input": json.loads(WRONG)}
    answer = httpx.post(f"{server}/v1/executions", json=body)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (422, InvalidInput.code)
    assert {each["pointer"]: each["rule"] for each in told["findings"]} == PLACES
    assert told["errors"] == told["findings"]
    with Client(server) as client, pytest.raises(InvalidInput) as raised:
        client.start("order", json.loads(WRONG))
    assert {each.pointer: each.rule for each in raised.value.findings} == PLACES


def test_decisions_that_do_not_fit_their_form_have_places(invoke: Invoke, folder: Path) -> None:
    form = "{type: object, required: [amount], properties: {amount: {type: number}}}"
    asking = (
        f"name: ask\nnodes:\n  - {{id: gate, type: approval, parameters: {{message: Pay?, form: {form}}}}}\n"
    )
    write(folder, ask_yaml=asking)
    invoke("run", "ask.yaml", "--timeout", "1s", "-q")
    assert refused(invoke, "approve", "last", "--data", '{"amount": "a lot"}') == {"/data/amount": "form"}


def test_other_refusals_have_no_list(invoke: Invoke, folder: Path) -> None:
    assert "findings" not in json.loads(invoke("show", "nothing", "--json").stdout)

"""``dalsegno move`` and what ``validate --against-live`` says of moves, over a store and over a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.handle import Handle
from tests.cli.conftest import Invoke
from tests.server.conftest import LiveServer

OLD = 'workflow order(inputs) {\n  let word = await Signal.when("go")\n  return ["old", word]\n}\n'
NEW = OLD.replace("  let word", "  let n = inputs.n\n  let word").replace('"old"', '"new"')
GONE = 'workflow order(inputs) {\n  return "gone"\n}\n'
PATIENCE = 20.0


@pytest.fixture
def app(folder: Path) -> Iterator[App]:
    made = App(f"sqlite:///{folder}/orders.db")
    with made.running():
        yield made


@pytest.fixture(params=["store", "server"])
def place(request: pytest.FixtureRequest, app: App) -> Iterator[list[str]]:
    if request.param == "store":
        yield ["--store", app.url]
        return
    with LiveServer(App(app.url)) as server:
        yield ["--server", server.url]


def waiting(app: App, count: int) -> list[Handle[Any]]:
    app.deploy_script(OLD)
    handles = [app.start("order", n=n) for n in range(count)]
    until(lambda: all(any(wait.kind == "signal" for wait in handle.why()) for handle in handles))
    return handles


def until(holds: Callable[[], bool]) -> None:
    import time

    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_executions_are_checked_and_moved(app: App, place: list[str], invoke: Invoke) -> None:
    handles = waiting(app, 3)
    app.deploy_script(NEW)
    app.deploy_script(GONE)

    checked = invoke("move", "order", "--from", "1", "--to", "2", "--dry-run", *place)
    assert (checked.exit_code, checked.stdout) == (
        0,
        "order: 3 executions of version 1 could be moved to version 2\n",
    )
    one = invoke("move", handles[0].id, "--to", "2", *place)
    assert (one.exit_code, "goes on in line 3" in one.stdout) == (0, True)
    assert f"moved {handles[0].id} from version 1 to version 2" in one.stdout
    again = invoke("move", handles[0].id, "--to", "2", *place)
    assert (again.exit_code, again.stdout) == (0, f"{handles[0].id} has version 2 already\n")
    refused = invoke("move", handles[0].id, "--to", "latest", *place)
    assert refused.exit_code == 2
    assert "is not at this place of the new version" in " ".join(refused.stderr.split())

    many = invoke("move", "order", "--from", "1", "--to", "2", "--json", *place)
    told = json.loads(many.stdout)
    assert (many.exit_code, told["moved"], told["refusals"], told["to_version"]) == (0, 2, [], 2)
    nowhere = invoke("move", "order", "--from", "2", "--to", "3", *place)
    assert nowhere.exit_code == 1
    assert "3 executions cannot go on there" in nowhere.stdout
    assert 'old, line 3: let word = await Signal.when("go")' in nowhere.stdout
    assert "moved    from version 1 to 2 at line 3" in invoke("show", handles[0].id, *place).stdout
    for handle in handles:
        handle.signal("go", "yes")
    assert [handle.result(PATIENCE) for handle in handles] == [["new", "yes"]] * 3


def test_a_document_is_compared_with_executions_in_flight(
    app: App, folder: Path, place: list[str], invoke: Invoke
) -> None:
    waiting(app, 2)
    file = folder / "order.flow"

    def validated(source: str) -> tuple[int, dict[str, Any]]:
        file.write_text(source)
        said = invoke("validate", str(file), "--against-live", "--json", *place)
        return said.exit_code, json.loads(said.stdout)

    code, told = validated(NEW)
    assert (code, [report["moved"] for report in told["moves"]]) == (0, [2])
    assert (told["moves"][0]["from_version"], told["moves"][0]["to_version"]) == (1, 2)
    code, told = validated(GONE)
    [report] = told["moves"]
    assert (code, report["moved"], len(report["refusals"])) == (1, 0, 2)
    assert report["refusals"][0]["reasons"][0]["old_text"] == 'let word = await Signal.when("go")'
    code, told = validated(OLD)
    assert (code, told["moves"]) == (0, [])
    assert [
        definition.version for definition in app.host.call(app.client.stack.archive.versions("order"))
    ] == [1]


def test_a_python_program_is_compared_with_executions_in_flight(
    folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = folder / "shop_of_moves.py"
    source = (
        "from dalsegno import App, signal\n\napp = App()\n\n\n@app.workflow\nasync def buy(n: int):\n"
        "    {first}\n    return [{last}]\n"
    )
    program.write_text(source.format(first='word = await signal("go")', last="word"))
    store = f"sqlite:///{folder}/shop.db"
    from dalsegno.cli.modules import load_app

    shop = load_app("shop_of_moves.py")
    shop.url = store
    with shop.running():
        handle = shop.start("buy", 1)
        until(lambda: any(wait.kind == "signal" for wait in handle.why()))

    def validated(**parts: str) -> tuple[int, dict[str, Any]]:
        import sys

        program.write_text(source.format(**parts))
        monkeypatch.delitem(sys.modules, "shop_of_moves", raising=False)
        said = invoke("validate", "shop_of_moves.py", "--against-live", "--json", "--store", store)
        return said.exit_code, json.loads(said.stdout)

    code, told = validated(first='word = await signal("go")', last="word, n")
    assert (code, told["moves"][0]["moved"]) == (1, 0)
    assert "reads the variable 'n'" in told["moves"][0]["refusals"][0]["reasons"][0]["message"]
    code, told = validated(first='word = await signal("go")', last="word, word")
    assert (code, told["moves"][0]["moved"], told["lacking"]) == (0, 1, [])

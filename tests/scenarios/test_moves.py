"""Executions that wait go on with another version of their code: the same execution, nothing lost, nothing doubled."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno import App, WorkflowFailed, signal
from dalsegno.engine.operations import moves
from dalsegno.engine.operations.moves import MoveReport
from dalsegno.engine.secrets.keys import KEY_VARIABLE, new_key
from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import Stage

LANGUAGES = pytest.mark.parametrize("language", ["script", "python"])
PATIENCE = 15.0


class Shop:
    """One deployment of the program on a store: its tasks count their runs."""

    def __init__(self, url: str, runs: Counter[str]) -> None:
        self.app = App(url)

        async def charge(n: int) -> int:
            runs[f"charge {n}"] += 1
            return n * 100

        async def ship(n: int) -> str:
            runs[f"ship {n}"] += 1
            return f"sent {n}"

        self.charge, self.ship = self.app.task(charge), self.app.task(ship)


class Old(Shop):
    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge, ship = self.charge, self.ship

        @self.app.workflow(name="order")
        async def order(n: int) -> Any:
            paid = await charge(n)
            word = await signal("go")
            sent = await ship(n)
            return ["old", paid, word, sent]


class New(Shop):
    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge, ship = self.charge, self.ship

        @self.app.workflow(name="order")
        async def order(n: int) -> Any:
            if n < 0:
                raise ValueError("there is no such order")
            paid = await charge(n)
            word = await signal("go")
            sent = await ship(n)
            again = await ship(n + 1000)
            return ["new", paid, word, sent, again]


class Gone(Shop):
    """Nothing waits for the word any more."""

    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge, ship = self.charge, self.ship

        @self.app.workflow(name="order")
        async def order(n: int) -> Any:
            return ["gone", await charge(n), await ship(n)]


OLD = """let paid = await Task.run("charge", inputs.n)
let word = await Signal.when("go")
let sent = await Task.run("ship", inputs.n)
return ["old", paid, word, sent]"""
NEW = """if (inputs.n < 0) { throw "no order" }
let paid = await Task.run("charge", inputs.n)
let word = await Signal.when("go")
let sent = await Task.run("ship", inputs.n)
let again = await Task.run("ship", inputs.n + 1000)
return ["new", paid, word, sent, again]"""
GONE = 'return ["gone", await Task.run("charge", inputs.n), await Task.run("ship", inputs.n)]'
SOURCES: dict[type[Shop], str] = {Old: OLD, New: NEW, Gone: GONE}


class Deployments:
    """Deployments of the program on one store, one after another."""

    def __init__(self, url: str, language: str) -> None:
        self.url = url
        self.language = language
        self.runs: Counter[str] = Counter()

    def deploy(self, kind: type[Shop]) -> App:
        if self.language == "python":
            return kind(self.url, self.runs).app
        app = Shop(self.url, self.runs).app
        app.deploy_script(SOURCES[kind], "order")
        return app

    def start(self, app: App, n: int) -> Handle[Any]:
        return app.start("order", n) if self.language == "python" else app.start("order", n=n)

    def waiting(self, count: int) -> list[str]:
        """Start orders with the old version; each waits for its word."""
        with (app := self.deploy(Old)).running():
            handles = [self.start(app, n) for n in range(count)]
            for handle in handles:
                until(lambda handle=handle: waits_for_word(handle))
        return [handle.id for handle in handles]


def until(holds: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


def waits_for_word(handle: Handle[Any]) -> bool:
    return any(wait.kind == "signal" for wait in handle.why())


def move_all(app: App, old: int = 1, new: int = 2, **more: Any) -> MoveReport:
    return app.host.call(app.client.move_some("order", old, new, **more))


@LASTING
@LANGUAGES
def test_orders_that_wait_go_on_with_the_new_version(store_url: str, language: str) -> None:
    shops = Deployments(store_url, language)
    orders = shops.waiting(12)

    with (app := shops.deploy(New)).running():
        told = move_all(app, dry_run=True)
        assert (told.moved, told.refusals, told.dry_run) == (12, (), True)
        assert {app.handle(order).status().version for order in orders} == {1}

        first = app.handle(orders[0]).move(2)
        assert (first.state, first.from_version, first.to_version) == ("moved", 1, 2)
        assert ["go" in frame.new_text for frame in first.frames] == [True]
        assert app.handle(orders[0]).move("latest").state == "there"
        report = move_all(app)
        assert (report.moved, report.there, report.refusals, report.next) == (11, 0, (), None)
        assert move_all(app).moved == 0

        handles = [app.handle(order) for order in orders]
        assert {handle.status().version for handle in handles} == {2}
        assert {waits_for_word(handle) for handle in handles} == {True}
        for handle in handles:
            handle.signal("go", "yes")
        ends = [handle.result(PATIENCE) for handle in handles]
        events = handles[3].events()

    assert ends == [["new", n * 100, "yes", f"sent {n}", f"sent {n + 1000}"] for n in range(12)]
    assert set(shops.runs.values()) == {1}
    assert len(shops.runs) == 36
    [changed] = [event for event in events if event.kind == "VersionChanged"]
    facts = msgspec.json.decode(changed.data or b"{}")
    assert (facts["from"], facts["to"]) == (1, 2)
    assert facts["line"] > facts["from_line"]


@LANGUAGES
def test_what_has_no_place_in_the_new_version_stays(tmp_path: Path, language: str) -> None:
    shops = Deployments(f"sqlite:///{tmp_path / 'orders.db'}", language)
    orders = shops.waiting(3)

    with (app := shops.deploy(Gone)).running():
        report = move_all(app)
        with pytest.raises(Conflict, match="is not at this place of the new version") as refused:
            app.handle(orders[0]).move(2)
    with (app := shops.deploy(Old)).running():
        for order in orders:
            app.handle(order).signal("go", "yes")
        ends = [app.handle(order).result(PATIENCE) for order in orders]

    assert (report.moved, len(report.refusals)) == (0, 3)
    refusal = report.refusals[0]
    assert "'go'" in refusal.reasons[0].old_text or '"go"' in refusal.reasons[0].old_text
    assert f"old, line {refusal.reasons[0].old_line}: " in str(refused.value)
    assert "start it again from the beginning" not in refusal.detail
    assert {end[0] for end in ends} == {"old"}


def test_a_chunk_goes_on_where_the_one_before_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "PAGE", 3)
    shops = Deployments(f"sqlite:///{tmp_path / 'orders.db'}", "script")
    shops.waiting(7)
    with (app := shops.deploy(New)).running():
        app.start("order", n=-1).wait(PATIENCE)
        cursor, moved = None, []
        while True:
            report = move_all(app, cursor=cursor, limit=2)
            moved.append(report.moved)
            cursor = report.next
            if cursor is None:
                break
        assert (sum(moved), max(moved)) == (7, 2)
        with pytest.raises(InvalidInput, match="was not given out by a move"):
            move_all(app, cursor="next")


def test_a_running_turn_goes_on_with_the_new_version(stage: Stage) -> None:
    """The move comes while a task runs: the worker that has the old machine in memory notices."""
    first, then = 'let a = await Task.run("hold", "held")', 'let b = await Task.run("hold", "again")'
    stage.app.deploy_script(f'{first}\n{then}\nreturn ["old", a, b]', "held")
    handle = stage.app.start("held")
    stage.until_comers(handle, "held")
    stage.app.deploy_script(f'let x = 7\n{first}\nx = 8\n{then}\nreturn ["new", a, b, x]', "held")

    assert handle.move(2).state == "moved"
    stage.door("held").open()
    stage.until_comers(handle, "again")
    stage.app.deploy_script(f'let x = 7\n{first}\nx = 9\n{then}\nreturn ["newer", a, b, x]', "held")
    assert handle.move(3).state == "moved"
    stage.door("again").open()

    assert handle.result(PATIENCE) == ["newer", "held", "again", 8]
    assert [len(stage.door(name).comers) for name in ("held", "again")] == [1, 1]


def test_only_scripts_that_have_not_ended_are_moved(stage: Stage) -> None:
    stage.app.deploy_script("return 1", "quick")
    stage.app.deploy(
        {
            "name": "graph",
            "nodes": [{"id": "it", "type": "wait", "parameters": {"amount": 1, "unit": "days"}}],
        }
    )
    quick, graph = stage.app.start("quick"), stage.app.start("graph")
    quick.result(PATIENCE)
    stage.app.deploy_script("return 2", "quick")

    with pytest.raises(Conflict, match=r"it has ended \(COMPLETED\)"):
        quick.move(2)
    with pytest.raises(Conflict, match="only scripts and Python workflows"):
        graph.move(1)
    with pytest.raises(Conflict, match="is a graph"):
        stage.app.host.call(stage.app.client.move_some("graph", 1, 1))
    with pytest.raises(NotFound):
        stage.app.host.call(stage.app.client.move_some("quick", 9, 2))
    with pytest.raises(InvalidInput, match="both the old and the new"):
        stage.app.host.call(stage.app.client.move_some("quick", 2, 2))


def test_an_execution_that_has_not_begun_begins_with_the_new_version(stage: Stage) -> None:
    stage.app.deploy_script('return ["old", inputs]', "later")
    handle = stage.app.with_options(delay="1h").start("later", n=1)
    stage.app.deploy_script('```\ninput_schema: {required: [n]}\n```\nreturn ["new", inputs.n]', "later")
    wrong = stage.app.with_options(delay="1h", version=1).start("later", m=1)

    assert handle.move(2).state == "moved"
    with pytest.raises(Conflict, match="input_schema"):
        wrong.move(2)
    stage.pass_time(3601)

    assert handle.result(PATIENCE) == ["new", 1]
    assert wrong.result(PATIENCE)[0] == "old"


def test_a_paused_execution_is_moved(stage: Stage) -> None:
    stage.app.deploy_script('let word = await Signal.when("go")\nreturn ["old", word]', "held")
    handle = stage.app.start("held")
    stage.until_event(handle, "Suspended", "signal go")
    handle.pause()
    handle.signal("go", 7)
    stage.app.deploy_script('let word = await Signal.when("go")\nreturn ["new", word]', "held")

    assert handle.move(2).state == "moved"
    handle.resume()

    assert handle.result(PATIENCE) == ["new", 7]


def test_a_moved_execution_is_retried_from_its_failure(stage: Stage) -> None:
    stage.app.deploy_script('let word = await Signal.when("go")\nreturn word.a.b', "held")
    handle = stage.app.start("held")
    stage.until_event(handle, "Suspended", "signal go")
    stage.app.deploy_script('let word = await Signal.when("go")\nreturn word.c.d', "held")
    handle.move(2)
    handle.signal("go", {"e": 1})
    with pytest.raises(WorkflowFailed):
        handle.result(PATIENCE)
    stage.app.deploy_script('let word = await Signal.when("go")\nreturn word.e', "held")

    again = handle.retry(version=3)

    assert again.result(PATIENCE) == 1


def test_a_moved_python_workflow_is_sealed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    shops = Deployments(f"sqlite:///{tmp_path / 'orders.db'}", "python")
    (order,) = shops.waiting(1)
    with (app := shops.deploy(New)).running():
        assert app.handle(order).move(2).state == "moved"
    with (app := shops.deploy(New)).running():
        app.handle(order).signal("go", "yes")
        assert app.handle(order).result(PATIENCE)[0] == "new"

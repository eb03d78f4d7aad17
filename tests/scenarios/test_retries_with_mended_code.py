"""A retry with another version of the code: the kept machine goes on where the mended code stands, or is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.engine.scripts import moving
from dalsegno.engine.secrets.keys import KEY_VARIABLE, new_key
from dalsegno.engine.starting.moving import MoveChecks
from dalsegno.errors import Conflict, InvalidInput, KeyReused
from tests.scenarios.conftest import LASTING, ONE_STACK
from tests.scenarios.stage import Stage

LANGUAGES = pytest.mark.parametrize("language", ["script", "python"])
PATIENCE = 15.0


class Shop:
    """One deployment of the shop's program on a store: its tasks count their runs."""

    def __init__(self, url: str, runs: Counter[str]) -> None:
        self.app = App(url)

        async def charge(order: dict[str, Any]) -> dict[str, Any]:
            runs[f"charge {order['n']}"] += 1
            return {"of": order["n"], "to": {"street": "Elm Street"}}

        async def ship(to: dict[str, Any]) -> str:
            runs["ship"] += 1
            return f"sent to {to['street']}"

        self.charge, self.ship = self.app.task(charge), self.app.task(ship)


class Broken(Shop):
    """The first version reads a field that is not there."""

    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge, ship = self.charge, self.ship

        @self.app.workflow(name="order")
        async def order(n: int) -> str:
            paid = await charge({"n": n})
            return await ship(paid["adress"])


class Mended(Shop):
    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge, ship = self.charge, self.ship

        @self.app.workflow(name="order")
        async def order(n: int) -> str:
            if n < 0:
                raise ValueError("there is no such order")
            paid = await charge({"n": n})
            return await ship(paid["to"])


class Other(Shop):
    """A version in which nothing is charged any more."""

    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        ship = self.ship

        @self.app.workflow(name="order")
        async def order(n: int) -> str:
            return await ship({"street": str(n)})


BROKEN = (
    'let paid = await Task.run("charge", {n: inputs.n})\nreturn await Task.run("ship", paid.adress.street)'
)
MENDED = (
    'if (inputs.n < 0) { throw "no order" }\n'
    'let paid = await Task.run("charge", {n: inputs.n})\n'
    'return await Task.run("ship", paid.to)'
)
OTHER = 'return await Task.run("ship", {street: `${inputs.n}`})'
SOURCES: dict[type[Shop], str] = {Broken: BROKEN, Mended: MENDED, Other: OTHER}


class Deployments:
    """Deployments of the shop on one store, one after another."""

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

    def failed(self, count: int = 1, kind: type[Shop] = Broken) -> list[str]:
        with (app := self.deploy(kind)).running():
            handles = [app.start("order", {"n": n} if self.language == "script" else n) for n in range(count)]
            assert [handle.wait(PATIENCE).state for handle in handles] == ["FAILED"] * count
        return [handle.id for handle in handles]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'orders.db'}"


@LASTING
@LANGUAGES
def test_orders_that_failed_by_a_bug_go_on_with_the_mended_code(store_url: str, language: str) -> None:
    shops = Deployments(store_url, language)
    orders = shops.failed(20)
    assert shops.runs == {f"charge {n}": 1 for n in range(20)}

    with (app := shops.deploy(Mended)).running():
        plan = app.host.call(app.client.preview_retry(orders[0], version="latest"))
        assert (plan.version, plan.starts_over, len(plan.frames)) == (2, False, 1)
        assert ("charge" in plan.frames[0].old_text, "charge" in plan.frames[0].new_text) == (True, True)
        assert plan.frames[0].new_line != plan.frames[0].old_line
        again = [app.handle(order).retry(version="latest") for order in orders]
        assert {handle.result(PATIENCE) for handle in again} == {"sent to Elm Street"}
        views = [handle.status() for handle in again]

    assert shops.runs == {**{f"charge {n}": 1 for n in range(20)}, "ship": 20}
    assert {(view.version, view.relation) for view in views} == {(2, "retry")}
    assert [view.parent for view in views] == orders


def test_a_retry_without_a_version_keeps_its_own(url: str) -> None:
    shops = Deployments(url, "script")
    (order,) = shops.failed()
    with (app := shops.deploy(Mended)).running():
        again = app.handle(order).retry()
        assert (again.wait(PATIENCE).state, again.status().version) == ("FAILED", 1)
        mended = again.retry(version=2)
        assert (mended.result(PATIENCE), mended.status().version) == ("sent to Elm Street", 2)
    assert shops.runs["charge 0"] == 1


@LANGUAGES
def test_what_has_no_place_in_the_new_code_is_refused_with_both_lines(url: str, language: str) -> None:
    shops = Deployments(url, language)
    (order,) = shops.failed()
    with (app := shops.deploy(Other)).running():
        with pytest.raises(Conflict) as refused:
            app.handle(order).retry(version="latest")
        assert [handle.id for handle in app.executions()] == [order]
        over = app.handle(order).retry(version="latest", from_start=True)
        assert over.result(PATIENCE) == "sent to 0"

    told = str(refused.value)
    assert "version 1 of 'order' cannot continue in version 2 of 'order'" in told
    assert "old, line" in told
    assert "charge" in told
    assert "--from-start" in told


@LANGUAGES
def test_a_retry_that_could_not_be_checked_ends_with_the_reasons(
    url: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shops = Deployments(url, language)
    (order,) = shops.failed()

    async def cannot(*_: object) -> None:
        return None

    with (app := shops.deploy(Other)).running():
        with monkeypatch.context() as patched:
            patched.setattr(MoveChecks, "find", cannot)
            again = app.handle(order).retry(version="latest")
        view = again.wait(PATIENCE)
        assert view.state == "FAILED"
        assert view.error is not None
        assert b"MOVE_REFUSED" in view.error
        assert b"cannot continue in version 2" in view.error
        with pytest.raises(Conflict, match="cannot continue in version 2"):
            again.retry()

    with (app := shops.deploy(Mended)).running():
        assert app.handle(again.id).retry(version="latest").result(PATIENCE) == "sent to Elm Street"
    assert shops.runs["charge 0"] == 1


class Long(Shop):
    """With a variable that is too large for a row."""

    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge = self.charge

        @self.app.workflow(name="order")
        async def order(n: int) -> int:
            note = str(n) * 500_000
            paid = await charge({"n": n})
            return len(note) + int(paid["adress"])


class LongMended(Shop):
    def __init__(self, url: str, runs: Counter[str]) -> None:
        super().__init__(url, runs)
        charge = self.charge

        @self.app.workflow(name="order")
        async def order(n: int) -> int:
            note = str(n) * 10
            paid = await charge({"n": n})
            return len(note) + int(paid["of"])


def test_a_sealed_machine_with_a_large_value_is_moved(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    shops = Deployments(url, "python")
    (order,) = shops.failed(kind=Long)
    with (app := shops.deploy(LongMended)).running():
        assert app.handle(order).retry(version="latest").result(PATIENCE) == 500_000
    assert shops.runs == {"charge 0": 1}


@LANGUAGES
def test_a_key_means_one_version(url: str, language: str) -> None:
    shops = Deployments(url, language)
    (order,) = shops.failed()
    with (app := shops.deploy(Mended)).running():
        handle = app.handle(order)
        first = handle.retry(version=2, idempotency_key="k")
        assert handle.retry(version=2, idempotency_key="k").id == first.id
        assert handle.retry(version="latest", idempotency_key="k").id == first.id
        for other in (1, None):
            with pytest.raises(KeyReused, match="version 2, not 1"):
                handle.retry(version=other, idempotency_key="k")
        first.wait(PATIENCE)


@ONE_STACK
def test_a_large_script_is_moved_outside_of_the_event_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its check runs in a subprocess, and so does the first turn of the retry."""
    monkeypatch.setattr(moving, "SMALL", 0)
    first = stage.start_script('let done = await Task.run("echo", 1)\nreturn done.to.street')
    assert stage.end_of(first).state == "FAILED"
    stage.app.deploy_script('let done = await Task.run("echo", 1)\nreturn done + 1', "script")
    assert stage.end_of(first.retry(version=2)).output == 2
    assert stage.app.engine.client.offload.processes == 1


@ONE_STACK
def test_the_migration_of_a_script_gives_new_variables(stage: Stage) -> None:
    first = stage.start_script('let n = 20\nlet done = await Task.run("echo", 1)\nreturn done.to.street + n')
    assert stage.end_of(first).state == "FAILED"
    mended = 'let sum = 0\nlet done = await Task.run("echo", 1)\nreturn done + sum'
    migrate = "\nfunction migrate(variables, version) { return { sum: variables.n + version } }"
    stage.app.deploy_script(mended, "script")
    with pytest.raises(Conflict, match="reads the variable 'sum'"):
        first.retry(version=2)
    stage.app.deploy_script(mended + migrate, "script")
    assert stage.end_of(first.retry(version=3)).output == 22


def test_the_migration_of_a_python_workflow_gives_new_variables(url: str) -> None:
    runs: Counter[str] = Counter()
    (order,) = Deployments(url, "python").failed()
    with (
        (app := _migrated(url, runs, gives=False)).running(),
        pytest.raises(Conflict, match="reads the variable 'total'"),
    ):
        app.handle(order).retry(version="latest")
    with (app := _migrated(url, runs, gives=True)).running():
        assert app.handle(order).retry(version="latest").result(PATIENCE) == "sent to 100 of Elm Street"
    assert runs == {"ship": 1}


def _migrated(url: str, runs: Counter[str], *, gives: bool) -> App:
    shop = Shop(url, runs)
    charge, ship = shop.charge, shop.ship

    @shop.app.workflow(name="order")
    async def order(n: int) -> str:
        total = n + 1
        paid = await charge({"n": n})
        return await ship({"street": f"{total} of {paid['to']['street']}"})

    if gives:

        @order.migrate(from_version=1)
        def _(variables: dict[str, Any]) -> dict[str, Any]:
            return {"total": 100}

    return shop.app


@ONE_STACK
def test_a_task_has_no_versions(stage: Stage) -> None:
    handle = stage.app.handle(stage.app.host.call(stage.app.client.start_task("fail", None)))
    stage.end_of(handle)
    with pytest.raises(InvalidInput, match="has no versions"):
        handle.retry(version=2)


def test_a_workflow_that_became_a_graph_cannot_take_over_a_machine(url: str) -> None:
    shops = Deployments(url, "script")
    (order,) = shops.failed()
    with (app := Shop(url, shops.runs).app).running():
        app.deploy({"name": "order", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "x"}}]})
        with pytest.raises(Conflict, match="is a graph"):
            app.handle(order).retry(version="latest")

"""Credentials in running workflows: graphs, scripts and Python, in threads and on the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App, WorkflowFailed
from dalsegno.engine.secrets import NewCredential
from dalsegno.engine.steps.run_node import LONGEST_TRACED_MESSAGE
from dalsegno.ports.node import NodeContext

TOKEN = "t0ken-of-the-crm"


def build(url: str) -> App:
    app = App(url)

    @app.task
    async def measured(ctx: NodeContext, name: str) -> int:
        return len((await ctx.acredential(name))["token"])

    @app.task
    def measured_in_a_thread(ctx: NodeContext, name: str) -> int:
        return len(ctx.credential(name)["token"])

    @app.task
    async def own(ctx: NodeContext) -> int:
        return len((await ctx.acredential())["token"])

    @app.task
    async def blocking(ctx: NodeContext) -> str:
        return ctx.credential("crm")["token"]

    @app.task
    async def told(ctx: NodeContext, name: str) -> str:
        return f"it is {(await ctx.acredential(name))['token']}"

    @app.task
    async def raised(ctx: NodeContext, name: str) -> None:
        """Where a message is cut, half of the value would be left: it stands across the border."""
        token = (await ctx.acredential(name))["token"]
        try:
            raise KeyError(f"{'.' * (LONGEST_TRACED_MESSAGE - 6)}{token}")
        except KeyError as error:
            error.add_note(f"it is {token}")
            raise ExceptionGroup("several", [ValueError(f"it is {token}")]) from error

    @app.task
    async def returned(ctx: NodeContext, name: str) -> Any:
        return await ctx.acredential(name)

    @app.workflow
    async def in_python(name: str) -> Any:
        return [await measured(name), await measured_in_a_thread(name), await told(name)]

    @app.workflow
    async def in_traceback(name: str) -> None:
        await raised(name)

    return app


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    made = build("memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'runs.db'}")
    made.makes_secret_key = True
    with made.running():
        put(made, NewCredential("crm", "bearer", {"token": TOKEN}, ("127.0.0.1",), ("*",)))
        put(made, NewCredential("billing", "bearer", {"token": TOKEN}, ("*",), ("billing-*",)))
        yield made


def put(app: App, new: NewCredential) -> None:
    app.host.call(app.engine.vault.put(new))


def graph(task: str, given: Any = "crm", name: str = "graph", **fields: Any) -> dict[str, Any]:
    parameters = {"task": task, "input": given}
    return {"name": name, "nodes": [{"id": "n", "type": "task", "parameters": parameters, **fields}]}


def run_graph(app: App, document: dict[str, Any]) -> Any:
    app.deploy(document)
    return app.start(document["name"]).result(timeout=20)


def failure(run: Callable[[], Any]) -> dict[str, Any]:
    with pytest.raises(WorkflowFailed) as caught:
        run()
    return caught.value.error


@pytest.mark.parametrize("task", ["measured", "measured_in_a_thread"])
def test_a_task_of_a_graph_asks_for_a_credential(app: App, task: str) -> None:
    assert run_graph(app, graph(task)) == len(TOKEN)


@pytest.mark.parametrize("written", [{"ref": "crm"}, "crm"])
def test_a_task_takes_the_credential_that_its_node_names(app: App, written: Any) -> None:
    assert run_graph(app, graph("own", None, credentials=written)) == len(TOKEN)
    assert "crm" in str(app.host.call(app.client.stack.archive.definition("graph")))


def test_a_script_and_a_python_workflow(app: App) -> None:
    app.deploy_script('workflow s(i) { return [await Task.run("measured", i), await Task.run("told", i)] }')
    assert app.start("s", "crm").result(timeout=20) == [len(TOKEN), "it is [secret crm]"]
    assert app.start("in_python", "crm").result(timeout=20) == [len(TOKEN), len(TOKEN), "it is [secret crm]"]


def test_a_script_inside_a_graph_counts_as_the_graph(app: App) -> None:
    source = 'return await Task.run("told", "billing")'
    nodes = [{"id": "n", "type": "script", "parameters": {"source": source}}]
    assert run_graph(app, {"name": "billing-eu", "nodes": nodes}) == "it is [secret billing]"
    assert failure(lambda: run_graph(app, {"name": "other", "nodes": nodes}))["code"] == "DS-341"


def test_an_unknown_credential_fails_the_node_with_its_name(app: App) -> None:
    error = failure(lambda: run_graph(app, graph("measured", "nobody")))
    assert (error["code"], error["node"]) == ("DS-340", "n")
    assert "'nobody'" in error["message"]
    assert failure(lambda: run_graph(app, graph("own", None)))["code"] == "DS-340"


def test_only_listed_workflows_get_it(app: App) -> None:
    assert run_graph(app, graph("measured", "billing", "billing-eu")) == len(TOKEN)
    error = failure(lambda: run_graph(app, graph("measured", "billing", "shipping")))
    assert (error["code"], "workflow 'shipping'" in error["message"]) == ("DS-341", True)
    app.deploy_script('workflow s(i) { try { await Task.run("told", i) } catch (e) { return e.code } }')
    assert app.start("s", "billing").result(timeout=20) == "DS-341"
    app.deploy_script('workflow billing_x(i) { return await Task.run("told", i) }', "billing-x")
    app.deploy_script('return await Task.run("told", "billing")', "billing-y")
    assert app.start("billing-y").result(timeout=20) == "it is [secret billing]"


def test_a_blocking_call_on_the_loop_is_refused_with_advice(app: App) -> None:
    error = failure(lambda: run_graph(app, graph("blocking", None)))
    assert "await ctx.acredential" in error["message"]


def test_the_credential_itself_cannot_be_returned_with_its_values(app: App) -> None:
    found = failure(lambda: run_graph(app, graph("returned")))
    assert TOKEN not in str(found)


def test_a_library_node_in_a_script_names_a_credential(app: App) -> None:
    app.deploy_script('return await Node.run("http", {url: "http://10.0.0.1/", credential: "crm"})', "far")
    error = failure(lambda: app.start("far").result(timeout=20))
    assert (error["code"], "10.0.0.1" in error["message"]) == ("DS-341", True)


async def test_a_worker_that_never_saw_the_script_knows_its_name(tmp_path: Path) -> None:
    """Tasks may run on queues of their own, in processes that never load the workflow."""
    desk = App(f"sqlite:///{tmp_path / 'two.db'}")
    desk.makes_secret_key = True
    await desk.host_here()
    await desk.engine.vault.put(NewCredential("crm", "bearer", {"token": TOKEN}, ("*",), ("mine",)))
    program = await desk.adeploy_script('return await Task.run("told", "crm")', "mine")
    await desk.aclose()
    app = build(desk.url)
    async with app.running():
        handle = await app.astart("mine")
        app.engine.definitions._scripts._drop(program.hash)
        assert await handle.aresult(timeout=20) == "it is [secret crm]"
        assert await app.engine.vault.workflow_of(program.hash) == "mine"
        assert await app.engine.vault.workflow_of("") is None


def test_traceback_shows_no_value_of_a_credential(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dalsegno.steps")
    handle = app.start("in_traceback", "crm")

    with pytest.raises(WorkflowFailed) as failed:
        handle.result(timeout=20)

    told = failed.value.traceback
    assert "ExceptionGroup: several" in told
    assert "direct cause" in told
    assert told.count("it is [secret crm]") == 2
    for text in (told, caplog.text, str(handle.events())):
        assert TOKEN not in text
        assert TOKEN[:5] not in text

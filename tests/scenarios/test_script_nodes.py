"""Scripts as nodes of graphs, and all kinds of workflows calling each other."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno import run
from dalsegno.errors import Conflict, InvalidDefinition, NotFound
from dalsegno.ports.archive import ExecutionFilter
from tests.scenarios.documents import aggregator, echo, fail, graph, hold, split
from tests.scenarios.stage import Stage


def script(source: str, input: Any = ..., **fields: Any) -> dict[str, Any]:
    given = {} if input is ... else {"input": input}
    return {"type": "script", "parameters": {"source": source, **given}, **fields}


def test_a_script_node_puts_out_what_the_script_returns(stage: Stage) -> None:
    source = """
    let total = 0
    for (let n of inputs.numbers) { total += await Task.run("echo", n) }
    return {total, text: `${total} {{ not a template }}`}
    """
    document = graph(
        "a > s > b",
        {"a": echo([1, 2, 3]), "s": script(source, {"numbers": "{{ $a }}"}), "b": echo("{{ $s.total }}")},
    )
    ended = stage.run(document)
    assert ended.output == 6
    assert ended.context["$s"] == {"total": 6, "text": "6 {{ not a template }}"}


def test_a_script_gets_what_came_over_the_edge(stage: Stage) -> None:
    assert stage.run(graph("a > s", {"a": echo({"n": 4}), "s": script("return inputs.n + 1")})).output == 5


def test_the_scripts_error_is_the_nodes_error(stage: Stage) -> None:
    ended = stage.run(graph("s", {"s": script('throw {code: "TOO_LATE", message: "sorry", data: [1]}', {})}))
    assert (ended.state, ended.error["node"]) == ("FAILED", "s")
    assert (ended.error["code"], ended.error["message"]) == ("TOO_LATE", "sorry")


def test_a_script_node_retries_and_branches_like_any_other(stage: Stage) -> None:
    node = script('throw {code: "NO", message: "no"}', {}, retry={"max_attempts": 2, "initial_delay": 1})
    handle = stage.start(graph("s > a, s !> b", {"s": {**node, "error": {"type": "branch"}}}))
    stage.until_event(handle, "NodeRetrying", "s")
    stage.pass_time(2)
    assert stage.end_of(handle).states == {"s": "FAILED", "a": "SKIPPED", "b": "COMPLETED"}


def test_a_script_waits_for_timers_and_signals_of_its_own_execution(stage: Stage) -> None:
    handle = stage.start(graph("s", {"s": script('return await Signal.next("go")', {})}))
    where = ExecutionFilter(parent=handle.id)
    stage.until("the child", handle, lambda: stage.app.host.call(stage.app.client.executions(where)))
    [view] = stage.app.host.call(stage.app.client.executions(where))
    assert (view.workflow, view.kind, view.relation) == ("scenario/s", "script", "child")
    stage.app.handle(view.id).signal("go", 3)
    assert stage.end_of(handle).output == 3


def test_a_cancelled_graph_lets_its_script_clean_up(stage: Stage) -> None:
    source = """
    try { await Timer.delay("1h") }
    catch (e) { await Task.run("note", e.code) }
    """
    handle = stage.start(graph("s", {"s": script(source, {})}))
    where = ExecutionFilter(parent=handle.id)
    stage.until("the child", handle, lambda: stage.app.host.call(stage.app.client.executions(where)))
    [view] = stage.app.host.call(stage.app.client.executions(where))
    one = stage.app.handle(view.id)
    stage.until_event(one, "Suspended", "timer")
    handle.cancel()
    assert stage.end_of(one).state == "CANCELLED"
    assert stage.seen == ["CancelledError"]


def test_every_item_runs_its_own_script(stage: Stage) -> None:
    nodes = {"s": split([1, 2, 3]), "x": script("return inputs * 2", "{{ $item }}"), "g": aggregator()}
    assert stage.run(graph("s > x > g", nodes)).output == [2, 4, 6]


def test_in_flight_graphs_keep_the_script_they_were_deployed_with(stage: Stage) -> None:
    def document(number: int) -> Any:
        return graph("h > s", {"h": hold("gate"), "s": script(f"return {number}", {})})

    handle = stage.start(document(1))
    stage.until_comers(handle, "gate")
    stage.app.deploy(document(2))
    stage.door("gate").open()
    assert stage.end_of(handle).output == 1
    assert stage.run(document(2)).output == 2


def test_all_findings_of_a_script_come_with_their_place(stage: Stage) -> None:
    document = graph("a > s", {"s": script("let x = 1\nreturn missing + another")})
    with pytest.raises(InvalidDefinition) as caught:
        stage.app.deploy(document)
    errors = [finding for finding in caught.value.findings if finding.severity == "error"]
    assert [(finding.pointer, finding.rule) for finding in errors] == [
        ("/nodes/1/parameters/source", "script-undefined-variable"),
        ("/nodes/1/parameters/source", "script-undefined-variable"),
    ]
    assert "line 2, column 8" in errors[0].message
    assert "line 2, column 18" in errors[1].message


def test_a_syntax_error_in_a_script_stores_nothing(stage: Stage) -> None:
    with pytest.raises(InvalidDefinition, match=r"line 1, column \d+"):
        stage.app.deploy(graph("s", {"s": script("return (1 +")}))
    with pytest.raises(NotFound):
        stage.app.start("scenario")


def test_scripts_inside_graphs_are_not_listed_among_workflows(stage: Stage) -> None:
    stage.app.deploy(graph("s", {"s": script("return 1")}))
    with pytest.raises(NotFound) as caught:
        stage.app.start("nothing")
    assert str(caught.value).endswith("deployed here: 'scenario'")


def test_a_script_cannot_take_the_name_of_a_workflow(stage: Stage) -> None:
    stage.app.deploy({**graph("a"), "name": "scenario/s"})
    with pytest.raises(Conflict, match="rename the node"):
        stage.app.deploy(graph("s", {"s": script("return 1")}))


async def through_python(n: int) -> int:
    """A Python workflow that runs a graph."""
    return 100 + await run("last", n=n + 1)


def test_graphs_scripts_and_python_call_each_other(stage: Stage) -> None:
    stage.app.deploy({**graph("x", {"x": echo("{{ $trigger.n + 1 }}")}), "name": "last"})
    stage.app.workflow(through_python)
    stage.app.host.call(stage.app.workflows.ensure(stage.app.client, "through_python"))
    source = 'return 10 * await Workflow.run("through_python", inputs.n + 1)'
    ended = stage.run(graph("s", {"s": script(source, {"n": 1})}))
    assert ended.output == 1040


def test_an_error_comes_back_through_all_of_them(stage: Stage) -> None:
    stage.app.deploy({**graph("x", {"x": fail("no money", "DECLINED")}), "name": "last"})
    stage.app.workflow(through_python)
    stage.app.host.call(stage.app.workflows.ensure(stage.app.client, "through_python"))
    source = 'return await Workflow.run("through_python", 1)'
    ended = stage.run(graph("s", {"s": script(source, {})}))
    assert (ended.error["code"], ended.error["message"]) == ("DECLINED", "no money")


# -- nodes in scripts -----------------------------------------------------------------------------------------


def test_a_script_runs_nodes_of_the_library(stage: Stage) -> None:
    source = """
    let dear = await Node.run("filter", {input_array: inputs.items, expression: "item.price > " + inputs.limit})
    let sorted = await Node.run("sort", {input_array: dear.items, rules: ["price"]})
    let [first, count] = await Promise.all([
      Node.run("edit", {"$json": sorted.items[0], assignments: [{name: "cheap", value: true}]}),
      Node.with({retries: 2}).run("task", {task: "echo", input: dear.count}),
    ])
    return {first, count}
    """
    items = [{"price": 30}, {"price": 10}, {"price": 20}]
    ended = stage.run_script(source, {"items": items, "limit": 15})
    assert ended.output == {"first": {"price": 20, "cheap": True}, "count": 2}
    assert ended.count("TaskCompleted", "node:filter") == 1


def test_a_script_is_told_what_to_use_instead_of_a_node_without_meaning(stage: Stage) -> None:
    source = """
    try { await Node.run("wait", {amount: 1}) }
    catch (e) { return [e.code, e.message] }
    """
    code, message = stage.run_script(source).output
    assert code == "WRONG_ARG_TYPE"
    assert "use Timer.delay" in message

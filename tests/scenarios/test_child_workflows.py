"""Workflows as nodes of workflows: outputs, errors, versions and time limits."""

from __future__ import annotations

from typing import Any

from dalsegno.ports.node import AwaitSignal, StartChild, Unacceptable
from tests.scenarios.children import child, children_of, deploy, until_children, workflow
from tests.scenarios.documents import aggregator, dependencies, echo, error_object, fail, graph, hold, split
from tests.scenarios.stage import Stage

# -- outputs and errors ---------------------------------------------------------------------------------------


def test_the_output_of_the_child_is_the_output_of_the_node(stage: Stage) -> None:
    deploy(stage, child("a > b", {"b": echo("{{ $trigger.n + 1 }}")}))
    document = graph("w > x", {"w": workflow("child", {"n": "{{ $trigger.n }}"}), "x": echo("{{ $w * 10 }}")})
    ended = stage.run(document, {"n": 4})
    assert ended.output == 50
    [one] = children_of(stage, ended.handle)
    assert (one.workflow, one.state, one.relation, one.kind) == ("child", "COMPLETED", "child", "graph")
    assert [event.kind for event in ended.events if event.node in ("w", "child")] == [
        "ChildStarted",
        "NodeWaiting",
        "ChildEnded",
        "NodeCompleted",
    ]
    assert ended.data("NodeWaiting", "w")[0]["child"] == one.id


def test_the_child_gets_what_came_over_the_edge(stage: Stage) -> None:
    deploy(stage, child("b", {"b": echo("{{ $trigger }}")}))
    assert stage.run(graph("a > w", {"a": echo([1, 2]), "w": workflow("child")})).output == [1, 2]


def test_the_node_waits_until_the_child_has_ended(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    handle = stage.start(graph("w > x", {"w": workflow("child")}))
    [one] = until_children(stage, handle)
    [waiting, *_] = handle.why()
    assert (waiting.kind, waiting.node) == ("child", "w")
    assert waiting.sentence == f"node 'w' waits for execution {one.id} to end"
    assert handle.nodes()["w"].state == "WAITING"
    stage.until_comers(handle, "gate")
    stage.door("gate").open()
    assert stage.end_of(handle).output == "x"


def test_a_child_that_nobody_waits_for_lives_on(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    ended = stage.run(graph("w", {"w": workflow("child", {}, wait=False)}))
    [one] = until_children(stage, ended.handle)
    assert ended.output == {"id": one.id}
    assert (one.status().state, one.status().relation) == ("RUNNING", "started")
    [told] = ended.data("ChildStarted", "w")
    assert (told["execution"], told["detached"]) == (one.id, True)
    stage.door("gate").open()
    assert stage.end_of(one).state == "COMPLETED"


def test_the_error_of_the_child_is_the_error_of_the_node(stage: Stage) -> None:
    deploy(stage, child("f", {"f": fail("no money", "DECLINED")}))
    ended = stage.run(graph("w", {"w": workflow("child", {})}))
    assert (ended.state, ended.states["w"]) == ("FAILED", "FAILED")
    assert ended.error == error_object("no money", "DECLINED", "w")


def test_the_error_strategy_applies_to_the_error_of_a_child(stage: Stage) -> None:
    deploy(stage, child("f", {"f": fail("no money", "DECLINED")}))
    node = {**workflow("child", {}), "error": {"type": "branch"}}
    ended = stage.run(graph("w > x, w !> y", {"w": node, "y": echo("{{ $w.error.code }}")}))
    assert (ended.context["$y"], ended.states["x"]) == ("DECLINED", "SKIPPED")


def test_every_attempt_starts_another_child(stage: Stage) -> None:
    deploy(stage, child("f", {"f": fail()}))
    handle = stage.start(
        graph("w", {"w": workflow("child", {}, retry={"max_attempts": 3, "initial_delay": 1})})
    )
    for attempt in (1, 2):
        stage.until_event(handle, "NodeRetrying", "w", times=attempt)
        stage.pass_time(10)
    ended = stage.end_of(handle)
    assert ended.error["code"] == "BROKEN"
    found = children_of(stage, handle)
    assert [view.state for view in found] == ["FAILED"] * 3
    assert len({view.id for view in found}) == 3


def test_a_cancelled_child_fails_the_node(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    handle = stage.start(graph("w", {"w": workflow("child", {})}))
    [one] = until_children(stage, handle)
    one.cancel("not wanted")
    ended = stage.end_of(handle)
    assert (ended.state, ended.error["code"]) == ("FAILED", "CancelledError")
    assert "not wanted" in ended.error["message"]


def test_a_workflow_that_is_not_there_fails_the_node(stage: Stage) -> None:
    ended = stage.run(graph("w", {"w": workflow("nowhere", {})}))
    assert (ended.state, ended.error["code"]) == ("FAILED", "NOT_FOUND")
    assert "no workflow is named 'nowhere'" in ended.error["message"]


def test_an_input_that_does_not_fit_fails_the_node(stage: Stage) -> None:
    deploy(stage, child("a", input_schema={"required": ["n"]}))
    ended = stage.run(graph("w", {"w": workflow("child", {})}))
    assert (ended.error["code"], ended.error["node"]) == ("INVALID_INPUT", "w")
    assert "'n' is a required property" in ended.error["message"]


def test_a_large_output_travels_whole(stage: Stage) -> None:
    deploy(stage, child("b", {"b": echo("{{ 'x'.repeat(400000) }}")}))
    ended = stage.run(graph("w > x", {"w": workflow("child", {}), "x": echo("{{ $w.length }}")}))
    assert (ended.output, len(ended.context["$w"])) == (400_000, 400_000)


def test_the_version_of_the_child_may_be_chosen(stage: Stage) -> None:
    for number in (1, 2, 3):
        deploy(stage, child("b", {"b": echo(number)}))
    archive = stage.app.client.stack.archive
    stage.app.host.call(archive.set_alias("child", "stable", 2))
    document = graph(
        "a > b > c > d",
        {
            "a": workflow("child", {}, version=1),
            "b": workflow("child", {}, version="stable"),
            "c": workflow("child@2", {}),
            "d": workflow("child", {}),
        },
    )
    ended = stage.run(document)
    assert [ended.context[f"${name}"] for name in "abcd"] == [1, 2, 2, 3]


def test_every_item_of_a_split_has_its_own_child(stage: Stage) -> None:
    deploy(stage, child("b", {"b": echo("{{ $trigger.n * 2 }}")}))
    document = graph(
        "s > w > g",
        {"s": split(list(range(20))), "w": workflow("child", {"n": "{{ $item }}"}), "g": aggregator()},
    )
    assert stage.run(document).output == [2 * number for number in range(20)]


def test_a_node_with_several_dependencies_may_be_a_workflow(stage: Stage) -> None:
    deploy(stage, child("b", {"b": echo("{{ $trigger }}")}))
    document = dependencies(
        {"id": "a", "handler": "task", "config": {"task": "echo", "input": 1}},
        {"id": "b", "handler": "task", "config": {"task": "echo", "input": 2}},
        {
            "id": "w",
            "handler": "workflow",
            "config": {"name": "child", "input": {"sum": "{{ $a + $b }}"}},
            "dependencies": ["a", "b"],
        },
    )
    assert stage.run(document).output == {"sum": 3}


def test_children_may_have_children(stage: Stage) -> None:
    deploy(
        stage,
        child("x", {"x": echo("{{ $trigger.n * 2 }}")}, name="inner"),
        child("y", {"y": workflow("inner", {"n": "{{ $trigger.n + 1 }}"})}, name="middle"),
    )
    assert stage.run(graph("w", {"w": workflow("middle", {"n": 1})})).output == 4


def test_a_rerun_starts_a_child_of_its_own(stage: Stage) -> None:
    deploy(stage, child("b", {"b": echo("{{ $trigger.n }}")}))
    ended = stage.run(graph("w > x", {"w": workflow("child", {"n": 5}), "x": echo("{{ $w }}")}))
    again = stage.end_of(ended.handle.rerun("w"))
    assert again.output == 5
    assert children_of(stage, again.handle)[0].id != children_of(stage, ended.handle)[0].id


# -- time limits ----------------------------------------------------------------------------------------------


def test_the_nodes_time_limit_ends_the_child_too(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    handle = stage.start(graph("w", {"w": {**workflow("child", {}), "timeout": "1m"}}))
    [one] = until_children(stage, handle)
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(61)
    ended = stage.end_of(handle)
    assert (ended.error["code"], ended.error["details"]) == ("TIMEOUT", {"execution": one.id})
    assert stage.end_of(one).state == "CANCELLED"


def test_an_attempt_that_takes_too_long_is_followed_by_another(stage: Stage) -> None:
    deploy(stage, child("h", {"h": hold("gate")}))
    node = {**workflow("child", {}), "timeout": "1m", "retry": {"max_attempts": 2, "initial_delay": 5}}
    handle = stage.start(graph("w", {"w": node}))
    [first] = until_children(stage, handle)
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(61)
    stage.until_event(handle, "NodeRetrying", "w")
    assert stage.end_of(first).state == "CANCELLED"
    stage.pass_time(6)
    until_children(stage, handle, 2)
    stage.door("gate").open()
    ended = stage.end_of(handle)
    assert (ended.output, ended.nodes["w"]) == ("gate", ("COMPLETED", 1))


# -- node types of an application -----------------------------------------------------------------------------


def test_a_node_type_of_the_application_may_wait_for_a_workflow_if_declared_so(stage: Stage) -> None:
    deploy(stage, child("b", {"b": echo("{{ $trigger.n }}")}))

    async def start(ctx: Any, parameters: Any) -> StartChild:
        return StartChild("child", {"n": 3})

    stage.app.node("careful", children=True)(start)
    stage.app.node("careless")(start)
    assert stage.run(graph("w", {"w": {"type": "careful"}})).output == 3
    assert stage.run(graph("w", {"w": {"type": "careless"}})).error["code"] == "WRONG_NODE_TYPE"


def test_a_node_type_of_the_application_may_wait_for_a_signal(stage: Stage) -> None:
    async def ask(ctx: Any, parameters: Any) -> AwaitSignal:
        return AwaitSignal(parameters["name"])

    def receive(raw: Any, payload: Any) -> Any:
        if not isinstance(payload, int):
            raise Unacceptable("a number, please")
        return payload * 2

    stage.app.node("ask", receive=receive)(ask)
    handle = stage.start(graph("w", {"w": {"type": "ask", "parameters": {"name": "go"}}}))
    handle.signal("go", "four")
    handle.signal("go", 4)
    ended = stage.end_of(handle)
    assert ended.output == 8
    assert ended.data("NodeWaiting", "w")[1]["error"]["message"] == "a number, please"
    assert (
        stage.run(graph("w", {"w": {"type": "ask", "parameters": {"name": 7}}})).error["code"]
        == "WRONG_NODE_TYPE"
    )


def test_an_ending_is_told_once_however_often_it_is_delivered(stage: Stage) -> None:
    """Several processes may carry out the same entry, also after its promise is forgotten."""
    stage.app.deploy_script('await Signal.next("end")\nreturn 1', "child")
    handle = stage.start_script('await Workflow.run("child", {})\nawait Signal.next("over")')
    stage.until("a child", handle, lambda: len(stage.app.executions()) == 2)
    (child,) = [each for each in stage.app.executions() if each.id != handle.id]
    stage.until_event(child, "Suspended", "signal end")
    engine, kept = stage.app.engine, []

    async def seen_by_others() -> None:
        """What other processes have read from the outbox before the entry was taken away."""
        drain = engine.outbox.drain

        async def drained() -> None:
            kept.extend(await engine.stack.ledger.outbox())
            await drain()

        engine.outbox.drain = drained  # type: ignore[method-assign]

    stage.app.host.call(seen_by_others())
    child.signal("end")
    stage.until_event(handle, "Suspended", "signal over")
    (entry,) = {each.id: each for each in kept if each.topic == "ended"}.values()
    for _ in range(3):
        assert stage.app.host.call(engine.outbox._deliver(entry))
    handle.signal("over")
    ended = stage.end_of(handle)
    assert [ended.count(kind) for kind in ("ChildStarted", "ChildEnded")] == [1, 1]

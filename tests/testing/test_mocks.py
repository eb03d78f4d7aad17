"""Mocked tasks: registered or not, with recorded calls and helpful complaints."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import pytest

from dalsegno import App, InvalidInput, WorkflowFailed
from dalsegno.testing import TestKit
from tests.testing import shop


def test_a_task_that_is_registered_nowhere_can_be_mocked(workflows: TestKit) -> None:
    mail = workflows.mock("send_mail", returns={"sent": True})
    assert workflows.run('return await Task.run("send_mail", {to: "ann", copies: 2})') == {"sent": True}
    mail.assert_called_once_with(to="ann", copies=2)
    mail.assert_called_once_with({"to": "ann", "copies": 2})


def test_a_registered_task_is_replaced_and_its_arguments_are_bound_by_its_signature() -> None:
    with TestKit(shop.app) as kit:
        charged = kit.mock(shop.charge, returns="paid")
        shipped = kit.mock("ship", returns="parcel")
        kit.run(shop.checkout, shop.Order(7, 100))
        charged.assert_called_once_with(shop.Order(7, 100))
        shipped.assert_called_once_with(7, fast=True)
        shipped.assert_any_call(order_id=7, fast=True)


def test_a_task_of_a_graph_is_mocked_too(workflows: TestKit) -> None:
    mock = workflows.mock("add", side_effect=lambda a, b: a + b)
    document = {
        "name": "sum",
        "nodes": [{"id": "s", "type": "task", "parameters": {"task": "add", "input": {"a": 1, "b": 2}}}],
        "edges": [],
    }
    assert workflows.run(document) == 3
    assert mock.inputs == [{"a": 1, "b": 2}]


def test_an_exception_is_what_the_workflow_catches(workflows: TestKit) -> None:
    workflows.mock("charge", raises=ValueError("card declined"))
    source = 'try { await Task.run("charge", 1) } catch (e) { return [e.type, e.message] }'
    assert workflows.run(source) == ["ValueError", "card declined"]


def test_an_uncaught_exception_fails_the_run(workflows: TestKit) -> None:
    workflows.mock("charge", raises=KeyError)
    with pytest.raises(WorkflowFailed, match="KeyError"):
        workflows.run('await Task.run("charge", 1)')


def test_answers_are_given_one_after_another_and_running_out_is_told(workflows: TestKit) -> None:
    mock = workflows.mock("next", side_effect=[1, ValueError("two"), 3])
    source = """
        let seen = []
        for (let i = 0; i < 4; i++) {
            try { seen.push(await Task.run("next", i)) } catch (e) { seen.push(e.message) }
        }
        return seen
    """
    first, second, third, fourth = workflows.run(source)
    assert (first, second, third) == (1, "two", 3)
    assert "no answer left" in fourth
    assert mock.call_count == 4


@pytest.mark.parametrize("kind", ["plain", "async", "mock"])
def test_a_function_is_called_as_the_task_would_be(workflows: TestKit, kind: str) -> None:
    async def later(value: Any) -> Any:
        return value * 2

    functions: dict[str, Any] = {
        "plain": lambda value: value * 2,
        "async": later,
        "mock": AsyncMock(return_value=42),
    }
    workflows.mock("double", side_effect=functions[kind])
    assert workflows.run('return await Task.run("double", 21)') == 42


def test_a_mock_keeps_the_retries_of_the_task_it_replaces() -> None:
    with TestKit(shop.app) as kit:
        kit.mock(shop.charge, returns="paid")
        kit.mock(shop.ship, raises=OSError("closed"))
        with pytest.raises(WorkflowFailed, match="closed"):
            kit.run(shop.checkout, shop.Order(1, 1))
        assert [call.task for call in kit.calls] == ["charge", *["ship"] * 5]
        assert len({call.key for call in kit.calls}) == 2


def test_mocks_are_gone_after_the_kit() -> None:
    app = App("memory:")

    @app.task
    async def greet(name: str) -> str:
        return f"hello {name}"

    source = 'return await Task.run("greet", "ann")'
    with TestKit(app) as kit:
        kit.mock(greet, returns="mocked")
        assert kit.run(source) == "mocked"
        kit.unmock(greet)
        assert kit.run(source) == "hello ann"
    with TestKit(app) as kit:
        assert kit.run(source) == "hello ann"
        assert [str(call) for call in kit.calls] == ['greet("ann")']


def test_complaints_name_task_and_calls(workflows: TestKit) -> None:
    mock = workflows.mock("charge", returns=1)
    with pytest.raises(AssertionError, match="task 'charge' was expected to be called, but was not"):
        mock.assert_called()
    mock.assert_not_called()
    workflows.run('await Task.run("charge", {cents: 5}); await Task.run("charge", {cents: 6})')
    with pytest.raises(AssertionError, match=r"called 2 times:\n  charge\(\{\"cents\":5\}\)\n"):
        mock.assert_called_once()
    with pytest.raises(AssertionError, match=r"expected: \{\"cents\":7\}\n  called:   \{\"cents\":6\}"):
        mock.assert_called_with(cents=7)
    with pytest.raises(AssertionError, match="never called with"):
        mock.assert_any_call(cents=7)
    with pytest.raises(AssertionError, match="not expected to be called, but was"):
        mock.assert_not_called()
    mock.assert_called_times(2)


def test_two_answers_for_one_mock_are_refused(workflows: TestKit) -> None:
    with pytest.raises(InvalidInput, match="one of returns, raises and side_effect"):
        workflows.mock("charge", returns=1, raises=ValueError())


def test_a_node_of_the_library_is_mocked_in_graphs_and_in_scripts(workflows: TestKit) -> None:
    page = workflows.mock_node("http", returns={"status": 200, "body": "hello"})
    document = {
        "name": "fetch",
        "nodes": [
            {"id": "get", "type": "http", "parameters": {"url": "https://example.org/{{ $trigger.path }}"}}
        ],
        "edges": [],
    }
    assert workflows.run(document, path="a")["body"] == "hello"
    assert workflows.run('return (await Node.run("http", {url: "https://example.org/b"})).status') == 200
    assert [call["url"] for call in page.inputs] == ["https://example.org/a", "https://example.org/b"]


def test_a_mocked_node_can_fail_and_can_compute(workflows: TestKit) -> None:
    workflows.mock_node("http", raises=ConnectionError("no route"))
    source = 'try { await Node.run("http", {url: "https://x.org"}) } catch (e) { return e.message }'
    assert workflows.run(source) == "no route"
    workflows.mock_node("http", side_effect=lambda parameters: parameters["url"].upper())
    assert workflows.run('return await Node.run("http", {url: "https://x.org"})') == "HTTPS://X.ORG"


def test_a_child_workflow_is_mocked_by_name_and_by_function() -> None:
    app = App("memory:")

    @app.workflow
    async def child(number: int) -> int:
        raise AssertionError("the real child runs")

    @app.workflow
    async def parent(number: int) -> int:
        return 1 + await child(number)

    with TestKit(app) as kit:
        mock = kit.mock_workflow(child, side_effect=lambda number: number * 2)
        assert kit.run(parent, 20) == 41
        assert mock.inputs == [20]
        kit.assert_resumable(parent, 20)
        other = kit.mock_workflow("elsewhere", returns="done")
        assert kit.run('return await Workflow.run("elsewhere", {a: 1})') == "done"
        other.assert_called_once_with(a=1)

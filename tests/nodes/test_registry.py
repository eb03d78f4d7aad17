"""The registry: names, plugins, and what goes wrong with them."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from pydantic import BaseModel, Field

from dalsegno.errors import InvalidInput, NotFound, OperatorError
from dalsegno.nodes import (
    NodeParameters,
    NodeRegistry,
    ThreadedExecute,
    builtin_registry,
    load_plugins,
    node_type,
)
from dalsegno.nodes.registry import PLUGIN_GROUP
from dalsegno.ports.node import NodeError, NodeType
from tests.nodes.fakes import REGISTRY, FakeContext


class GreetParameters(NodeParameters):
    name: str = Field(description="Whom to greet.")
    times: int = 1


@node_type("greet", parameters=GreetParameters, aliases=("hello",))
async def greet(_ctx: Any, parameters: GreetParameters) -> str:
    """Greets somebody.

    More about greeting.
    """
    return " ".join([f"Hi {parameters.name}"] * parameters.times)


def greet_list() -> list[NodeType]:
    return [greet]


def broken() -> list[NodeType]:
    raise RuntimeError("no licence")


not_a_node = {"type": "greet"}


def plugin(value: str) -> EntryPoint:
    return EntryPoint(name="greetings", value=f"{__name__}:{value}", group=PLUGIN_GROUP)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points import this module by its name."""
    import sys

    module = type(sys)(__name__)
    module.__dict__.update(globals())
    monkeypatch.setitem(sys.modules, __name__, module)


@pytest.mark.parametrize(
    ("alias", "canonical"),
    [
        ("call_external_service", "http"),
        ("python", "task"),
        ("ManualTrigger", "manual"),
        ("ScheduledTrigger", "schedule"),
        ("WebhookTrigger", "webhook"),
    ],
)
def test_aliases_find_the_canonical_type(alias: str, canonical: str) -> None:
    found = REGISTRY.find(alias)
    assert found is not None
    assert found.type == canonical


def test_the_registry_lists_canonical_types_only() -> None:
    assert "http" in REGISTRY.types()
    assert "call_external_service" not in REGISTRY.types()
    assert REGISTRY.find("no_such") is None
    with pytest.raises(NotFound, match="no_such"):
        REGISTRY.get("no_such")


def test_every_parameter_of_every_builtin_type_is_described() -> None:
    for name in REGISTRY.types():
        found = REGISTRY.get(name)
        assert found.description, name
        for parameter, schema in found.spec.parameter_schema["properties"].items():
            assert schema.get("description"), f"{name}.{parameter}"


def test_a_taken_name_is_refused_and_changes_nothing() -> None:
    registry = NodeRegistry([greet])

    @node_type("other", aliases=("hello",))
    async def other(_ctx: Any, _parameters: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidInput, match="'hello' is already taken by node type 'greet'"):
        registry.register(other)
    assert registry.find("other") is None


@pytest.mark.parametrize("value", ["greet", "greet_list"])
def test_plugins_give_a_node_type_or_a_function_returning_them(value: str) -> None:
    registry = NodeRegistry()
    load_plugins(registry, [plugin(value)])
    assert registry.types() == ["greet"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("broken", "RuntimeError: no licence"),
        ("not_a_node", "not a NodeType"),
        ("missing", "AttributeError"),
    ],
)
def test_a_broken_plugin_is_named(value: str, reason: str) -> None:
    with pytest.raises(OperatorError, match="node plugin 'greetings'") as caught:
        load_plugins(NodeRegistry(), [plugin(value)])
    assert reason in str(caught.value)


def test_a_plugin_cannot_replace_a_builtin_type() -> None:
    registry = builtin_registry(plugins=False)
    load_plugins(registry, [plugin("greet")])
    with pytest.raises(OperatorError, match="already taken"):
        load_plugins(registry, [plugin("greet")])


async def test_the_builder_makes_a_node_type_from_a_function() -> None:
    assert greet.description == "Greets somebody."
    assert greet.spec.aliases == ("hello",)
    assert await greet.execute(FakeContext(), greet.parse({"name": "Ann", "times": 2})) == "Hi Ann Hi Ann"
    with pytest.raises(NodeError, match="'name' is missing"):
        greet.parse({})


async def test_a_blocking_function_is_marked_and_runs_in_a_thread() -> None:
    import threading

    @node_type("where")
    def where(_ctx: Any, _parameters: dict[str, Any]) -> int:
        return threading.get_ident()

    assert isinstance(where.execute, ThreadedExecute)
    assert await where.execute(FakeContext(), where.parse({"any": 1})) != threading.get_ident()


def test_a_function_with_the_wrong_arguments_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two arguments"):

        @node_type("bad")  # type: ignore[arg-type]
        async def bad(_ctx: Any) -> None: ...


def test_a_plain_pydantic_model_works_too() -> None:
    class Loose(BaseModel):
        size: int

    @node_type("loose", parameters=Loose)
    async def loose(_ctx: Any, parameters: Loose) -> int:
        return parameters.size

    assert [problem.path for problem in loose.spec.check({"size": "big"})] == [("size",)]

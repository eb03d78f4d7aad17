"""Construction of a `NodeType` from a function and a parameter model, also for plugins and ``@app.node``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import BaseModel

from dalsegno.errors import InvalidInput
from dalsegno.graph.catalog import ControlKind, NodeSpec, ParameterProblem
from dalsegno.nodes.parameters import check_parameters, kinds_of, parameter_parser
from dalsegno.ports.node import Execute, NodeContext, NodeType, Receive

AsyncFunction = Callable[[NodeContext, Any], Awaitable[Any]]
SyncFunction = Callable[[NodeContext, Any], Any]
Check = Callable[[Mapping[str, Any]], Sequence[ParameterProblem]]


class ThreadedExecute:
    """Runs a blocking function off the event loop: in the engine's task threads if there are any, else in asyncio's."""

    __slots__ = ("function",)

    def __init__(self, function: SyncFunction) -> None:
        self.function = function

    async def __call__(self, ctx: NodeContext, parameters: Any) -> Any:
        run_blocking = getattr(ctx.services.get("tasks"), "run_blocking", None)
        if run_blocking is None:
            return await asyncio.to_thread(self.function, ctx, parameters)
        return await run_blocking(partial(self.function, ctx, parameters), ctx)


def node_type(
    type: str,
    *,
    parameters: type[BaseModel] | None = None,
    control: ControlKind = "plain",
    aliases: Iterable[str] = (),
    description: str | None = None,
    needs: Iterable[str] = (),
    local_names: Iterable[str] = (),
    output_schema: Mapping[str, Any] | None = None,
    children: bool = False,
    receive: Receive | None = None,
    check: Check | None = None,
    schemas: Iterable[str] = (),
) -> Callable[[AsyncFunction | SyncFunction], NodeType]:
    """Decorator: turn ``f(ctx, parameters) -> output``, async or blocking, into a node type.

    * Without a parameter model any parameters are accepted and passed as a dict.
    * ``description`` defaults to the first paragraph of the function's docstring.
    * ``children``: the node may wait for child executions.
    * ``receive`` takes the signals that the node waits for.
    * ``check`` checks what a model cannot express. It gets the parameters as written.
    * ``schemas`` names parameters that are JSON Schemas, which are checked when a definition is deployed.
    """

    def build(function: AsyncFunction | SyncFunction) -> NodeType:
        _require_two_arguments(type, function)
        spec = _spec(type, parameters, control, tuple(aliases), frozenset(local_names))
        own = _all_checks(spec.check, check) if check else spec.check
        spec = replace(spec, children=children, check=own, schemas=frozenset(schemas))
        return NodeType(
            spec=spec,
            parse=parameter_parser(parameters, spec.kinds) if parameters else dict,
            execute=_executable(function),
            description=description if description is not None else _first_paragraph(function),
            needs=frozenset(needs),
            output_schema=dict(output_schema or {}),
            receive=receive,
        )

    return build


def _spec(
    name: str,
    model: type[BaseModel] | None,
    control: ControlKind,
    aliases: tuple[str, ...],
    local_names: frozenset[str],
) -> NodeSpec:
    if model is None:
        return NodeSpec(type=name, control=control, aliases=aliases, local_names=local_names)
    kinds = kinds_of(model)
    return NodeSpec(
        type=name,
        control=control,
        aliases=aliases,
        kinds=kinds,
        check=partial(check_parameters, model, kinds),
        parameter_schema=parameter_schema(model),
        local_names=local_names,
    )


def _all_checks(first: Check, second: Check) -> Check:
    return lambda parameters: [*first(parameters), *second(parameters)]


def _executable(function: AsyncFunction | SyncFunction) -> Execute:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call):
        return function
    return ThreadedExecute(function)


def _require_two_arguments(name: str, function: Callable[..., Any]) -> None:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InvalidInput(
            f"node type '{name}': its function must take two arguments, the context and the parameters"
        ) from None


def _first_paragraph(function: Callable[..., Any]) -> str:
    paragraph, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
    return " ".join(paragraph.split())


_KEYWORDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
"""For bounds of fields that may also be text, the model emits Python's keywords."""


def parameter_schema(model: type[BaseModel]) -> dict[str, Any]:
    schema: dict[str, Any] = _standard(model.model_json_schema())
    return schema


def _standard(value: Any) -> Any:
    if isinstance(value, list):
        return [_standard(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        _KEYWORDS[key] if key in _KEYWORDS and isinstance(each, int | float) else key: _standard(each)
        for key, each in value.items()
    }

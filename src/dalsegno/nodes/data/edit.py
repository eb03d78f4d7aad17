"""The ``edit`` node: sets fields of an object, or builds a new one from chosen fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.conversion import ConversionError, ValueType, convert
from dalsegno.nodes.data.lists import in_slices, working_payload
from dalsegno.nodes.data.paths import Path, PathError, assign_path, parse_path, read_path
from dalsegno.nodes.parameters import EXPRESSION, NodeParameters, json_type
from dalsegno.ports.node import NodeContext, NodeError, Working


def _is_path(text: str) -> str:
    parse_path(text)
    return text


class Assignment(NodeParameters):
    name: Annotated[str, AfterValidator(_is_path)] = Field(
        description="Field to set; dots lead into objects, `[0]` into lists, `\\.` is a dot in a key."
    )
    value: Any = Field(
        None, description="Its value. In mode `keep_only`, a field without a value keeps its own."
    )
    type: ValueType | None = Field(None, description="Type to convert the value to. Default: no conversion.")


class EditParameters(NodeParameters):
    mode: Literal["assignments", "keep_only"] = Field(
        "assignments",
        description="`assignments` changes the object, `keep_only` drops every field not named.",
    )
    assignments: list[Assignment] = Field(default=[], description="The fields, set one after the other.")
    target_path: Annotated[Any, EXPRESSION] = Field(
        None,
        description="The object to edit: a reference such as `$json.user` or `$fetch.body`. Default: `$json`.",
    )


@node_type("edit", parameters=EditParameters, needs=("$json",), output_schema={"type": "object"})
async def edit(ctx: NodeContext, parameters: EditParameters) -> Working:
    """Sets fields of an object; the edited object is the output and becomes `$json`."""
    target = await _target(ctx, parameters)
    edited: Any = {} if parameters.mode == "keep_only" or target is None else target
    async for chunk in in_slices(ctx, enumerate(parameters.assignments), 1):
        for position, assignment in chunk:
            try:
                path = parse_path(assignment.name)
                edited = assign_path(edited, path, _value(assignment, target, path))
            except (ConversionError, PathError) as error:
                message = f"assignment {position} ('{assignment.name}'): {error}"
                raise _failed(message, assignment.name) from error
    return Working(output=edited, json=edited)


async def _target(ctx: NodeContext, parameters: EditParameters) -> Any:
    given = ctx.has_expression("target_path")
    if given:
        [target] = await ctx.evaluate_each("target_path", [None])
    else:
        target = working_payload(ctx)
    if target is None or isinstance(target, dict) or parameters.mode == "keep_only":
        return target
    if not given:
        # A number or list as payload (an item of a split, for example) has no fields to keep: start with an empty
        # object.
        return None
    raise _failed(f"the value to edit should be an object, but is {json_type(target)}", "target_path")


def _value(assignment: Assignment, target: Any, path: Path) -> Any:
    if "value" not in assignment.model_fields_set:
        return read_path(target, path)
    return convert(assignment.value, assignment.type)


def _failed(message: str, place: str) -> NodeError:
    return NodeError(message, code="EDIT_FAILED", details={"parameter": place}, retryable=False)

"""The ``edit`` node: sets fields of an object, or builds a new one from chosen fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.conversion import ConversionError, ValueType, convert
from dalsegno.nodes.parameters import NodeParameters, json_type
from dalsegno.nodes.paths import Path, PathError, assign_path, parse_path, read_path
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
    type: ValueType | None = Field(
        None, description="What the value is converted to; without it, it stays as it is."
    )


class EditParameters(NodeParameters):
    mode: Literal["assignments", "keep_only"] = Field(
        "assignments",
        description="`assignments` changes the object, `keep_only` drops every field not named.",
    )
    assignments: list[Assignment] = Field(default=[], description="The fields, set one after the other.")
    target_path: Any = Field(
        "$json", description="What is edited: a reference such as `$fetch.body`, or a path inside `$json`."
    )


@node_type("edit", parameters=EditParameters, needs=("$json",), output_schema={"type": "object"})
async def edit(ctx: NodeContext, parameters: EditParameters) -> Working:
    """Sets fields of an object; the edited object is the output and becomes `$json`."""
    target = _target(ctx, parameters)
    edited: Any = {} if parameters.mode == "keep_only" or target is None else target
    for position, assignment in enumerate(parameters.assignments):
        try:
            path = parse_path(assignment.name)
            edited = assign_path(edited, path, _value(assignment, target, path))
        except (ConversionError, PathError) as error:
            raise _failed(f"assignment {position} ('{assignment.name}'): {error}", assignment.name) from error
    return Working(output=edited, json=edited)


def _target(ctx: NodeContext, parameters: EditParameters) -> Any:
    """References arrive already resolved to their value; any other text is a path inside ``$json``."""
    target = parameters.target_path
    if "target_path" not in parameters.model_fields_set or target in ("$json", ""):
        target = ctx.lookup("$json")
    elif isinstance(target, str):
        target = read_path(ctx.lookup("$json"), _target_segments(target))
    if target is None or isinstance(target, dict) or parameters.mode == "keep_only":
        return target
    raise _failed(
        f"what is edited should be an object, but is {json_type(target)}; name an object with 'target_path', "
        "or build a new one with mode 'keep_only'",
        "target_path",
    )


def _target_segments(text: str) -> Path:
    try:
        return parse_path(text)
    except PathError as error:
        raise _failed(f"parameter 'target_path' {error}", "target_path") from error


def _value(assignment: Assignment, target: Any, path: Path) -> Any:
    if "value" not in assignment.model_fields_set:
        return read_path(target, path)
    return convert(assignment.value, assignment.type)


def _failed(message: str, place: str) -> NodeError:
    return NodeError(message, code="EDIT_FAILED", details={"parameter": place}, retryable=False)

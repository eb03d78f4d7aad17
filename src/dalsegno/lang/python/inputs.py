"""The input of an execution as the arguments of its workflow."""

from __future__ import annotations

import inspect
from typing import Any

from dalsegno.errors import Finding, InvalidInput
from dalsegno.lang.python.outcomes import copied
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.typed import from_plain

MISSING = inspect.Parameter.empty


def arguments_for(program: PythonProgram, inputs: Any) -> list[Any]:
    """In the order of the parameters, typed by their annotations; raises `InvalidInput` if they do not fit."""
    parameters = program.functions[0].parameters
    given = _by_name(program, parameters, inputs)
    return [_argument(program, name, given.get(name, MISSING)) for name in parameters]


def _by_name(program: PythonProgram, parameters: tuple[str, ...], inputs: Any) -> dict[str, Any]:
    """One parameter takes the whole input, several take the fields of an object."""
    if len(parameters) == 1:
        use_default = inputs is None and program.surroundings.default(parameters[0]) is not MISSING
        return {} if use_default else {parameters[0]: inputs}
    given = {} if inputs is None else inputs
    if not isinstance(given, dict):
        raise _misfit(
            "", f"workflow '{program.name}' takes {_listed(parameters)}: give an object with these fields"
        )
    unknown = [name for name in given if name not in parameters]
    if unknown:
        message = f"workflow '{program.name}' takes {_listed(parameters)}, not '{unknown[0]}'"
        raise _misfit(_pointer(unknown[0]), message)
    return given


def _listed(parameters: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in parameters) or "no input"


def _argument(program: PythonProgram, name: str, value: Any) -> Any:
    if value is MISSING:
        default = program.surroundings.default(name)
        if default is MISSING:
            raise _misfit("", f"workflow '{program.name}' needs '{name}', which is not in its input")
        return default
    annotation = program.surroundings.hints.get(name, Any)
    try:
        return from_plain(copied(value), annotation, f"workflow '{program.name}': '{name}'")
    except InvalidInput as error:
        alone = len(program.functions[0].parameters) == 1
        if alone and isinstance(value, dict) and name in value:
            message = (
                f"{error}; the whole input is '{name}': give the value itself, not an object that holds it"
            )
            raise _misfit("", message) from error
        raise _misfit("" if alone else _pointer(name), str(error)) from error


def _misfit(pointer: str, message: str) -> InvalidInput:
    return InvalidInput.at(message, [Finding(pointer, "parameters", message)])


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")

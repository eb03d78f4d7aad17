"""Conversion of an execution's input to the arguments of its workflow."""

from __future__ import annotations

import inspect
from typing import Any

from dalsegno.errors import Finding, InvalidInput
from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.runtime.outcomes import copied
from dalsegno.lang.python.values.typed_values import from_plain

MISSING = inspect.Parameter.empty


def arguments_for(program: PythonProgram, inputs: Any) -> list[Any]:
    """Return the arguments in the order of the parameters, typed by their annotations.

    Raise `InvalidInput` if they do not match.
    """
    code = program.functions[0]
    given = _by_name(program, code, inputs)
    return [_argument(program, code, name, given.get(name, MISSING)) for name in code.parameters]


def _by_name(program: PythonProgram, code: FunctionCode, inputs: Any) -> dict[str, Any]:
    """Return the arguments by parameter name.

    A single parameter takes the whole input; several take the fields of an object. Fields that match no parameter go to
    ``**named``.
    """
    parameters = code.parameters
    if parameters in ((code.rest,), (code.named,)):
        return {} if inputs is None else {parameters[0]: inputs}
    if len(parameters) == 1:
        use_default = inputs is None and program.surroundings.default(parameters[0]) is not MISSING
        return {} if use_default else {parameters[0]: inputs}
    given = {} if inputs is None else inputs
    if not isinstance(given, dict):
        raise _misfit(
            "", f"workflow '{program.name}' takes {_listed(parameters)}: give an object with these fields"
        )
    unknown = [name for name in given if name not in parameters or name == code.named]
    if code.named:
        further = {name: given[name] for name in unknown}
        return {**{name: given[name] for name in given if name not in further}, code.named: further}
    if unknown:
        message = f"workflow '{program.name}' takes {_listed(parameters)}, not '{unknown[0]}'"
        raise _misfit(_pointer(unknown[0]), message)
    return given


def _listed(parameters: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in parameters) or "no input"


def _argument(program: PythonProgram, code: FunctionCode, name: str, value: Any) -> Any:
    annotation = program.surroundings.hints.get(name, Any)
    what = f"workflow '{program.name}': '{name}'"
    if name == code.rest:
        return tuple(from_plain([] if value is MISSING else copied(value), list[annotation], what))  # type: ignore[valid-type]
    if name == code.named:
        return from_plain({} if value is MISSING else copied(value), dict[str, annotation], what)  # type: ignore[valid-type]
    if value is MISSING:
        default = program.surroundings.default(name)
        if default is MISSING:
            raise _misfit("", f"workflow '{program.name}' needs '{name}', which is not in its input")
        return default
    try:
        return from_plain(copied(value), annotation, what)
    except InvalidInput as error:
        alone = len(code.parameters) == 1
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

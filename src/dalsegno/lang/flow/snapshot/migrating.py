"""The migration of a script's variables: the function ``migrate`` of its new version, called with the old variables.

``function migrate(variables, version) { … }`` is one of the script's functions. It gets the plain variables of the
function that waits, by name, and the number of the version that they are from; it returns those that shall have other
values.
It may compute, and nothing else: neither await nor start anything.
"""

from __future__ import annotations

import os
from typing import Any

from dalsegno.lang.errors import ScriptThrow, SnapshotError
from dalsegno.lang.flow.program import FlowProgram
from dalsegno.lang.flow.runtime.machine import Machine
from dalsegno.lang.flow.snapshot.format import decoded
from dalsegno.lang.flow.snapshot.write import NOT_PLAIN, plain_size
from dalsegno.lang.flow.syntax.parser import MIGRATE
from dalsegno.lang.runtime.frames import Frame
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS
from dalsegno.lang.values.kinds import Cell, FunctionValue, Vacant, Value
from dalsegno.lang.values.to_text import plain

_ATOMS = (str, int, float, bool, type(None))


class MigrationFailed(Exception):
    """The migration threw, waited, started something, or returned no object."""


def variables_of(program: FlowProgram, data: bytes) -> dict[str, Value]:
    """Return the plain variables of the function that waits; those with large values stored elsewhere are missing."""
    machine = Machine.loads(program, data)
    frame = machine.frames[-1]
    if not isinstance(frame, Frame):
        raise SnapshotError("the snapshot is damaged: it waits in a function of the library")
    code = frame.function
    found = dict(zip(code.capture_names, frame.cells, strict=True))
    slots = {
        name: frame.slots[slot]
        for scope in code.scopes
        if scope.start < frame.position < scope.stop
        for slot, name in enumerate(scope.names, scope.first)
        if name is not None
    }
    values = {name: _content(value) for name, value in {**found, **slots}.items()}
    return {name: value for name, value in values.items() if _is_plain(value)}


def _content(value: Any) -> Value:
    held = value.value if type(value) is Cell else value
    return decoded(held) if type(held) is Vacant else held


def _is_plain(value: Value) -> bool:
    if isinstance(value, list | dict):
        return plain_size(value, set()) != NOT_PLAIN
    return isinstance(value, _ATOMS)


def migrated(program: FlowProgram, variables: dict[str, Value], version: int) -> dict[str, Value] | None:
    """Return the variables that the script's migration gives; None if it has none. Raise `MigrationFailed`."""
    code = next(
        (found for found in program.unit.functions[1:] if found.name == MIGRATE and not found.captures), None
    )
    if code is None:
        return None
    machine = Machine(program, DEFAULT_LIMITS, os.urandom)
    machine.enter(FunctionValue(code, ()), [variables, version])
    machine.prepare(0.0, None)
    machine.proceed()
    if machine.error is not None:
        raise MigrationFailed(f"{machine.error.code}: {machine.error.message}")
    if machine.status != "running" or machine.take_effects():
        raise MigrationFailed("it may neither await nor start anything")
    try:
        found = plain(machine.host, machine.outcome, f"the result of {MIGRATE}()")
    except ScriptThrow as problem:
        raise MigrationFailed(problem.message) from None
    if not isinstance(found, dict):
        raise MigrationFailed("it must return an object of variables")
    return found

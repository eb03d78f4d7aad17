"""Python workflows that a program offers: compiled where they are defined, deployed when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.engine.client import Client
from dalsegno.errors import InvalidInput
from dalsegno.lang.python import PythonProgram
from dalsegno.lang.python.homes import home_of
from dalsegno.model.definition import Definition, name_problems


class Workflows:
    def __init__(self) -> None:
        self._programs: dict[str, PythonProgram] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._deployed: dict[str, Definition] = {}
        self.versions: set[str] = set()
        """Content hashes of those that are deployed."""

    def register(self, program: PythonProgram, function: Callable[..., Any]) -> None:
        if problems := name_problems(program.name):
            raise InvalidInput(f"{program.name[:100]!r} cannot be a workflow's name: {' '.join(problems)}")
        if known := self._programs.get(program.name):
            raise InvalidInput(
                f"{_place(program)}: a workflow named '{program.name}' is registered already, from {_place(known)}; "
                "give one of them another name"
            )
        self._programs[program.name] = program
        self._functions[home_of(function.__module__), function.__qualname__] = function

    def resolve(self, module: str, qualname: str) -> Any:
        """The running code of a workflow, or None: its stored versions see the names around it."""
        return self._functions.get((module, qualname))

    def program(self, name: str) -> PythonProgram | None:
        """The version of a workflow that this program has."""
        return self._programs.get(name)

    def modules(self) -> list[str]:
        """Those whose workflows this program has."""
        return sorted({module for module, _ in self._functions})

    def names(self) -> list[str]:
        return sorted(self._programs)

    async def ensure(self, client: Client, name: str) -> Definition:
        """The stored version of a workflow of this program."""
        known = self._deployed.get(name)
        if known is None:
            known = self._deployed[name] = await client.deploy_script(self._programs[name])
            self.versions.add(known.hash)
        return known

    async def ensure_all(self, client: Client) -> None:
        """So that others can start them by name: other workflows, schedules, the command line."""
        for name in self._programs:
            await self.ensure(client, name)

    def is_newer(self, definition: Definition) -> bool:
        """Whether it is a later version of a workflow than this program's."""
        own = self._deployed.get(definition.name)
        return own is not None and definition.version > own.version

    def forget_deployed(self) -> None:
        """Another store is opened, which may know none of them."""
        self._deployed.clear()


def _place(program: PythonProgram) -> str:
    return f"{program.stored.file}:{program.stored.first_line}"

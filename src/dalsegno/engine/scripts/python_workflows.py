"""Python workflows of a program: compiled where they are defined, deployed when they are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.engine.client import Client
from dalsegno.errors import InvalidInput
from dalsegno.lang.python import PythonProgram
from dalsegno.lang.python.environment import stored_name_of
from dalsegno.model.definition import Definition, name_problems


class Workflows:
    def __init__(self) -> None:
        self._programs: dict[str, PythonProgram] = {}
        self._functions: dict[tuple[str, str], dict[str, Any]] = {}
        self._deployed: dict[str, Definition] = {}
        self.versions: set[str] = set()
        """Content hashes of the deployed ones."""

    def register(self, program: PythonProgram, function: Callable[..., Any]) -> None:
        if problems := name_problems(program.name):
            raise InvalidInput(f"{program.name[:100]!r} cannot be a workflow's name: {' '.join(problems)}")
        if known := self._programs.get(program.name):
            raise InvalidInput(
                f"{_place(program)}: a workflow named '{program.name}' is registered already, from {_place(known)}; "
                "give one of them another name"
            )
        self._programs[program.name] = program
        made_here = self._functions.setdefault(
            (stored_name_of(function.__module__), function.__qualname__), {}
        )
        made_here[program.name] = function

    def resolve(self, module: str, qualname: str, name: str) -> Any:
        """Return the running code of a workflow, or None: its stored versions use the names around it. A function
        that creates workflows gives all of them one qualified name; each has other values of the names around it.
        """
        made_here = self._functions.get((module, qualname), {})
        if name not in made_here and len(made_here) == 1:  # it has been renamed
            return next(iter(made_here.values()))
        return made_here.get(name)

    def program(self, name: str) -> PythonProgram | None:
        """Return the version of a workflow that this program has."""
        return self._programs.get(name)

    def modules(self) -> list[str]:
        """Return the modules whose workflows this program has."""
        return sorted({module for module, _ in self._functions})

    def names(self) -> list[str]:
        return sorted(self._programs)

    async def ensure(self, client: Client, name: str) -> Definition:
        """Deploy a workflow of this program and return its stored version. If it replaces a graph, the schedules and
        webhooks of the graph's nodes are removed.
        """
        known = self._deployed.get(name)
        if known is None:
            known = await client.deploy_script(self._programs[name])
            await client.settle_triggers(name)
            self._deployed[name] = known
            self.versions.add(known.hash)
        return known

    async def ensure_all(self, client: Client) -> None:
        """Deploy all workflows, so that others can start them by name: workflows, schedules, the command line."""
        for name in self._programs:
            await self.ensure(client, name)

    def is_newer(self, definition: Definition) -> bool:
        """Return True if it is a later version of a workflow than this program's."""
        own = self._deployed.get(definition.name)
        return own is not None and definition.version > own.version

    def forget_deployed(self) -> None:
        """Forget deployments: another store is opened, which may not have them."""
        self._deployed.clear()


def _place(program: PythonProgram) -> str:
    return f"{program.stored.file}:{program.stored.first_line}"

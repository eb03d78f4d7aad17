"""Definitions as the engine runs them: compiled once, kept by content hash."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.errors import NotFound
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.plan import Node, Plan
from dalsegno.model.definition import Definition
from dalsegno.ports.archive import Archive
from dalsegno.ports.clock import Clock
from dalsegno.ports.node import NodeTypes

CURRENT_FOR = 0.5
"""Another process may deploy a new version; a start may still use the one before for this long."""


class Program:
    """A definition ready to run. ``parsed`` remembers parameters that hold no templates."""

    __slots__ = ("definition", "parsed", "plan")

    def __init__(self, definition: Definition, plan: Plan) -> None:
        self.definition = definition
        self.plan = plan
        self.parsed: dict[Node, Any] = {}

    def meta(self, execution: str) -> dict[str, Any]:
        """The root ``$execution``."""
        return {"id": execution, "workflow": self.definition.name, "version": self.definition.version}


class Definitions:
    def __init__(
        self,
        archive: Archive,
        types: NodeTypes,
        clock: Clock,
        limits: EngineLimits = DEFAULT_LIMITS,
        capacity: int = 256,
    ) -> None:
        self.archive = archive
        self._clock = clock
        self._limits = limits.document
        self._current: dict[str, tuple[Program, float]] = {}
        self.types = types
        self._capacity = capacity
        self._programs: OrderedDict[str, Program] = OrderedDict()

    def cached(self, hash: str) -> Program | None:
        return self._programs.get(hash)

    async def by_hash(self, hash: str) -> Program:
        program = self._programs.get(hash)
        if program is None:
            definition = await self.archive.definition_by_hash(hash)
            if definition is None:
                raise NotFound(f"no definition with the content hash {hash} is stored here")
            program = self.add(definition)
        return program

    async def by_name(self, name: str, version: int | None = None) -> Program:
        """The current version is looked up at most every ``CURRENT_FOR`` seconds; ``forget`` after a deploy here."""
        if (
            version is None
            and (known := self._current.get(name)) is not None
            and known[1] > self._clock.now()
        ):
            return known[0]
        program = await self._find(name, version)
        if version is None:
            self._current[name] = (program, self._clock.now() + CURRENT_FOR)
        return program

    def forget(self, name: str) -> None:
        self._current.pop(name, None)

    async def _find(self, name: str, version: int | None) -> Program:
        definition = await self.archive.definition(name, version)
        if definition is None:
            raise NotFound(
                _unknown(name, version, [known.name for known in await self.archive.definitions()])
            )
        return self._programs.get(definition.hash) or self.add(definition)

    def load(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Compiled:
        """Checks and compiles a document; ``name`` is for those that have none."""
        return load_graph(document, self.types, default_name=name, limits=self._limits)

    def add(self, definition: Definition) -> Program:
        """Compiles a stored definition. It was valid when it was stored; a node type may be missing here, though."""
        program = Program(definition, self.load(definition.source).plan)
        self._programs[definition.hash] = program
        if len(self._programs) > self._capacity:
            self._programs.popitem(last=False)
        return program


def _unknown(name: str, version: int | None, known: list[str]) -> str:
    if name in known:
        return f"workflow '{name}' has no version {version}"
    listed = ", ".join(f"'{other}'" for other in known[:10]) or "none yet"
    return f"no workflow is named '{name}'; deployed here: {listed}"

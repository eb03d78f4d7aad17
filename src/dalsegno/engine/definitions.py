"""Definitions as the engine runs them: compiled once, kept by content hash."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from dalsegno.engine.budget import refuse_if_light
from dalsegno.engine.offload import Offload
from dalsegno.engine.scripting.programs import AbsentProgram, ScriptProgram
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.shared_looks import SharedLooks
from dalsegno.errors import CodeMissing, NotFound, SnapshotRefused
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.plan import Node, Plan
from dalsegno.lang import FlowProgram
from dalsegno.lang.python import PythonProgram
from dalsegno.lang.python.homes import imported
from dalsegno.lang.python.program import StoredProgram, stored_program
from dalsegno.model.definition import Definition, Version, is_part, no_such_version
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.suggestion import no_such_workflow
from dalsegno.ports.archive import Archive
from dalsegno.ports.clock import Clock
from dalsegno.ports.node import NodeTypes

P = TypeVar("P", bound="Program | ScriptProgram")

Resolve: TypeAlias = Callable[[str, str], Any]
"""From a module and a qualified name to the Python workflow of the running program, or None."""

CURRENT_FOR = 0.5
"""Another process may deploy a new version; a start may still use the one before for this long."""


MOST_SUGGESTED = 1000
KEPT_BYTES = 24 * 1024 * 1024
"""Of memory, about, that graphs may take that are kept, and as much for scripts."""
PER_BYTE, PER_OPERATOR = 40, 300
"""Bytes of memory for one byte of a stored definition, and for each operator in it; measured on graphs of many nodes,
and on long expressions."""
OPERATORS = b"+-*/%<>=!&|?"
LOADED_HERE = 2_048
"""Bytes of a stored definition that is loaded without a thread: dense expressions take ten milliseconds a kilobyte."""


class DefinitionList(Protocol):
    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]: ...


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


class Kept(Generic[P]):
    """Programs by content hash. Those go that were not used for the longest time, beyond a number and beyond the memory
    that they take: a definition of a megabyte takes up to a hundred."""

    def __init__(self, capacity: int, most_bytes: int = KEPT_BYTES) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._programs: OrderedDict[str, P] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._lock = Lock()
        """Large definitions are loaded in a thread, and kept by it."""
        self.bytes = 0

    def get(self, hash: str) -> P | None:
        found = self._programs.get(hash)
        if found is not None:
            with contextlib.suppress(KeyError):  # another thread has put in more meanwhile
                self._programs.move_to_end(hash)
        return found

    def put(self, hash: str, program: P) -> None:
        """However large it is, the newest one is kept."""
        with self._lock:
            self._drop(hash)
            self._programs[hash] = program
            self._bytes[hash] = memory_of(program.definition)
            self.bytes += self._bytes[hash]
            while len(self._programs) > 1 and (
                len(self._programs) > self._capacity or self.bytes > self._most_bytes
            ):
                self._drop(next(iter(self._programs)))

    def _drop(self, hash: str) -> None:
        self._programs.pop(hash, None)
        self.bytes -= self._bytes.pop(hash, 0)


def memory_of(definition: Definition) -> int:
    """Bytes that it takes when it is loaded, about."""
    source = definition.source
    return PER_BYTE * len(source) + PER_OPERATOR * (len(source) - len(source.translate(None, OPERATORS)))


class Definitions:
    """``resolve`` finds the running code of a Python workflow, where this process has it."""

    def __init__(
        self,
        archive: Archive,
        types: NodeTypes,
        clock: Clock,
        limits: EngineLimits = DEFAULT_LIMITS,
        capacity: int = 256,
        resolve: Resolve | None = None,
        own: Callable[[str], PythonProgram | None] = lambda name: None,
    ) -> None:
        """``own``: the running version of a Python workflow, by its name."""
        self._resolve = resolve
        self._own = own
        self._scripts: Kept[ScriptProgram] = Kept(capacity)
        self._machine_limits = limits.scripts
        self.archive = archive
        self._clock = clock
        self._limits = limits.document
        self._current: OrderedDict[str, tuple[Program | ScriptProgram, float]] = OrderedDict()
        self._looks: SharedLooks[Program | ScriptProgram] = SharedLooks()
        self._loads: SharedLooks[Any] = SharedLooks()
        self.offload = Offload()
        self.types = types
        self._programs: Kept[Program] = Kept(capacity)

    def cached(self, hash: str) -> Program | None:
        return self._programs.get(hash)

    def cached_script(self, hash: str) -> ScriptProgram | None:
        return self._scripts.get(hash)

    async def script(self, hash: str) -> ScriptProgram:
        known = self._scripts.get(hash)
        if known is None:
            known = await self._loaded(await self._stored(hash), self.add_script)
        return known

    async def any_by_hash(self, hash: str) -> Program | ScriptProgram:
        known = self._scripts.get(hash) or self._programs.get(hash)
        return known if known is not None else await self._loaded(await self._stored(hash), self._load)

    async def _loaded(self, definition: Definition, load: Callable[[Definition], P]) -> P:
        """A large graph or script is loaded in a thread, once for all who ask for it at the same time."""
        if definition.kind == "python":
            return load(definition)
        refuse_if_light(len(definition.source))
        if len(definition.source) <= LOADED_HERE:
            return load(definition)
        key = f"{load.__name__} {definition.hash}"  # the same definition is loaded for different purposes
        loaded: P = await self._loads.of(
            key, lambda: self.offload.load(load, definition), lambda program: None
        )
        return loaded

    async def _stored(self, hash: str) -> Definition:
        definition = await self.archive.definition_by_hash(hash)
        if definition is None:
            raise NotFound(f"no definition with the content hash {hash} is stored here")
        return definition

    def _load(self, definition: Definition) -> Program | ScriptProgram:
        """To be started: that needs less than running it does."""
        if definition.kind == "python":
            stored = stored_program(definition.source)
            if self._is_absent(stored):
                return AbsentProgram(definition, stored.front_matter, self._machine_limits)
        return self.add_script(definition) if definition.kind in SCRIPTED else self.add(definition)

    def add_script(self, definition: Definition) -> ScriptProgram:
        """Loads a stored program; nothing is compiled again."""
        is_python = definition.kind == "python"
        code = self._load_python(definition) if is_python else FlowProgram.load(definition.source)
        return self._keep_script(definition, code)

    def _keep_script(self, definition: Definition, code: FlowProgram | PythonProgram) -> ScriptProgram:
        program = ScriptProgram(definition, code, self._machine_limits)
        program.is_own = definition.kind == "python" and self._own_version(definition) is not None
        self._scripts.put(definition.hash, program)
        return program

    def _load_python(self, definition: Definition) -> PythonProgram:
        """Its native parts live in the user's module; nothing is imported because a record says so."""
        stored = stored_program(definition.source)
        if self._is_absent(stored):
            raise CodeMissing(
                f"the Python workflow '{definition.name}' lives in module '{stored.module}', which this process has"
                f" not imported; start the worker with its application (dalsegno worker --app {stored.module}:app)",
                stored.module,
            )
        if stored.hash != definition.hash:
            raise SnapshotRefused(
                f"the stored code of version {definition.version} of '{definition.name}' is that of another version: it"
                " was changed in the store. Nothing was run. Restore it from a backup"
            )
        return PythonProgram.load(definition.source, self._resolve, self._own_version(definition))

    def _own_version(self, definition: Definition) -> PythonProgram | None:
        """The same version as the running program has it: its code is preferred to what the store says."""
        own = self._own(definition.name)
        return own if own is not None and own.hash == definition.hash else None

    def _is_absent(self, stored: StoredProgram) -> bool:
        running = self._resolve(stored.module, stored.qualname) if self._resolve is not None else None
        return running is None and imported(stored.module) is None

    async def name_of(self, hash: str) -> str:
        """Of a stored definition, which need not be loaded for that."""
        known = self._scripts.get(hash) or self._programs.get(hash)
        return known.definition.name if known is not None else (await self._stored(hash)).name

    async def by_hash(self, hash: str) -> Program:
        program = self._programs.get(hash)
        if program is None:
            program = await self._loaded(await self._stored(hash), self.add)
        return program

    async def by_name(self, name: str, version: Version = None) -> Program | ScriptProgram:
        """The current version is looked up at most every ``CURRENT_FOR`` seconds, and once for all who ask for it at
        the same time; ``forget`` after a deploy here."""
        if version is not None:
            return await self._find(name, version)
        known = self._current.get(name)
        if known is not None and known[1] > self._clock.now():
            return known[0]

        def keep(program: Program | ScriptProgram) -> None:
            now = self._clock.now()
            self._current.pop(name, None)
            self._current[name] = (program, now + CURRENT_FOR)
            while next(iter(self._current.values()))[1] <= now:  # nobody may ask for those names again
                self._current.popitem(last=False)

        return await self._looks.of(name, lambda: self._find(name, None), keep)

    def forget(self, name: str) -> None:
        self._current.pop(name, None)
        self._looks.forget(name)

    async def _find(self, name: str, version: Version) -> Program | ScriptProgram:
        definition = await deployed(self.archive, name, version)
        known = self._programs.get(definition.hash) or self._scripts.get(definition.hash)
        return known if known is not None else await self._loaded(definition, self._load)

    def load(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Compiled:
        """Checks and compiles a document; ``name`` is for those that have none."""
        return load_graph(document, self.types, default_name=name, limits=self._limits)

    async def provisional(self, definition: Definition) -> Program | ScriptProgram:
        """A definition as it would run, of one that is not stored: to see whether a start of it is in order."""
        known = self._programs.get(definition.hash) or self._scripts.get(definition.hash)
        return known if known is not None else await self._loaded(definition, self._provisional)

    def _provisional(self, definition: Definition) -> Program | ScriptProgram:
        if definition.kind == "graph":
            return Program(definition, self._plan(definition))
        return ScriptProgram(definition, FlowProgram.load(definition.source), self._machine_limits)

    def keep(self, definition: Definition, program: Program | ScriptProgram) -> None:
        """What was provisional is stored now."""
        if isinstance(program, Program):
            self._keep_graph(definition, program.plan)
        else:
            self._keep_script(definition, program.code)

    def add(self, definition: Definition) -> Program:
        """Compiles a stored definition. It was valid when it was stored; a node type may be missing here, though."""
        return self._keep_graph(definition, self._plan(definition))

    def _plan(self, definition: Definition) -> Plan:
        return load_graph(definition.source, self.types, limits=self._limits, stored=True).plan

    def _keep_graph(self, definition: Definition, plan: Plan) -> Program:
        program = Program(definition, plan)
        self._programs.put(definition.hash, program)
        return program


async def deployed(archive: Archive, name: str, version: Version = None) -> Definition:
    """A workflow by its name. A script inside a graph is none: only its graph starts it. Raises NotFound."""
    definition = await archive.definition(name, version)
    if definition is not None and not is_part(definition):
        return definition
    if definition is None and version is not None and await archive.definition(name) is not None:
        raise NotFound(no_such_version(name, version))
    raise NotFound(no_such_workflow(name, await deployed_names(archive)))


async def deployed_names(archive: DefinitionList) -> list[str]:
    """What an error may suggest instead of a name that is not there. Never more than a page: a mistyped name must cost
    little, however many are deployed."""
    return [each.name for each in await archive.definitions(limit=MOST_SUGGESTED) if not is_part(each)]

"""Definitions in executable form: compiled once and cached by content hash.

- Concurrent callers that need the same definition share one read of the store.
- A script inside a graph is a definition of its own, stored with the graph it belongs to.
- The text of a graph, YAML with its comments, is stored next to the definition, which holds only the content. The
  text belongs to the content hash: deploying the same content with a different text replaces the text.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.outbox_orders import StartOrder
from dalsegno.engine.process import in_background
from dalsegno.engine.scripts.programs import AbsentProgram, ScriptProgram, definition_hash
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.steps.budget import refuse_if_light
from dalsegno.engine.subprocesses.job_pool import Offload
from dalsegno.errors import CodeMissing, Conflict, NotFound, SnapshotRefused
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.plan import Node, Plan
from dalsegno.lang import FlowProgram
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import PythonProgram
from dalsegno.lang.python.environment import imported
from dalsegno.lang.python.program import StoredProgram, stored_program
from dalsegno.model.definition import (
    PART_KIND,
    VERSION_SIGN,
    Definition,
    Version,
    is_part,
    no_such_version,
    parse_target,
    part_hash,
    part_name,
)
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.suggestion import no_such_workflow
from dalsegno.ports.archive import Archive
from dalsegno.ports.clock import Clock
from dalsegno.ports.node import NodeTypes
from dalsegno.ports.records import Records

T = TypeVar("T")


class SharedReads(Generic[T]):
    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[T | None]] = {}

    async def of(self, key: str, look: Callable[[], Awaitable[T]], keep: Callable[[T], None]) -> T:
        """Return the result of ``look``, from this call or from one already in flight. ``keep`` receives it once. If
        the call in flight fails, each waiting caller calls its own ``look``: the failure may have been the other
        caller's, or it was cancelled.
        """
        while (other := self._under_way.get(key)) is not None:
            if (found := await asyncio.shield(other)) is not None:
                return found
        answer = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            found = await look()
            if self._under_way.get(key) is answer:
                keep(found)
            answer.set_result(found)
            return found
        finally:
            if self._under_way.get(key) is answer:
                del self._under_way[key]
            if not answer.done():
                answer.set_result(None)

    def forget(self, key: str) -> None:
        """Drop the read in flight, which may be outdated: its result is not kept, and later callers read again."""
        self._under_way.pop(key, None)


class GroupedReads(Generic[T]):
    """Reads of many keys grouped into one call. Keys requested during a call go together with the next one."""

    def __init__(self, look: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]], most: int) -> None:
        """``most``: largest number of keys per call."""
        self._look = look
        self._most = most
        self._asked: dict[str, list[asyncio.Future[T | None]]] = {}
        self._is_looking = False

    async def of(self, key: str) -> T | None:
        """Return the value of ``key``, None if there is none. Raises what the read raises."""
        answer: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(key, []).append(answer)
        if not self._is_looking:
            self._is_looking = True
            in_background(self._look_at_all())
        return await answer

    async def _look_at_all(self) -> None:
        try:
            while self._asked:
                asked = {key: self._asked.pop(key) for key in list(islice(self._asked, self._most))}
                found, error = await self._found(list(asked))
                for key, answers in asked.items():
                    for answer in answers:
                        if answer.done():  # its caller no longer waits
                            continue
                        if error is not None:
                            answer.set_exception(error)
                        else:
                            answer.set_result(found.get(key))
        finally:
            self._is_looking = False

    async def _found(self, keys: Sequence[str]) -> tuple[Mapping[str, T], Exception | None]:
        try:
            return await self._look(keys), None
        except Exception as error:  # noqa: BLE001 - those who asked raise it
            return {}, error


P = TypeVar("P", bound="Program | ScriptProgram")

Resolve: TypeAlias = Callable[[str, str, str], Any]
"""Resolve a module and a qualified name to the Python workflow of the running program, or None."""

CURRENT_FOR = 0.5
"""Seconds for which the current version of a workflow is cached. A start may use the previous version for this long
after another process has deployed a new one.
"""


MOST_SUGGESTED = 1000
KEPT_BYTES = 24 * 1024 * 1024
"""Approximate bytes of memory for cached graphs, and as much again for cached scripts."""
PER_BYTE, PER_OPERATOR = 40, 300
"""Bytes of memory per byte of a stored definition, and per operator in it; measured on graphs with many nodes and on
long expressions.
"""
OPERATORS = b"+-*/%<>=!&|?"
LOADED_HERE = 2_048
"""Largest stored definition, in bytes, that is loaded without a thread: dense expressions take ten milliseconds per
kilobyte.
"""


class DefinitionList(Protocol):
    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]: ...


class Program:
    """An executable graph. ``parsed`` caches parameters without templates."""

    __slots__ = ("definition", "parsed", "plan")

    def __init__(self, definition: Definition, plan: Plan) -> None:
        self.definition = definition
        self.plan = plan
        self.parsed: dict[Node, Any] = {}

    def meta(self, execution: str) -> dict[str, Any]:
        """Return the value of the root ``$execution``."""
        return {
            "id": execution,
            "workflow": self.definition.name.removeprefix(VERSION_SIGN),
            "version": self.definition.version,
        }


class Kept(Generic[P]):
    """LRU cache of programs by content hash. It is bounded by a number of programs and by the memory they take: a
    definition of one megabyte takes up to a hundred.
    """

    def __init__(self, capacity: int, most_bytes: int = KEPT_BYTES) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._programs: OrderedDict[str, P] = OrderedDict()
        self._bytes: dict[str, int] = {}
        self._lock = Lock()
        """Large definitions are loaded in a thread, which also stores them here."""
        self.bytes = 0

    def get(self, hash: str) -> P | None:
        found = self._programs.get(hash)
        if found is not None and len(self._programs) > 1:  # every step asks, some twice
            try:
                self._programs.move_to_end(hash)
            except KeyError:  # another thread has inserted more meanwhile
                return found
        return found

    def put(self, hash: str, program: P) -> None:
        """Add a program. The newest one is kept however large it is."""
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
    """Return the approximate bytes of memory that a loaded definition takes."""
    source = definition.source
    return PER_BYTE * len(source) + PER_OPERATOR * (len(source) - len(source.translate(None, OPERATORS)))


class Definitions:
    """Definitions of a store, compiled and cached. ``resolve`` finds the running code of a Python workflow if this
    process has it.
    """

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
        self._looks: SharedReads[Program | ScriptProgram] = SharedReads()
        self._loads: SharedReads[Any] = SharedReads()
        self.offload = Offload()
        self.types = types
        self._programs: Kept[Program] = Kept(capacity)
        self.cached = self._programs.get
        """Return the graph with this content hash if it is loaded."""
        self.cached_script = self._scripts.get

    async def script(self, hash: str) -> ScriptProgram:
        known = self._scripts.get(hash)
        if known is None:
            known = await self._loaded(await self._stored(hash), self.add_script)
        return known

    async def any_by_hash(self, hash: str) -> Program | ScriptProgram:
        known = self._scripts.get(hash) or self._programs.get(hash)
        return known if known is not None else await self._loaded(await self._stored(hash), self._load)

    async def _loaded(self, definition: Definition, load: Callable[[Definition], P]) -> P:
        """Load a definition. A large graph or script is loaded in a thread, once for all concurrent callers."""
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
        """Load a definition for a start, which needs less than running it does."""
        if definition.kind == "python":
            stored = stored_program(definition.source)
            if self._is_absent(stored):
                return AbsentProgram(definition, stored.front_matter, self._machine_limits)
        return self.add_script(definition) if definition.kind in SCRIPTED else self.add(definition)

    def add_script(self, definition: Definition) -> ScriptProgram:
        """Load a stored program without compiling it again."""
        is_python = definition.kind == "python"
        code = self._load_python(definition) if is_python else FlowProgram.load(definition.source)
        return self._keep_script(definition, code)

    def _keep_script(self, definition: Definition, code: FlowProgram | PythonProgram) -> ScriptProgram:
        program = ScriptProgram(definition, code, self._machine_limits)
        program.is_own = definition.kind == "python" and self._own_version(definition) is not None
        self._scripts.put(definition.hash, program)
        return program

    def _load_python(self, definition: Definition) -> PythonProgram:
        """Load a Python workflow. Its native parts come from the user's module; a record never causes an import."""
        stored = _same_content(definition)
        if self._is_absent(stored):
            raise CodeMissing(
                f"the Python workflow '{definition.name}' is defined in module '{stored.module}', which this process"
                f" has not imported; start the worker with its application (dalsegno worker --app {stored.module}:app)",
                stored.module,
            )
        return PythonProgram.load(definition.source, self._resolve, self._own_version(definition))

    def _own_version(self, definition: Definition) -> PythonProgram | None:
        """Return the program of the running process if it is the same version: its code takes precedence over the
        stored one.
        """
        own = self._own(definition.name)
        return own if own is not None and own.hash == definition.hash else None

    def _is_absent(self, stored: StoredProgram) -> bool:
        found = self._resolve
        running = found(stored.module, stored.qualname, stored.name) if found is not None else None
        return running is None and imported(stored.module) is None

    async def for_moving(self, hash: str, new: ScriptProgram) -> ScriptProgram:
        """Return a version whose machines are moved to the version ``new``. It does not run: its module need not be
        here.
        """
        known = self._scripts.get(hash)
        if known is not None:
            return known
        definition = await self._stored(hash)
        if definition.kind == "python" and isinstance(new.code, PythonProgram):
            stored = _same_content(definition)
            if self._is_absent(stored):
                code = PythonProgram(stored, new.code.surroundings)
                return ScriptProgram(definition, code, self._machine_limits)
        return await self._loaded(definition, self.add_script)

    async def definition_of(self, hash: str) -> Definition:
        """Return a stored definition without loading it."""
        known = self._scripts.get(hash) or self._programs.get(hash)
        return known.definition if known is not None else await self._stored(hash)

    async def name_of(self, hash: str) -> str:
        return (await self.definition_of(hash)).name

    def known(self, hash: str) -> Program | None:
        """Return a program that this process has loaded, without reading the store."""
        return self._programs.get(hash)

    async def by_hash(self, hash: str) -> Program:
        program = self._programs.get(hash)
        if program is None:
            program = await self._loaded(await self._stored(hash), self.add)
        return program

    async def named(self, workflow: str, version: Version = None) -> Program | ScriptProgram:
        """Return the program of a workflow name, which may include a version."""
        name, named = parse_target(workflow)
        return await self.by_name(name, version if named is None else named)

    async def ordered(self, order: StartOrder) -> Program | ScriptProgram:
        """Return the program of an order. Raises NotFound if it is not deployed."""
        if order.definition is not None:
            return await self.any_by_hash(order.definition)
        name, version = parse_target(order.workflow)
        return await self.by_name(name, order.version if order.version is not None else version)

    async def by_name(self, name: str, version: Version = None) -> Program | ScriptProgram:
        """Return the program of a workflow. The current version is read at most every ``CURRENT_FOR`` seconds, once
        for all concurrent callers. Call ``forget`` after a deploy in this process.
        """
        if version is not None:
            return await self._find(name, version)
        known = self._current.get(name)
        if known is not None:
            program, until = known
            if until > self._clock.now():
                return program

        def keep(program: Program | ScriptProgram) -> None:
            now = self._clock.now()
            self._current.pop(name, None)
            self._current[name] = (program, now + CURRENT_FOR)
            while next(iter(self._current.values()))[1] <= now:  # names that may never be requested again
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
        """Check and compile a document. ``name`` is for documents that have none."""
        return load_graph(document, self.types, default_name=name, limits=self._limits)

    async def provisional(self, definition: Definition) -> Program | ScriptProgram:
        """Load a definition that is not stored, to validate a start of it."""
        known = self._programs.get(definition.hash) or self._scripts.get(definition.hash)
        return known if known is not None else await self._loaded(definition, self._provisional)

    def _provisional(self, definition: Definition) -> Program | ScriptProgram:
        if definition.kind == "graph":
            return Program(definition, self._plan(definition))
        return ScriptProgram(definition, FlowProgram.load(definition.source), self._machine_limits)

    def undeployed(self, code: FlowProgram | PythonProgram, version: int) -> ScriptProgram:
        """Return the program of this process under the version that it would get. Nothing is stored."""
        definition = Definition(code.name, version, definition_hash(code), code.kind, code.dump())
        program = ScriptProgram(definition, code, self._machine_limits)
        program.is_own = isinstance(code, PythonProgram)
        return program

    def keep(self, definition: Definition, program: Program | ScriptProgram) -> None:
        """Cache a provisional program whose definition is stored now."""
        if isinstance(program, Program):
            self._keep_graph(definition, program.plan)
        else:
            self._keep_script(definition, program.code)

    def add(self, definition: Definition) -> Program:
        """Compile a stored definition. It was valid when it was stored, but this process may lack a node type."""
        return self._keep_graph(definition, self._plan(definition))

    def _plan(self, definition: Definition) -> Plan:
        return load_graph(definition.source, self.types, limits=self._limits, stored=True).plan

    def _keep_graph(self, definition: Definition, plan: Plan) -> Program:
        program = Program(definition, plan)
        self._programs.put(definition.hash, program)
        return program


def _same_content(definition: Definition) -> StoredProgram:
    """Return a stored Python workflow. Raise SnapshotRefused if it is that of another version."""
    stored = stored_program(definition.source)
    if stored.hash != definition.hash:
        raise SnapshotRefused(
            f"the stored code of version {definition.version} of '{definition.name}' is that of another version: it"
            " was changed in the store. Nothing was run. Restore it from a backup"
        )
    return stored


async def deployed(archive: Archive, name: str, version: Version = None) -> Definition:
    """Return a deployed workflow by its name. A script inside a graph is not a workflow: only its graph starts it.
    Raises NotFound.
    """
    definition = await archive.definition(name, version)
    if definition is not None and not is_part(definition):
        return definition
    if definition is None and version is not None and await archive.definition(name) is not None:
        raise NotFound(no_such_version(name, version))
    raise NotFound(no_such_workflow(name, await deployed_names(archive)))


async def deployed_names(archive: DefinitionList) -> list[str]:
    """Return the names that an error may suggest for an unknown one. At most one page is read: a mistyped name must
    be cheap, however many workflows are deployed.
    """
    return [each.name for each in await archive.definitions(limit=MOST_SUGGESTED) if not is_part(each)]


SCRIPT_TYPE = "script"


def parts_of(plan: Plan) -> list[tuple[str, Node, str]]:
    """Return name, node and source of each script in a graph."""
    return [
        (part_name(plan.name, node.id), node, source)
        for node in plan.nodes.values()
        if node.type == SCRIPT_TYPE and isinstance(source := node.parameters.raw.get("source"), str)
    ]


def part_hashes(plan: Plan) -> list[str]:
    """Return the content hashes of the scripts in a graph."""
    return [part_hash(name, source) for name, _, source in parts_of(plan)]


class _StoredNode(Struct):
    id: str
    type: str = ""
    parameters: Raw = Raw(b"null")


class _StoredGraph(Struct):
    name: str
    nodes: list[_StoredNode] = []


def stored_part_hashes(stored: bytes) -> list[str]:
    """Return the same from the stored form of a graph, without checking it again."""
    graph = msgspec.json.decode(stored, type=_StoredGraph)
    found = [(node.id, _source(node.parameters)) for node in graph.nodes if node.type == SCRIPT_TYPE]
    return [part_hash(part_name(graph.name, node), source) for node, source in found if source is not None]


def _source(parameters: Raw) -> str | None:
    read = msgspec.json.decode(parameters)
    source = read.get("source") if isinstance(read, dict) else None
    return source if isinstance(source, str) else None


async def store_parts(archive: Archive, plan: Plan) -> None:
    """Compile and store the scripts of a checked graph. This precedes storing the graph, so that no stored graph
    lacks a script. If one script is refused, nothing is stored.
    """
    parts = parts_of(plan)
    for name, node, _ in parts:
        current = await archive.definition(name)
        if current is not None and current.kind != PART_KIND:
            raise Conflict(
                f"the script of node '{node.id}' is stored under the name '{name}', which is taken by a workflow; "
                "rename the node"
            )
    for name, _, source in parts:
        program = compile_script(source, name)
        await archive.put_definition(name, part_hash(name, source), PART_KIND, program.dump())


KIND = "definition-text"


async def keep_text(records: Records, definition: Definition, text: str | bytes) -> None:
    raw = text.encode() if isinstance(text, str) else text
    known = await records.get(KIND, definition.hash)
    if known is None or known.data != raw:
        await records.put(KIND, definition.hash, raw)


async def text_of(records: Records, definition: Definition) -> str | None:
    """Return the text of a graph; None if it was deployed as data, or if the definition is no graph."""
    found = await records.get(KIND, definition.hash) if definition.kind == "graph" else None
    return found.data.decode(errors="replace") if found is not None else None


async def forget_texts(records: Records, definitions: Iterable[Definition]) -> None:
    """Remove the texts of removed definitions."""
    for each in definitions:
        if each.kind == "graph":
            await records.remove(KIND, each.hash)

"""Pure functions on callers' data, and the process that runs them: ``python -m dalsegno.job_process MEMORY SECONDS``.

Each function takes and returns plain values. `JOBS` is the closed set of functions that a parent may call. Requests
arrive on the standard input and results are written to the standard output, both as length-prefixed MessagePack.
The process ends when its input is closed, and an alarm ends it when one job takes too long.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from dalsegno.core.foreign_tasks import packed_result
from dalsegno.core.json_fields import Shape, packed_fields, read_delivery, source_parts
from dalsegno.core.values import value_digest
from dalsegno.core.wire.execution_message import read_apart
from dalsegno.engine.definitions import SCRIPT_TYPE, stored_part_hashes
from dalsegno.engine.operations.diff import compare, source_text
from dalsegno.engine.scripts.inspection import look_in_process, state_in_process
from dalsegno.engine.scripts.moving import move_in_process
from dalsegno.engine.scripts.programs import (
    InvalidScript,
    check_script,
    compile_checked,
    definition_hash,
    examine,
)
from dalsegno.engine.subprocesses.examination import TypeSpec, WiderCatalog, node_spec
from dalsegno.engine.subprocesses.job_pool import LENGTH
from dalsegno.engine.wire.carried import Carried, compile_carried
from dalsegno.errors import DalSegnoError, Finding, InvalidDefinition, InvalidInput
from dalsegno.graph.build import Compiled, content_of, load_graph
from dalsegno.graph.catalog import Catalog, ParameterProblem
from dalsegno.graph.documents.document import DocumentLimits
from dalsegno.graph.json_schema.shape import check_input
from dalsegno.lang import ExpressionFailed, FlowSyntaxError, Limits, RootNames, compile_expression
from dalsegno.lang import Finding as ScriptFinding
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python.program import stored_program
from dalsegno.lang.runtime.limits import Meter
from dalsegno.model.definition import Definition, part_hash, part_name
from dalsegno.nodes.http.body import body_json, page_json

NAMELESS = "(unnamed)"
"""Placeholder name while a definition without a name is compiled; nothing is stored under it."""
SHOWN_OF_HASH = 16
NICENESS = 10
"""Niceness of the process: request handling has priority, and on a busy machine the process gets about a tenth of a
core."""
TRIES, TRY_SECONDS = 10, 0.1
"""Attempts to set the niceness of a session, and the pause between them."""
LIBRARIES = 512 * 1024 * 1024
"""Address space of code and shared libraries, in addition to the data."""

Place = dict[str, Any]
"""``pointer``, ``message`` and ``rule`` of a finding, and ``line`` and ``column`` of one in a script."""

NO_PLACE: Place = dict.fromkeys(("pointer", "message", "rule", "line", "column"))


class Prepared(msgspec.Struct, frozen=True):
    """A checked definition as it is stored."""

    kind: str
    name: str
    hash: str
    source: bytes
    content: str
    """Hash of the content alone, without the name."""
    warnings: list[Place] = []
    parts: list[tuple[str, str, str, bytes]] = []
    """Scripts inside a graph: (name, node, hash, program)."""


class Checked(msgspec.Struct, frozen=True):
    """The findings of a validation."""

    valid: bool
    kind: str
    name: str | None = None
    findings: list[Place] = []


class Given(msgspec.Struct, frozen=True):
    """A definition as sent by a caller: the text of a script or graph, or the JSON of a graph document."""

    is_script: bool
    content: Any
    """Text, JSON as bytes, or the document itself."""
    name: str = NAMELESS
    max_bytes: int = 10_000_000
    max_depth: int = 200
    queues: dict[str, str] = {}
    """Queues of tasks for which the graph specifies none."""
    concurrency: dict[str, dict[str, Any]] = {}
    names_itself: bool = False
    """Whether a definition without a name is named after its content."""
    provided: list[str] = []
    """Names of the context's values, if a message carries the definition."""


# -- definitions -----------------------------------------------------------------------------------------------


def validated(given: Given, catalog: Catalog, meter: Meter | None = None) -> Checked:
    if given.is_script:
        return _validated_script(str(given.content), given.name, meter)
    try:
        compiled = _graph(given, catalog, given.name, meter)
    except InvalidDefinition as error:
        return Checked(False, "graph", None, [_place(each) for each in error.findings])
    name, refused = _shown(compiled.plan.name), []
    if compiled.plan.triggers:
        from dalsegno.admin.triggers import refused_by_deploy  # noqa: PLC0415 - only graphs with triggers need it

        refused = refused_by_deploy(compiled.plan, is_light=meter is not None)
    found = [*map(_place, refused), *map(_place, compiled.warnings)]
    return Checked(not refused, "graph", name, found)


def validation(given: Given, catalog: Catalog, meter: Meter | None = None) -> dict[str, Any]:
    """Return the findings in the form that is sent to the parent: possibly many, as JSON. A light ``meter`` raises
    Heavy before a costly pattern is compiled."""
    found = validated(given, catalog, meter)
    findings = msgspec.json.encode([{**NO_PLACE, **each} for each in found.findings])
    return {"valid": found.valid, "kind": found.kind, "name": found.name, "findings": findings}


def _shown(name: str) -> str | None:
    return name if name != NAMELESS else None


def _place(finding: Finding) -> Place:
    return {"pointer": finding.pointer, "message": finding.message, "rule": finding.rule}


def _script_place(finding: ScriptFinding) -> Place:
    where = {"line": finding.line, "column": finding.column}
    return {"pointer": "", "message": finding.message, "rule": finding.rule, **where}


def _validated_script(text: str, name: str, meter: Meter | None) -> Checked:
    try:
        found, program = examine(text, name, meter)
    except FlowSyntaxError:
        findings = check_script(text, meter=meter)
        return Checked(False, "script", None, [_script_place(each) for each in findings])
    except InvalidInput as error:
        places = [_script_place(each) for each in check_script(text, meter=meter)]
        return Checked(False, "script", None, [*places, {"pointer": "/name", "message": str(error)}])
    places = [_script_place(each) for each in found]
    if any(each.severity == "error" for each in found):
        return Checked(False, "script", None, places)
    return Checked(True, "script", _shown(program.name), places)


def prepared(given: Given, catalog: Catalog, meter: Meter | None = None) -> Prepared:
    """Compile a definition for storage. Raises InvalidDefinition, InvalidScript, FlowSyntaxError or InvalidInput;
    with a light ``meter`` Heavy, before a costly pattern is compiled."""
    found = _prepared(given, catalog, given.name, meter)
    if found.name != NAMELESS or not given.names_itself:
        return found
    return _prepared(given, catalog, f"{found.kind}-{found.content[:SHOWN_OF_HASH]}", meter)


def _prepared(given: Given, catalog: Catalog, name: str, meter: Meter | None) -> Prepared:
    if given.is_script:
        program = compile_checked(str(given.content), name, meter)
        return Prepared("script", program.name, definition_hash(program), program.dump(), program.hash)
    compiled = _with_queues(_graph(given, catalog, name, meter), given, catalog)
    return Prepared(
        "graph",
        compiled.plan.name,
        compiled.hash,
        compiled.definition_source,
        compiled.hash,
        [_place(each) for each in compiled.warnings],
        _parts(compiled),
    )


def _graph(given: Given, catalog: Catalog, name: str, meter: Meter | None) -> Compiled:
    limits = DocumentLimits(given.max_bytes, given.max_depth)
    return load_graph(given.content, catalog, default_name=name, limits=limits, meter=meter)


def _with_queues(compiled: Compiled, given: Given, catalog: Catalog) -> Compiled:
    """Add the queues and limits that its tasks have where it is deployed."""
    if not given.queues and not given.concurrency:
        return compiled
    document = msgspec.json.decode(compiled.definition_source)
    changed = False
    for node in document.get("nodes", ()):
        parameters = node.get("parameters") or {}
        task = parameters.get("task", parameters.get("name"))
        if node.get("type") != "task" or not isinstance(task, str):
            continue
        if task in given.queues and "queue" not in node:
            node["queue"] = given.queues[task]
            changed = True
        if task in given.concurrency and "concurrency" not in node:
            node["concurrency"] = {"key": f"task:{task}", **given.concurrency[task]}
            changed = True
    return load_graph(document, catalog) if changed else compiled


def _parts(compiled: Compiled) -> list[tuple[str, str, str, bytes]]:
    plan = compiled.plan
    found = []
    for node in plan.nodes.values():
        source = node.parameters.raw.get("source")
        if node.type == SCRIPT_TYPE and isinstance(source, str):
            name = part_name(plan.name, node.id)
            found.append((name, node.id, part_hash(name, source), compile_script(source, name).dump()))
    return found


# -- jobs of the process ---------------------------------------------------------------------------------------


def _catalog() -> Catalog:
    from dalsegno.nodes.registry import builtin_registry  # noqa: PLC0415 - only processes need it

    global _registry  # noqa: PLW0603 - one for all jobs of this process
    if _registry is None:
        _registry = builtin_registry()
    return _registry


_registry: Catalog | None = None


def _validate(given: Any) -> Any:
    return validation(msgspec.convert(given, Given), _catalog())


def _prepare(given: Any) -> Any:
    return prepared(msgspec.convert(given, Given), _catalog())


def _with_types(job: str, given: Any, types: Any, known: Any) -> dict[str, Any]:
    """Run a job on a graph with node types of the application. Returns the parameters of their nodes too, which
    only the application's process can check. ``known``: the problems it has found with them."""
    wrong = {
        (name, raw): [
            ParameterProblem(tuple(path), message, rule, severity) for path, message, rule, severity in found
        ]
        for name, raw, found in known
    }
    seen: dict[tuple[str, str], None] = {}

    def check(name: str, parameters: Mapping[str, Any]) -> Sequence[ParameterProblem]:
        place = (name, json.dumps(parameters))
        seen[place] = None
        return wrong.get(place, ())

    specs = [node_spec(each, partial(check, each.type)) for each in msgspec.convert(types, list[TypeSpec])]
    catalog = WiderCatalog(_catalog(), specs)
    reply = _answered(EXAMINATIONS[job], msgspec.convert(given, Given), catalog)
    return {"reply": reply, "parameters": list(seen)}


def _fit(schema: bytes, raw: bytes, steps: int) -> list[list[str]]:
    found = check_input(msgspec.json.decode(schema), msgspec.json.decode(raw), steps)
    return [[each.pointer, each.message] for each in found]


def _key(source: str, raw: bytes, now: float, limits: Mapping[str, Any]) -> Any:
    """Return the concurrency key of a large input."""
    trigger = msgspec.json.decode(raw)
    key = compile_expression(source, names=RootNames.of())
    found = key.evaluate({"$trigger": trigger}.__getitem__, now=now, limits=Limits(**limits))
    return found if isinstance(found, str | int | float) else None


def _definition(fields: Mapping[str, Any]) -> Definition:
    return Definition(**fields)


def _text(definition: Mapping[str, Any]) -> bytes:
    """Return the text as a JSON string, to be copied into a reply."""
    return msgspec.json.encode(source_text(_definition(definition)))


def _first_line(definition: Mapping[str, Any]) -> int:
    """Return the number of the first line of a Python workflow in its file."""
    return stored_program(definition["source"]).first_line


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Any]:
    changes = compare(_definition(before), _definition(after))
    return [bool(changes), msgspec.json.encode(changes.as_object())]


def _fields(body: bytes, shape: Any) -> Any:
    with _no_collections():
        return packed_fields(body, msgspec.convert(shape, Shape))


def _response(*arguments: Any) -> bytes:
    with _no_collections():
        return body_json(*arguments)


def _result(body: bytes) -> dict[str, Any]:
    with _no_collections():
        return packed_result(body)


def _page(*arguments: Any) -> dict[str, Any]:
    with _no_collections():
        return page_json(*arguments)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Disable the garbage collector: it would scan millions of new objects without cycles again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def carried(given: Given, catalog: Catalog, meter: Meter | None = None) -> Carried:
    """Compile a definition that a message of another program carries."""
    limits = DocumentLimits(given.max_bytes, given.max_depth)
    return compile_carried(given.content, given.provided, catalog, limits, meter)


def _content(source: bytes, max_bytes: int, max_depth: int) -> str:
    return content_of(source, DocumentLimits(max_bytes, max_depth))


EXAMINATIONS: dict[str, Callable[..., Any]] = {"carry": carried, "prepare": prepared, "validate": validation}
"""Jobs on a definition, with the catalog of node types as their second argument."""
JOBS: dict[str, Callable[..., Any]] = {
    "compare": _compare,
    "content": _content,
    "delivery": read_delivery,
    "digest": value_digest,
    "fields": _fields,
    "first_line": _first_line,
    "fit": _fit,
    "key": _key,
    "look": look_in_process,
    "message": read_apart,
    "move": move_in_process,
    "page": _page,
    "parts": stored_part_hashes,
    "prepare": _prepare,
    "response": _response,
    "result": _result,
    "source_parts": source_parts,
    "state": state_in_process,
    "text": _text,
    "validate": _validate,
    "with_types": _with_types,
}


def answer(name: str, arguments: Sequence[Any]) -> dict[str, Any]:
    return _answered(JOBS[name], *arguments)


def _answered(job: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    try:
        return {"value": job(*arguments)}
    except DalSegnoError as error:
        return {"raised": _packed(error)}
    except (MemoryError, RecursionError):
        return {"raised": {"class": "LimitExceeded", "message": "the work on this takes too much memory"}}


def _packed(error: DalSegnoError) -> dict[str, Any]:
    if isinstance(error, InvalidDefinition):
        return {"class": "InvalidDefinition", "findings": [each.as_dict() for each in error.findings]}
    if isinstance(error, InvalidScript):
        found = [
            [each.rule, each.severity, each.message, each.line, each.column, each.excerpt]
            for each in error.findings
        ]
        return {"class": "InvalidScript", "name": error.name, "findings": found}
    if isinstance(error, FlowSyntaxError):
        where = {"line": error.line, "column": error.column}
        return {"class": "FlowSyntaxError", "message": error.message, **where}
    if isinstance(error, ExpressionFailed):
        return {"class": "InvalidInput", "message": str(error), "code": error.code}
    return {"class": type(error).__name__, "message": str(error)}


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(LENGTH.size)
    return stream.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None


def go_last(niceness: int = NICENESS) -> None:
    """Give every other process of the machine priority.

    Linux may schedule whole sessions against each other (``sched_autogroup``), so that the niceness of a process
    only applies within its session. The process therefore gets a session of its own, and the session the same
    niceness.
    """
    if not hasattr(os, "nice"):
        return
    os.nice(niceness)
    with suppress(OSError):  # the process has a session of its own already
        os.setsid()
    for _ in range(TRIES):
        try:
            Path("/proc/self/autogroup").write_text(str(niceness))
        except BlockingIOError:  # without privileges, the kernel allows one change in a tenth of a second
            time.sleep(TRY_SECONDS)
        except OSError:  # not every kernel has such groups
            return
        else:
            return


def confine(memory: int) -> None:
    """Limit the resources of this process, and lower its priority. Not every kernel enforces both limits of memory."""
    go_last()
    try:
        import resource  # noqa: PLC0415 - not on every platform
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_AS, (memory + LIBRARIES, memory + LIBRARIES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(memory: int, seconds: int) -> None:
    import signal  # noqa: PLC0415 - only the process itself needs it

    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep printed text out of the protocol
    confine(memory)
    _catalog()
    sink.write(b"!")
    sink.flush()
    while (body := _read(source)) is not None:
        name, arguments = msgspec.msgpack.decode(body)
        del body
        if hasattr(signal, "alarm"):
            signal.alarm(seconds)
        result = msgspec.msgpack.encode(answer(name, arguments))
        if hasattr(signal, "alarm"):
            signal.alarm(0)
        sink.write(LENGTH.pack(len(result)))
        sink.write(result)
        sink.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

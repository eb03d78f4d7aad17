"""Scripts inside graphs: each is a definition of its own, stored with the graph it is part of."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from dalsegno.errors import Conflict
from dalsegno.graph.plan import Node, Plan
from dalsegno.lang import compile as compile_script
from dalsegno.model.definition import PART_KIND, part_hash, part_name
from dalsegno.ports.archive import Archive

SCRIPT_TYPE = "script"


def parts_of(plan: Plan) -> list[tuple[str, Node, str]]:
    """Name, node and source of each script in a graph."""
    return [
        (part_name(plan.name, node.id), node, source)
        for node in plan.nodes.values()
        if node.type == SCRIPT_TYPE and isinstance(source := node.parameters.raw.get("source"), str)
    ]


def part_hashes(plan: Plan) -> list[str]:
    """Content hashes of the scripts in a graph."""
    return [part_hash(name, source) for name, _, source in parts_of(plan)]


class _StoredNode(Struct):
    id: str
    type: str = ""
    parameters: Raw = Raw(b"null")


class _StoredGraph(Struct):
    name: str
    nodes: list[_StoredNode] = []


def stored_part_hashes(stored: bytes) -> list[str]:
    """The same from the stored form of a graph, which is not checked again."""
    graph = msgspec.json.decode(stored, type=_StoredGraph)
    found = [(node.id, _source(node.parameters)) for node in graph.nodes if node.type == SCRIPT_TYPE]
    return [part_hash(part_name(graph.name, node), source) for node, source in found if source is not None]


def _source(parameters: Raw) -> str | None:
    read = msgspec.json.decode(parameters)
    source = read.get("source") if isinstance(read, dict) else None
    return source if isinstance(source, str) else None


async def store_parts(archive: Archive, plan: Plan) -> None:
    """Compiles and stores the scripts of a checked graph. Before the graph itself: no stored graph lacks one. Where one
    of them is refused nothing is stored."""
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

"""Scripts inside graphs: each is a definition of its own, stored with the graph it is part of."""

from __future__ import annotations

from dalsegno.errors import Conflict
from dalsegno.graph.plan import Plan
from dalsegno.lang import compile as compile_script
from dalsegno.model.definition import PART_KIND, part_hash, part_name
from dalsegno.ports.archive import Archive

SCRIPT_TYPE = "script"


async def store_parts(archive: Archive, plan: Plan) -> None:
    """Compiles and stores the scripts of a checked graph. Before the graph itself: no stored graph lacks one."""
    for node in plan.nodes.values():
        source = node.parameters.raw.get("source") if node.type == SCRIPT_TYPE else None
        if not isinstance(source, str):
            continue
        name = part_name(plan.name, node.id)
        current = await archive.definition(name)
        if current is not None and current.kind != PART_KIND:
            raise Conflict(
                f"the script of node '{node.id}' is stored under the name '{name}', which is taken by a workflow; "
                "rename the node"
            )
        program = compile_script(source, name)
        await archive.put_definition(name, part_hash(name, source), PART_KIND, program.dump())

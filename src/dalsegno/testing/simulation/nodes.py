"""The one node type the simulator adds: work whose result, failures and duration are written in the document."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any
from zlib import crc32

import msgspec
from pydantic import BaseModel, ConfigDict

from dalsegno.nodes.builder import node_type
from dalsegno.nodes.builtin import BUILTIN_TYPES
from dalsegno.nodes.registry import NodeRegistry
from dalsegno.ports.node import NodeContext, NodeError

ALWAYS = 1000


class WorkParameters(BaseModel):
    """``kills``: how many first runs take their process down · ``fails``: how many first attempts fail · ``when``:
    fail only if this is true · ``seconds``: virtual duration · ``note``: anything, part of what the output is a digest
    of · ``pad``: characters that make the output larger."""

    model_config = ConfigDict(extra="forbid")

    kills: int = 0
    fails: int = 0
    when: Any = True
    seconds: float = 0.0
    note: Any = None
    pad: int = 0


def digest(node: str, payload: Any, note: Any) -> int:
    """A small number that depends on everything the run was given."""
    text = msgspec.json.encode([node, payload, note], order="sorted")
    return crc32(text) % 9973


def work_output(node: str, payload: Any, note: Any, pad: int) -> dict[str, Any]:
    output: dict[str, Any] = {"n": node, "v": digest(node, payload, note)}
    if pad:
        output["pad"] = "x" * pad
    return output


@node_type("work", parameters=WorkParameters, needs=("$payload",))
async def work(ctx: NodeContext, parameters: WorkParameters) -> Any:
    """A deterministic function of its input, after a while, or a failure."""
    if parameters.kills:
        await _die(ctx, parameters.kills)
    if parameters.seconds:
        await asyncio.sleep(parameters.seconds)
    if ctx.attempt <= parameters.fails and parameters.when:
        raise NodeError(f"programmed failure of {ctx.node_id}", code="PROGRAMMED")
    return work_output(ctx.node_id, ctx.payload, parameters.note, parameters.pad)


async def _die(ctx: NodeContext, times: int) -> None:
    """A node that crashes its interpreter, until it has done so often enough."""
    deaths = ctx.services["deaths"]
    if deaths[ctx.idempotency_key] < times:
        deaths[ctx.idempotency_key] += 1
        ctx.services["life"].die()
        await asyncio.sleep(0)


@cache
def simulation_registry() -> NodeRegistry:
    return NodeRegistry((*BUILTIN_TYPES, work))

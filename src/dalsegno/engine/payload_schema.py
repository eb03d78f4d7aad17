"""Looks at callers' values without holding up the event loop: short ones here, long ones in a process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dalsegno.core.values import decode_value, value_digest
from dalsegno.engine.offload import Offload
from dalsegno.engine.settings import EngineLimits
from dalsegno.errors import LimitExceeded

INLINE_BYTES: Final = 65_536
INLINE_STEPS: Final = 10_000
"""About five milliseconds; whatever needs more goes to a process, with the whole limit."""


async def payload_problems(
    schema: Mapping[str, Any], raw: bytes, limits: EngineLimits, offload: Offload
) -> list[tuple[str, str]]:
    """(pointer, message) of what keeps a value from fitting."""
    from dalsegno.graph.input_schema import found_within  # noqa: PLC0415 - only workflows with a schema need it

    if len(raw) <= INLINE_BYTES:
        found = found_within(schema, decode_value(raw), min(INLINE_STEPS, limits.schema_steps))
        if found is not None:
            return [(each.pointer, each.message) for each in found]
    reply = await offload.large("fit", msgspec.json.encode(schema), raw, limits.schema_steps)
    if "value" not in reply:
        raise LimitExceeded(
            f"the value cannot be checked against its schema: {reply['raised'].get('message', '')}"
        )
    return [(pointer, message) for pointer, message in reply["value"]]


async def digest(raw: bytes | msgspec.Raw, offload: Offload) -> str:
    """Of a value, whatever the order of its keys."""
    if len(given := bytes(raw)) <= INLINE_BYTES:
        return value_digest(given)
    reply = await offload.large("digest", given)
    if "value" not in reply:
        raise LimitExceeded(f"the value cannot be compared: {reply['raised'].get('message', '')}")
    return str(reply["value"])

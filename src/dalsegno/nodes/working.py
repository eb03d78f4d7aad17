"""The working payload ``$json``: what edit and list nodes work on unless told otherwise."""

from __future__ import annotations

from typing import Any

from dalsegno.ports.node import NodeContext


def working_payload(ctx: NodeContext) -> Any:
    """The value of ``$json``, or None where nothing came in and nothing was edited yet."""
    try:
        return ctx.lookup("$json")
    except KeyError:
        return None

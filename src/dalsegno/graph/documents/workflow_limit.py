"""The concurrency limit of a workflow, read from a graph, a script's front matter or a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.errors import InvalidInput
from dalsegno.graph.plan import WorkflowLimit
from dalsegno.lang import Expression, ExpressionError, RootNames, compile_expression
from dalsegno.model.limits import read_concurrency


def read_workflow_limit(
    value: object, workflow: str, compile_key: Callable[[str], Expression | None]
) -> WorkflowLimit:
    """Read the limit. A key that begins with ``$`` or is in ``{{ }}`` is an expression; any other key is constant.

    Raises ValueError with the reason.
    """
    read = read_concurrency(value)
    key = (read.key or "").strip()
    if not key.startswith(("$", "{{")):
        return WorkflowLimit(read.allows, key or f"workflow:{workflow}")
    source = key[2:-2] if key.startswith("{{") and key.endswith("}}") else key
    return WorkflowLimit(read.allows, key, compile_key(source))


def front_matter_limit(front_matter: Mapping[str, Any], workflow: str) -> WorkflowLimit | None:
    """Read the limit of a script or Python workflow; raise InvalidInput with the reason."""
    value = front_matter.get("concurrency")
    if value is None:
        return None
    try:
        return read_workflow_limit(value, workflow, _over_the_input)
    except (ValueError, ExpressionError) as error:
        of = f" of workflow '{workflow}'" if workflow else ""
        raise InvalidInput(f"the concurrency{of} is not valid: {error}") from None


def _over_the_input(source: str) -> Expression:
    """Compile an expression over the input. There are no nodes to name, only ``$trigger``."""
    return compile_expression(source, names=RootNames.of())

"""JSON Schema of start payloads and approval forms: checked when a definition is, and again with every value.

No reference leaves the schema, patterns run on RE2, and a check ends after a limited number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import re2

from dalsegno.errors import Finding
from dalsegno.graph.document import SCHEMA_STEPS
from dalsegno.graph.findings import quoted
from dalsegno.graph.schema_dialect import pointer
from dalsegno.graph.schema_evaluation import Errors, Evaluation, OutOfSteps, Unresolved
from dalsegno.graph.schema_shape import Examination

MAX_PROBLEMS = 50
_TOO_DEEP = "The schema nests or refers to itself too deeply."


def schema_problems(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(pointer within the schema, sentence) for what is wrong with a schema, `MAX_PROBLEMS` of it at most."""
    found = islice(Examination(schema).problems(), MAX_PROBLEMS)
    return list(dict.fromkeys((pointer(place), message) for place, message in found))


def check_input(schema: Mapping[str, Any], payload: Any, steps: int = SCHEMA_STEPS) -> list[Finding]:
    """What keeps a payload from fitting ``schema``, with pointers into the payload."""
    found = found_within(schema, payload, steps)
    if found is None:
        message = f"Checking the payload takes more than {steps:,} steps (limit 'schema_steps')."
        return [Finding("", "input-schema", message)]
    return found


def found_within(schema: Mapping[str, Any], payload: Any, steps: int) -> list[Finding] | None:
    """The same; None where that takes more steps."""
    errors = Errors(MAX_PROBLEMS)
    problem = None
    try:
        Evaluation(schema, steps).check(schema, payload, None, errors)
    except OutOfSteps:
        return None
    except RecursionError:
        problem = _TOO_DEEP
    except Unresolved as error:
        problem = f"The schema refers to {quoted(str(error))}, which it lacks."
    except (re2.error, ArithmeticError, AttributeError, TypeError, ValueError):
        problem = (
            "The schema is not a valid JSON Schema."  # stored before schemas were checked as they are now
        )
    found = [Finding(place, "input-schema", message) for place, message in errors]
    return [*found, Finding("", "input-schema", problem)] if problem is not None else found

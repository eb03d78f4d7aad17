"""JSON Schemas of start payloads and approval forms: checked with the definition, and evaluated for every value.

No reference leaves the schema, patterns run on RE2, and a check ends after a limited number of steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from dalsegno.errors import Finding
from dalsegno.graph.documents.document import SCHEMA_STEPS
from dalsegno.graph.documents.findings import quoted
from dalsegno.graph.json_schema.dialect import pointer
from dalsegno.graph.json_schema.evaluation import Errors, Evaluation, OutOfSteps, Unresolved
from dalsegno.graph.json_schema.shape import Examination
from dalsegno.lang.runtime.limits import Meter
from dalsegno.lang.values.regex import BadPattern

MAX_PROBLEMS = 50
_TOO_DEEP = "The schema nests or refers to itself too deeply."


def schema_problems(schema: Mapping[str, Any], meter: Meter | None = None) -> list[tuple[str, str]]:
    """Return (pointer within the schema, message) of at most `MAX_PROBLEMS` problems of a schema.

    A light ``meter`` charges for patterns before they are compiled.
    """
    found = islice(Examination(schema, meter).problems(), MAX_PROBLEMS)
    return list(dict.fromkeys((pointer(place), message) for place, message in found))


def check_input(schema: Mapping[str, Any], payload: Any, steps: int = SCHEMA_STEPS) -> list[Finding]:
    """Return the reasons why a payload does not match ``schema``, with pointers into the payload."""
    found = found_within(schema, payload, steps)
    if found is None:
        message = f"Checking the payload takes more than {steps:,} steps (limit 'schema_steps')."
        return [Finding("", "input-schema", message)]
    return found


def found_within(
    schema: Mapping[str, Any], payload: Any, steps: int, *, is_light: bool = False
) -> list[Finding] | None:
    """Like `check_input`, but return None if ``steps`` are exceeded.

    A light check compiles only patterns that it can pay for.
    """
    errors = Errors(MAX_PROBLEMS)
    problem = None
    try:
        Evaluation(schema, steps, is_light=is_light).check(schema, payload, None, errors)
    except OutOfSteps:
        return None
    except RecursionError:
        problem = _TOO_DEEP
    except Unresolved as error:
        problem = f"The schema refers to {quoted(str(error))}, which it lacks."
    except BadPattern as error:
        problem = f"A pattern of the schema cannot be compiled: {error}."
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        problem = (
            "The schema is not a valid JSON Schema."  # stored before the current checks of schemas existed
        )
    found = [Finding(place, "input-schema", message) for place, message in errors]
    return [*found, Finding("", "input-schema", problem)] if problem is not None else found

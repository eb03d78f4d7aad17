"""The OpenAPI document against the running server: every route, with good and bad data, never breaks its word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    ensure_resource_availability,
    missing_required_header,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
    use_after_free,
)

from dalsegno.app import App
from dalsegno.server.schemas.tasks import LONGEST_WAIT
from tests.server.conftest import LiveServer
from tests.server.document import openapi_document

EXAMPLES = int(os.environ.get("DALSEGNO_API_EXAMPLES", "2"))
"""Of each route, good ones and bad ones; ``make soak`` tries 100."""
ENDLESS = {("GET", "/v1/stream")}
"""Never ends, by design."""
CLOSING = {("POST", "/v1/keys")}
"""The first key would close the door that this test comes through."""
LONGEST_QUERY = 60_000
"""A request whose headers exceed 64 KiB is refused by the connection, before any route could keep a promise."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    missing_required_header,
    unsupported_method,
    allow_header_conformance,
    use_after_free,
    ensure_resource_availability,
]
"""For the others see `checks_of`; those about keys are left to `test_keys`, since this server has none."""
TELLS_WHAT_IS_WRONG = "/v1/definitions/validate"
"""Whatever it is given is answered with 200 and everything that is wrong with it."""
STREAMED = ("/v1/executions/endings",)
"""To the document a stream is a text; this tool takes each of its events for an answer."""
SCHEMA = schemathesis.openapi.from_dict(openapi_document())
OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for operation in (found.ok() for found in SCHEMA.get_all_operations())
    if (operation.method.upper(), operation.path) not in ENDLESS | CLOSING
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(App("memory:")) as running:
        yield running


GOOD, BAD = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


def in_a_hurry(case: Any) -> Any:
    """A claim waits for work, up to half a minute each time; here none will come."""
    if case.path == "/v1/tasks/claim" and isinstance(case.body, dict):
        asked = case.body.get("wait", 20)
        if isinstance(asked, int | float) and 0 < asked <= LONGEST_WAIT:
            case.body["wait"] = 0.01
    return case


def checks_of(case: Any) -> list[Any]:
    """Bad bodies must be refused, too; what is bad in a query is often good once it is written down as text. That good
    data is accepted cannot be asked: a schema does not know which cursors were given out, or what makes a graph."""
    if case.path in STREAMED:
        return [check for check in CHECKS if check is not response_schema_conformance]
    is_judged = isinstance(case.body, dict | list) and not case.query and case.path != TELLS_WHAT_IS_WRONG
    return [*CHECKS, negative_data_rejection] if is_judged else CHECKS


def has_input(operation: Any) -> bool:
    """Whether there is anything that could be wrong with a request."""
    found = operation.definition.raw
    return bool(found.get("parameters") or found.get("requestBody"))


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, GOOD) for name in sorted(OPERATIONS)]
    + [(name, BAD) for name in sorted(OPERATIONS) if has_input(OPERATIONS[name])],
)
def test_no_request_breaks_the_server_or_its_promises(
    server: LiveServer, name: str, mode: GenerationMode
) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[name].as_strategy(generation_mode=mode))
    def try_it(case: Any) -> None:
        assume(len(urlencode(case.query or {}, doseq=True)) < LONGEST_QUERY)
        response = in_a_hurry(case).call(base_url=server.url, timeout=30)
        case.validate_response(response, checks=checks_of(case))

    try_it()

"""The OpenAPI document against the running server: every route, with good and bad data, never breaks its word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dalsegno.app import App
from dalsegno.server import create_application
from tests.server.conftest import LiveServer

EXAMPLES = int(os.environ.get("DALSEGNO_API_EXAMPLES", "3"))
"""Of each route, good ones and bad ones; ``make soak`` tries 100."""
ENDLESS = {("GET", "/v1/stream")}
"""Never ends, by design."""
CLOSING = {("POST", "/v1/keys")}
"""The first key would close the door that this test comes through."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SCHEMA = schemathesis.openapi.from_dict(create_application(App("memory:")).openapi())
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
        response = case.call(base_url=server.url, timeout=30)
        case.validate_response(response, checks=CHECKS)

    try_it()

"""The OpenAPI document itself: whole, and true about what is sent and answered."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
from jsonschema import Draft202012Validator, FormatChecker

from dalsegno.server.executions.sources import OTHER_MEDIA_TYPES
from tests.server.document import openapi_document

DOCUMENT = openapi_document()
REFERENCE = re.compile(r'"\$ref": "#/([^"]+)"')
DEPLOY = DOCUMENT["paths"]["/v1/definitions"]["post"]


def at(pointer: str) -> Any:
    found: Any = DOCUMENT
    for part in pointer.split("/"):
        found = found[part]
    return found


def test_every_reference_leads_somewhere() -> None:
    references = set(REFERENCE.findall(json.dumps(DOCUMENT)))
    assert references
    for reference in references:
        assert isinstance(at(reference), dict)


async def test_examples_of_definitions_can_be_deployed_as_they_stand(http: httpx.AsyncClient) -> None:
    bodies = DEPLOY["requestBody"]["content"] | DEPLOY["requestBody"][OTHER_MEDIA_TYPES]
    assert set(bodies) == {"application/json", "application/yaml", "application/vnd.dalsegno.flow"}
    for media, body in bodies.items():
        example = body["example"]
        content = example if isinstance(example, str) else json.dumps(example)
        answer = await http.post("/v1/definitions", content=content, headers={"Content-Type": media})
        assert answer.status_code == 201, answer.text


async def test_what_was_there_before_is_an_answer_of_the_document(http: httpx.AsyncClient) -> None:
    example = DEPLOY["requestBody"]["content"]["application/json"]["example"]
    start = {"workflow": "hello", "input": {"name": "Ada"}, "idempotency_key": "once"}
    for path, body in (("/v1/definitions", example), ("/v1/executions", start)):
        answers = [(await http.post(path, json=body)).status_code for _ in range(2)]
        assert answers == [201, 200]
        assert {"200", "201"} <= set(DOCUMENT["paths"][path]["post"]["responses"])


def good_answers() -> list[tuple[str, dict[str, Any]]]:
    """Every 2xx answer that has a body, by a name for the reader."""
    return [
        (f"{status} {method} {path} {media}", body)
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for media, body in answer.get("content", {}).items()
    ]


def test_every_good_answer_has_an_example_that_fits_its_schema() -> None:
    answers = good_answers()
    assert len(answers) > 90
    assert [name for name, body in answers if "example" not in body] == []
    wrong = []
    for name, body in answers:
        schema = {**body["schema"], "components": DOCUMENT["components"]}
        problems = Draft202012Validator(schema, format_checker=FormatChecker()).iter_errors(body["example"])
        wrong += [f"{name}: {problem.json_path}: {problem.message}" for problem in problems]
    assert wrong == []


def test_examples_say_something() -> None:
    """One that is put together from types alone would be no help."""
    examples = json.dumps([body["example"] for _, body in good_answers()])
    assert examples.count('"text"') < 20


def requests() -> list[tuple[str, str, Any]]:
    return [
        (f"{method} {path}", media, body)
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for media, body in operation.get("requestBody", {}).get("content", {}).items()
    ]


def test_every_body_that_is_sent_has_an_example_that_fits() -> None:
    found = requests()
    assert len(found) > 20
    for where, media, body in found:
        assert "example" in body, (where, media)
        schema = {**body.get("schema", {}), "components": DOCUMENT["components"]}
        wrong = list(Draft202012Validator(schema).iter_errors(body["example"]))
        assert not wrong, (where, media, wrong[0].message)
    told = {where: body["example"] for where, media, body in found if media != "text/plain"}
    assert told["post /v1/executions/{execution}/trigger"] == {"input": {"name": "Grace"}}
    assert told["post /v1/approvals/links/{token}"]["decision"] == "approved"


async def test_the_root_is_the_page_of_the_web_ui(http: httpx.AsyncClient) -> None:
    answer = await http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert 'href="/docs"' in answer.text

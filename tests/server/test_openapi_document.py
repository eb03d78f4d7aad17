"""The OpenAPI document as generators of clients need it: stable names, no untyped list, every error described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from dalsegno.server.http.problems import MEDIA_TYPE, REFERENCE, STATUSES, Problem
from tests.server.document import openapi_document

DOCUMENT = openapi_document()
NAMES = Path(__file__).with_name("operations.txt")
"""What generated clients call. A name changes only with the route that it stands for."""

Schema = dict[str, Any]

FREE_FORM = {
    "ApprovalInfo/form": "a JSON Schema of the workflow's author",
    "AskRequest/payload": "a value of the user's",
    "AwaitingInfo/question": "what an author asks people",
    "ChunkInfo/value": "a value of the user's",
    "PublishedInfo/value": "a value of the user's",
    "BatchStart/input": "a value of the user's",
    "CompleteRequest/output": "a value of the user's",
    "DecisionRequest/data": "a value of the user's",
    "DefinitionDetail/document": "a graph document; its schema is published apart",
    "DefinitionDetail/input_schema": "a JSON Schema of the workflow's author",
    "DefinitionSource/document": "a graph document; its schema is published apart",
    "Difference/changes": "differs between graphs, scripts and functions",
    "EventInfo/data": "differs by the event's kind",
    "Execution/error": "an error with details of the user's",
    "Execution/input": "a value of the user's",
    "Execution/output": "a value of the user's",
    "GraphDocument/dag": "a graph document; its schema is published apart",
    "GraphDocument/edges[]": "a graph document; its schema is published apart",
    "GraphDocument/nodes[]": "a graph document; its schema is published apart",
    "HandCompleteRequest/output": "a value of the user's",
    "InspectionInfo/limits[]": "as the store sees them, for looking closely",
    "OpenTaskInfo/input": "a value of the user's",
    "OpenTaskInfo/returns": "a JSON Schema of the program's author",
    "PictureInfo/variables": "variables of the user's program",
    "RequestInfo/value": "a value of the user's",
    "RerunRequest/context": "outputs of the user's nodes",
    "RerunRequest/set": "variables of the user's program",
    "RerunRequest/answers": "results of the user's tasks",
    "ScheduleInfo/error": "an error with details of the user's",
    "ScheduleInfo/input": "a value of the user's",
    "ScheduleRequest/input": "a value of the user's",
    "ScheduleSetting/input": "a value of the user's",
    "SignalRequest/payload": "a value of the user's",
    "StartRequest/definition": "a graph document; its schema is published apart",
    "StartRequest/input": "a value of the user's",
    "SubmissionResults/error": "an error with details of the user's",
    "SubmissionResults/output": "a value of the user's",
    "SubmissionResults/results": "outputs of the user's nodes",
    "SubmitRequest/dag": "a graph document; its schema is published apart",
    "SubmitRequest/input": "a value of the user's",
    "TaskError/details": "a value of the user's",
    "TaskInfo/input": "a value of the user's",
    "TriggerRequest/input": "a value of the user's",
    "ShownInfo/value": "a value of the user's program",
    "SettledInfo/error": "an error with details of the user's",
    "TurnDetail/error": "an error with details of the user's",
    "deliver_webhook_by_patch 200": "the workflow's output, where the webhook waits for it",
    "deliver_webhook_by_patch body": "whatever the sender of the webhook says",
    "deliver_webhook_by_post 200": "the workflow's output, where the webhook waits for it",
    "deliver_webhook_by_post body": "whatever the sender of the webhook says",
    "deliver_webhook_by_put 200": "the workflow's output, where the webhook waits for it",
    "deliver_webhook_by_put body": "whatever the sender of the webhook says",
    "get_execution_results 200": "outputs of the user's nodes",
}
"""Everything that has no type of its own, and why."""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, found in DOCUMENT["paths"].items():
        for method, operation in found.items():
            yield method.upper(), path, operation


def schemas() -> Iterator[tuple[str, Schema]]:
    """All there are, by a name for the reader."""
    yield from DOCUMENT["components"]["schemas"].items()
    for _, _, operation in operations():
        name = operation["operationId"]
        for body in operation.get("requestBody", {}).get("content", {}).values():
            yield f"{name} body", body["schema"]
        for status, answer in operation["responses"].items():
            for body in answer.get("content", {}).values():
                yield f"{name} {status}", body["schema"]
        for parameter in operation.get("parameters", ()):
            yield f"{name} ?{parameter['name']}", parameter["schema"]


def parts(where: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """A schema and everything in it. Choices stand for the place that they are for."""
    yield where, schema
    for name, below in schema.get("properties", {}).items():
        yield from parts(f"{where}/{name}", below)
    if isinstance(schema.get("items"), dict):
        yield from parts(f"{where}[]", schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        yield from parts(f"{where}{{}}", schema["additionalProperties"])
    for kind in ("anyOf", "oneOf", "allOf"):
        for below in schema.get(kind, ()):
            yield from parts(where, below)


def every_part() -> Iterator[tuple[str, Schema]]:
    for name, schema in schemas():
        yield from parts(name, schema)


def is_free(schema: Schema) -> bool:
    """Whether it says nothing of what is in it."""
    if schema.get("type") == "object":
        more = schema.get("additionalProperties", True)
        return not (schema.get("properties") or schema.get("patternProperties")) and more is True
    return not {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"} & set(schema)


def test_operations_keep_their_names() -> None:
    told = [f"{each['operationId']:32} {method:6} {path}" for method, path, each in operations()]
    assert sorted(told) == NAMES.read_text(encoding="utf-8").splitlines()


def test_names_are_unique_and_readable() -> None:
    names = [each["operationId"] for _, _, each in operations()]
    assert len(names) == len(set(names)) > 100
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []


def test_every_operation_says_what_it_does() -> None:
    for method, path, operation in operations():
        assert operation["summary"], (method, path)
        assert len(operation["description"]) > 10, (method, path)
        assert [each["name"] for each in operation.get("parameters", ()) if not each.get("description")] == []


def test_every_error_answer_is_a_problem() -> None:
    expected = {str(status) for status in (*STATUSES.values(), 431)}
    for method, path, operation in operations():
        errors = {status: each for status, each in operation["responses"].items() if int(status) >= 400}
        assert set(errors) >= expected, (method, path)
        for status, answer in errors.items():
            assert answer["description"], (method, path, status)
            pages = {"text/html"} if path.startswith("/v1/approvals/links/") else set()
            assert set(answer["content"]) - pages == {MEDIA_TYPE}, (method, path, status)
            assert answer["content"][MEDIA_TYPE]["schema"] == REFERENCE
    fields = DOCUMENT["components"]["schemas"]["Problem"]["properties"]
    assert set(fields) == set(Problem.model_fields)
    assert all(each.get("description") for each in fields.values())


def test_every_list_says_what_is_in_it() -> None:
    assert [
        where for where, each in every_part() if each.get("type") == "array" and "items" not in each
    ] == []


def test_every_object_has_fields_or_is_free_for_a_reason() -> None:
    assert {where for where, each in every_part() if is_free(each)} == set(FREE_FORM)


def test_no_schema_is_named_like_one_of_its_fields() -> None:
    """A generated class reads its fields into variables of their names, and itself into one of its own."""
    found = DOCUMENT["components"]["schemas"].items()
    assert [name for name, each in found if name.lower() in each.get("properties", {})] == []


async def test_what_is_refused_has_the_fields_of_the_document(http: httpx.AsyncClient) -> None:
    known = set(DOCUMENT["components"]["schemas"]["Problem"]["properties"])
    required = set(DOCUMENT["components"]["schemas"]["Problem"]["required"])
    for answer in (
        await http.get("/v1/executions/none"),
        await http.post("/v1/executions", json={"workflow": 3, "nonsense": 1}),
        await http.post("/v1/definitions", json={"name": "x", "nodes": [{"id": "a", "type": "htpp"}]}),
        await http.post("/v1/definitions", json={"source": "workflow x( {", "kind": "script"}),
        await http.post("/v1/executions", content="{", headers={"Content-Type": "application/json"}),
    ):
        told = answer.json()
        assert answer.headers["content-type"] == MEDIA_TYPE
        assert required <= set(told) <= known, told
        assert told["findings"] == told["errors"]
        assert all(place["message"] and "pointer" in place for place in told["findings"])

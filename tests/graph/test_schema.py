"""The published schema is valid, and accepts what is accepted."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from scripts.pages.schema import document_schema
from tests.graph.catalog import CATALOG
from tests.graph.documents import document
from tests.graph.test_good_documents import DAG, RFC_DOCUMENT

VALIDATOR = Draft202012Validator(document_schema(CATALOG))


def test_schema_is_valid() -> None:
    Draft202012Validator.check_schema(document_schema(CATALOG))


@pytest.mark.parametrize("source", [RFC_DOCUMENT, yaml.safe_load(DAG), document("a > m", m="merge")])
def test_good_documents_fit(source: Any) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(source)] == []


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"nodes": []},
        {"nodes": [{"id": "a", "type": "nope"}]},
        {"nodes": [{"id": "a", "type": "http", "parameters": {}}]},
        {"nodes": [{"id": "a", "type": "http", "parameters": {"url": 3}}]},
        {"dag": {"nodes": [{"id": "a", "handler": "http", "config": {"url": 3}}]}},
        {"nodes": [{"id": "a b", "type": "log"}]},
        {"nodes": [{"id": "a", "type": "log", "retry": {"often": True}}]},
        {"nodes": [{"id": "a", "type": "log"}], "edges": [{"src": "a"}]},
    ],
)
def test_bad_shapes_do_not_fit(source: Any) -> None:
    assert list(VALIDATOR.iter_errors(source))


def test_templates_are_accepted_where_other_types_are_expected() -> None:
    assert VALIDATOR.is_valid(
        {"nodes": [{"id": "a", "type": "http", "parameters": {"url": "{{ $trigger.url }}"}}]}
    )

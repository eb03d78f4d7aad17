"""Workflows as nodes of workflows: how tests write them and find their executions."""

from __future__ import annotations

from typing import Any

from dalsegno.handle import Handle
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from tests.scenarios.documents import graph
from tests.scenarios.stage import Stage


def workflow(name: str, input: Any = ..., **fields: Any) -> dict[str, Any]:
    own = {key: fields.pop(key) for key in ("version", "wait") if key in fields}
    given = {} if input is ... else {"input": input}
    return {"type": "workflow", "parameters": {"name": name, **given, **own}, **fields}


def child(
    paths: str, nodes: dict[str, Any] | None = None, name: str = "child", **header: Any
) -> dict[str, Any]:
    return {**graph(paths, nodes, **header), "name": name}


def children_of(stage: Stage, handle: Handle) -> list[ExecutionView]:
    """Oldest first."""
    where = ExecutionFilter(parent=handle.id, relations=("child", "started"))
    return stage.app.host.call(stage.app.client.executions(where))[::-1]


def until_children(stage: Stage, handle: Handle, count: int = 1) -> list[Handle]:
    stage.until(f"{count} children", handle, lambda: len(children_of(stage, handle)) >= count)
    return [stage.app.handle(view.id) for view in children_of(stage, handle)]


def deploy(stage: Stage, *documents: dict[str, Any]) -> None:
    for document in documents:
        stage.app.deploy(document)

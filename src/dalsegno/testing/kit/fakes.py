"""Mocks other than tasks: node types of the library, and child workflows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from dalsegno.engine.steps.tasks import Tasks
from dalsegno.graph.catalog import NodeSpec
from dalsegno.lang.python.values.typed_values import to_plain
from dalsegno.ports.node import NodeContext, NodeType, NodeTypes
from dalsegno.testing.kit.mocking import Call, KitTasks, Mock

WORKFLOW = "workflow:"
"""Prefix of the task that answers for a mocked workflow."""


class KitTypes:
    """The node types of an application, overridden by mocks. Implements NodeTypes."""

    def __init__(self, real: NodeTypes) -> None:
        self._real = real
        self._mocks: dict[str, NodeType] = {}

    def find(self, type_name: str) -> NodeSpec | None:
        return self._real.find(type_name)

    def added(self) -> Sequence[str]:
        return self._real.added()

    def types(self) -> Sequence[str]:
        return self._real.types()

    def get(self, type_name: str) -> NodeType:
        real = self._real.get(type_name)
        return self._mocks.get(real.spec.type, real)

    def mock(self, type_name: str, mock: Mock, tasks: KitTasks) -> None:
        """Let the mock answer instead of the type's function. Parameters are still checked."""
        real = self._real.get(type_name)
        functions = Tasks(threads=1)
        function = mock.function
        if function is not None:
            functions.register(function)

        async def execute(ctx: NodeContext, parameters: Any) -> Any:
            payload = to_plain(parameters, f"the parameters of node '{ctx.node_id}'")
            call = Call(mock.name, payload, ctx.idempotency_key, ctx.attempt, ctx.execution_id)
            tasks.calls.append(call)
            with tasks.verdicts.capture_verdicts():
                if function is None:
                    return mock.answer(call, ctx)
                mock.calls.append(call)
                return await functions.run(mock.name, payload, ctx)

        self._mocks[real.spec.type] = dataclasses.replace(real, execute=execute)


def fake_script(workflow: str) -> str:
    """Return a script that replaces a workflow and passes its input to the mock."""
    name = json.dumps(WORKFLOW + workflow)
    front_matter = f"```\nname: {json.dumps(workflow)}\n```\n"
    return f"{front_matter}workflow(ctx, inputs) {{ return await Task.run({name}, inputs) }}\n"

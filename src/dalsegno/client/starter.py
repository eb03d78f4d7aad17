"""Starts of a server's workflows, with their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dalsegno.client.group import ServerRuntime
from dalsegno.engine.starting.module_import import refuse_during_import
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.handle import Handle
from dalsegno.lang.python import DurableWorkflow
from dalsegno.starts import WorkflowStarts


class Starter(WorkflowStarts):
    """Starts with preset options."""

    __slots__ = ("_client", "_options")

    def __init__(self, client: ServerRuntime, options: StartOptions) -> None:
        self._client = client
        self._options = options

    def _starter(self) -> Starter:
        return self

    def start_now(
        self, workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]:
        self._refuse_during_import()
        return self._client.host.call(self._start(workflow, args, fields, pending))

    async def astart_now(
        self, workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle[Any]:
        self._refuse_during_import()
        return await self._client.host.acall(self._start(workflow, args, fields, pending))

    def _refuse_during_import(self) -> None:
        if self._options.idempotency_key is None:  # with a key, the next import starts nothing new
            refuse_during_import("starts an execution")

    async def _start(
        self, workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any], pending: bool
    ) -> Handle[Any]:
        name, payload, decode = _named(workflow, args, fields)
        calls = self._client.client
        create = calls.submit if pending else calls.start
        return Handle(self._client, await create(name, payload, self._options), decode)


def _named(
    workflow: object, args: tuple[Any, ...], fields: Mapping[str, Any]
) -> tuple[str, Any, Callable[[Any], Any] | None]:
    """Return the workflow's name, its input, and the conversion of its result where its function is known."""
    if isinstance(workflow, DurableWorkflow):
        try:
            return workflow.name, workflow.bind(*args, **fields), workflow.decode_result
        except TypeError as error:
            raise InvalidInput(str(error)) from None
    if not isinstance(workflow, str):
        raise UsageError(
            "a server starts deployed workflows, by their name or by the workflow function; other functions and tasks "
            "of this program run with App"
        )
    if len(args) > 1:
        raise UsageError(
            f"a workflow by name takes one value as its input, or keywords; {len(args)} values were given"
        )
    if fields and args and args[0] is not None:
        raise UsageError("give the input either as one value or as keywords, not both")
    return workflow, dict(fields) or (args[0] if args else None), None

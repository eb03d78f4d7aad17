"""What a running script has asked for since its driver last looked: effects, log lines, and the count of its promises.

The library's functions (stdlib/orchestration.py) write here; the machine hands it to its driver and into snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.lang.effects import (
    AwaitSignal,
    Cancel,
    Effect,
    LeafKind,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    promise_id,
)
from dalsegno.lang.promises import Promise
from dalsegno.model.ids import child_execution_id


class Requests:
    """``made`` is how many promises the execution has made: the next one gets this number."""

    __slots__ = ("effects", "execution", "logs", "made")

    def __init__(self, execution: str = "", made: int = 0) -> None:
        self.execution = execution
        self.made = made
        self.effects: list[Effect] = []
        self.logs: list[tuple[str, str]] = []

    def _promise(self, kind: LeafKind, name: str | None, due: float | None = None) -> Promise:
        promise = Promise(self.made, kind, name, due)
        self.made += 1
        return promise

    def task(self, name: str, inputs: Any, options: Mapping[str, Any]) -> Promise:
        promise = self._promise("task", name)
        self.effects.append(StartTask(promise.id, name, inputs, options))
        return promise

    def workflow(self, name: str, inputs: Any, options: Mapping[str, Any]) -> Promise:
        promise = self._promise("workflow", name)
        self.effects.append(StartWorkflow(promise.id, name, inputs, options))
        return promise

    def detached_workflow(self, name: str, inputs: Any, options: Mapping[str, Any]) -> str:
        """Its execution id; nobody can wait for it, but it takes a number, from which that id is derived."""
        own_id = promise_id(self.made)
        self.made += 1
        self.effects.append(StartWorkflow(own_id, name, inputs, options, detached=True))
        return child_execution_id(self.execution, own_id)

    def timer(self, due: float) -> Promise:
        promise = self._promise("timer", None, due)
        self.effects.append(StartTimer(promise.id, due))
        return promise

    def signal(self, name: str, due: float | None) -> Promise:
        promise = self._promise("signal", name, due)
        self.effects.append(AwaitSignal(promise.id, name, due))
        return promise

    def cancel(self, promise: Promise) -> None:
        self.effects.append(Cancel(promise.id, promise.kind))

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        self.effects.append(SetTags(tags))

    def log(self, level: str, message: str) -> None:
        self.logs.append((level, message))

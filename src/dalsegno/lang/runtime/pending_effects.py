"""Requests of a running script since its driver last took them: effects, log lines, and the count of its promises.

The library's functions (stdlib/orchestration.py) write here; the machine hands the requests to its driver and into
snapshots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Cancel,
    Checkpoint,
    Effect,
    LeafKind,
    Publish,
    Reply,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    WriteStream,
    promise_id,
)
from dalsegno.lang.runtime.promises import Promise
from dalsegno.model.ids import child_execution_id
from dalsegno.model.machine import in_mailbox

LARGEST_ANSWER = 1024 * 1024
"""Bytes of JSON that an answer to a request may have: it is stored with the turn that gives it, and in the history."""
LONGEST_REFUSAL = 4000
"""Characters of the message with which a request is refused."""

GATHER_KEY = "gather:"
"""The prefix of the limit keys that calls of one gather share."""
OTHER_LIMIT = (
    "has a concurrency limit of its own, and how many are gathered at a time cannot be limited beside it"
)


def is_gathered(options: Mapping[str, Any]) -> bool:
    """Return whether a gather limits how many of the calls run at a time."""
    limit = options.get("concurrency")
    return isinstance(limit, Mapping) and str(limit.get("key", "")).startswith(GATHER_KEY)


class Requests:
    """The pending requests. ``made`` is the number of promises created so far, and the number of the next one."""

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
        """Start a detached workflow and return its execution id.

        It cannot be awaited, but takes a number, which the id contains.
        """
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

    def request(self, name: str, due: float | None) -> Promise:
        """Wait for a request. It arrives as a signal does, under a name that no signal has."""
        return self.signal(in_mailbox(name), due)

    def reply(self, id: str, name: str, value: Any) -> None:
        """Answer a request with plain data. Raise ValueError for an answer that is too large."""
        size = len(msgspec.json.encode(value))
        if size > LARGEST_ANSWER:
            raise ValueError(
                f"the answer to request '{name}' is {size:,} bytes of JSON; the limit is {LARGEST_ANSWER:,}. "
                "Keep large data elsewhere and answer with a reference"
            )
        self.effects.append(Reply(id, name, value))

    def reject(self, id: str, name: str, message: str) -> None:
        self.effects.append(Reply(id, name, error=message[:LONGEST_REFUSAL]))

    def share_limit(self, promises: Sequence[Promise], most: int) -> None:
        """Let at most ``most`` of these calls run at a time; the others queue in the store, in their order.

        Raise ValueError for calls that can no longer be limited.
        """
        wanted = {promise.id: promise for promise in promises if promise.kind in ("task", "workflow")}
        found = {
            effect.id: place
            for place, effect in enumerate(self.effects)
            if isinstance(effect, StartTask | StartWorkflow) and effect.id in wanted
        }
        for name, promise in wanted.items():
            if name not in found:
                raise ValueError(
                    f"the {promise.kind} '{promise.name}' has begun before the last await: to limit how many run at a "
                    "time, make the calls where they are gathered"
                )
            if self._started(found[name]).options.get("concurrency") is not None:
                raise ValueError(f"the {promise.kind} '{promise.name}' {OTHER_LIMIT}")
        if len(found) <= most:
            return  # nothing to wait for
        key = f"{GATHER_KEY}{self.execution}:{min(promise.number for promise in wanted.values())}"
        for place in found.values():
            effect = self._started(place)
            options = {**effect.options, "concurrency": {"key": key, "limit": most}}
            self.effects[place] = msgspec.structs.replace(effect, options=options)

    def _started(self, place: int) -> StartTask | StartWorkflow:
        return cast("StartTask | StartWorkflow", self.effects[place])

    def cancel(self, promise: Promise) -> None:
        self.effects.append(Cancel(promise.id, promise.kind))

    def set_tags(self, tags: Mapping[str, str | None]) -> None:
        self.effects.append(SetTags(tags))

    def checkpoint(self, name: str) -> None:
        self.effects.append(Checkpoint(name))

    def publish(self, key: str, value: Any) -> None:
        """Publish a value. One that the same key gets right after another replaces it."""
        if self.effects and type(last := self.effects[-1]) is Publish and last.key == key:
            self.effects.pop()
        self.effects.append(Publish(key, value))

    def write_stream(self, stream: str, chunk: Any) -> None:
        if self.effects and type(last := self.effects[-1]) is WriteStream and last.stream == stream:
            last.chunks.append(chunk)
        else:
            self.effects.append(WriteStream(stream, [chunk]))

    def close_stream(self, stream: str) -> None:
        self.effects.append(WriteStream(stream, [], closes=True))

    def log(self, level: str, message: str) -> None:
        self.logs.append((level, message))

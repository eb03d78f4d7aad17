"""Inputs of tasks: in the token if they are small, else in a blob, or with the execution of a task started alone.

- A turn stores the large inputs of the tasks it calls as blobs of its execution. Each belongs to one task and is
  removed with it, so it counts towards the execution's limit only while the task is unfinished.
- A task that was handed over reads its input from the script that called it: retention keeps the script until the task
  has ended. With the ending the task's execution gets a blob of its own, because it may be kept for longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.core.scripts.token_bodies import (
    LARGEST_INLINE,
    StoredInput,
    TaskBody,
    decode_task,
    input_as_blob,
    input_in_blob,
)
from dalsegno.core.values import decode_value
from dalsegno.engine.steps.values import Storage
from dalsegno.errors import NotFound, OperatorError
from dalsegno.lang.runtime.effects import Effect, StartTask, promise_number
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.ports.archive import Archive
from dalsegno.ports.records import UNTIL_REMOVED, Blobs

logger = logging.getLogger("dalsegno.scripts")

INLINE_PER_TURN = 1024 * 1024
"""Bytes of inputs that the tokens of one turn carry. Beyond it they carry only inputs of up to ``SMALL_INPUT``."""
SMALL_INPUT = 4096
AT_ONCE = 16
"""Inputs that are stored at the same time."""


class TaskInputs:
    def __init__(self, archive: Archive, blobs: Storage) -> None:
        self._archive = archive
        self._blobs = blobs

    async def value(self, execution: str, body: TaskBody) -> Any:
        stored = body.stored
        return decode_value(body.input if stored is None else await self._stored(execution, stored))

    async def raw(self, execution: str, body: TaskBody) -> bytes:
        return bytes(body.input) if body.stored is None else await self._stored(execution, body.stored)

    async def with_own_input(self, view: ExecutionView) -> ExecutionView:
        """Return the view with the task's input: the row of a task that a script handed over has the token's body. An
        input that is no longer stored is shown as null.
        """
        if view.relation != "task":
            return view
        try:
            raw = await self.raw(view.id, decode_task(view.input))
        except NotFound:
            raw = b"null"
        return msgspec.structs.replace(view, input=raw)

    async def _stored(self, execution: str, stored: StoredInput) -> bytes:
        if not stored.blob:
            view = await self._archive.execution(stored.owner)
            if view is None:
                raise NotFound(f"there is no execution {stored.owner} in this store")
            return view.input
        if execution != stored.owner:
            try:
                return input_in_blob(await self._blobs.get(execution, stored.blob))
            except NotFound:
                pass  # it has not ended yet
        return input_in_blob(await self._blobs.get(stored.owner, stored.blob))

    async def keep(self, execution: str, body: TaskBody) -> None:
        """Copy the input of a task that was handed over and is about to end to its own execution."""
        stored = body.stored
        if stored is None or stored.owner == execution:
            return
        try:
            data = await self._blobs.get(stored.owner, stored.blob)
        except NotFound:
            return  # the task has ended before, and the script has been removed since
        await self._blobs.put(execution, data)

    async def keep_of(self, view: ExecutionView) -> None:
        """Do so for an execution that is about to be ended from outside. ``view`` is its outline."""
        if view.relation == "task" and view.state not in ENDED:
            whole = await self._archive.execution(view.id)
            if whole is not None:
                await self.keep(view.id, decode_task(whole.input))

    async def remove(self, execution: str, blob: str) -> None:
        """Remove the input of a task that has ended. If the store is away now, it stays for as long as the script."""
        try:
            await self._blobs.remove(execution, [blob])
        except OperatorError as error:
            logger.info("the input of an ended task of execution %s stays stored: %s", execution, error)


def input_size(body: TaskBody) -> int:
    return len(bytes(body.input)) if body.stored is None else body.stored.size


async def store_inputs(
    blobs: Blobs, execution: str, requests: Sequence[tuple[Effect, bytes]]
) -> dict[str, StoredInput]:
    """Store the inputs that the tokens of a turn do not carry. Return where they are, by the ids of the promises.

    A turn that is run again stores the same.
    """
    found: dict[str, StoredInput] = {}
    large = _not_inline(requests)
    for first in range(0, len(large), AT_ONCE):
        group = large[first : first + AT_ONCE]
        puts = [_put(blobs, execution, promise_number(promise), raw) for promise, raw in group]
        names = await asyncio.gather(*puts, return_exceptions=True)
        for (promise, raw), name in zip(group, names, strict=True):
            if isinstance(name, BaseException):
                raise name
            found[promise] = StoredInput(execution, name, len(raw))
    return found


def _not_inline(requests: Sequence[tuple[Effect, bytes]]) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    inline = 0
    for request, raw in requests:
        if not isinstance(request, StartTask):
            continue
        most = LARGEST_INLINE if inline + len(raw) <= INLINE_PER_TURN else SMALL_INPUT
        if len(raw) > most:
            found.append((request.id, raw))
        else:
            inline += len(raw)
    return found


async def _put(blobs: Blobs, execution: str, promise: int, raw: bytes) -> str:
    return await blobs.put(execution, input_as_blob(promise, raw), turn=UNTIL_REMOVED)

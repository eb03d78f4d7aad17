"""A turn: running a machine from one stop to the next await that no known outcome resolves."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from time import monotonic
from typing import Any, TypeVar

import msgspec

from dalsegno.core.published import UNCOUNTED, UNKEPT_LEVEL, check_turn, log_line, newest, refuse_large
from dalsegno.core.scripts.task_options import child_options, task_options
from dalsegno.core.scripts.token_bodies import LARGEST_INLINE
from dalsegno.core.scripts.turn import Turn, changed_tags, describe, merge_tags, wake_of, without_limits
from dalsegno.core.values import encode_small, encode_value
from dalsegno.engine.scripts.advance import Job, follow
from dalsegno.engine.scripts.failures import storable_error
from dalsegno.engine.scripts.programs import RunningMachine
from dalsegno.engine.scripts.task_inputs import store_inputs
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import LIGHT_BYTES, LIGHT_PARTS, is_light
from dalsegno.engine.steps.budget import SLICE as SECONDS
from dalsegno.engine.steps.values import blob_names
from dalsegno.errors import InternalError, InvalidInput, LimitExceeded, NotJson
from dalsegno.lang import Machine
from dalsegno.lang.expressions.syntax.lexer import is_unicode
from dalsegno.lang.runtime.effects import (
    AwaitSignal,
    Checkpoint,
    Effect,
    ErrorValue,
    Publish,
    Reply,
    SetTags,
    StartTask,
    StartWorkflow,
    WriteStream,
)
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.lang.runtime.pending_effects import OTHER_LIMIT, is_gathered
from dalsegno.lang.runtime.promises import ranges
from dalsegno.model.effect import AppendChunks
from dalsegno.model.machine import JournalSetting
from dalsegno.model.published import LOG, Usage
from dalsegno.ports.archive import Archive
from dalsegno.ports.records import Blobs

T = TypeVar("T")

LONGEST_NAME = 500

SHOWN = frozenset((SetTags, Publish, WriteStream, Checkpoint))
"""Requests that only change what the execution shows, or keep its machine: no promise comes of them."""
REMEMBERED = 1000
"""Executions whose published keys a process remembers."""

SLICE = 2_000
"""Instructions after which a turn checks the clock."""

InThread = Callable[[Callable[[], T]], Awaitable[T]]


@dataclass(frozen=True, slots=True)
class TurnLimits:
    instructions: int = 2_000_000
    snapshot_bytes: int = 4 * 1024 * 1024
    value_bytes: int = 64 * 1024 * 1024
    stored_bytes: int = 256 * 1024 * 1024


def turn_limits(limits: EngineLimits) -> TurnLimits:
    return TurnLimits(
        limits.scripts.instructions, limits.snapshot_bytes, limits.value_bytes, limits.stored_bytes
    )


class Turns:
    def __init__(
        self,
        blobs: Blobs,
        limits: TurnLimits,
        log: Callable[[str, str, str], None],
        options_of: Callable[[str], Mapping[str, Any]],
        archive: Archive,
        usage: Callable[[str], Awaitable[Usage]],
    ) -> None:
        """``options_of``: the options that a task registered in this process declares; options of the call take
        precedence. ``usage``: what an execution has published.
        """
        self._usage = usage
        self._keys: OrderedDict[str, frozenset[str]] = OrderedDict()
        """Keys that executions of this process have published: they are published again without a look."""
        self._options_of = options_of
        self._archive = archive
        self.journaled: Callable[[str, JournalSetting], Awaitable[Collection[str] | None]] = (
            _nothing_journaled
        )
        """Returns the blobs that the journal of an execution needs; None: all."""
        self.blobs = blobs
        self.limits = limits
        self._log = log

    async def run(
        self, job: Job, begin: Callable[[], RunningMachine], in_thread: InThread[None] | None
    ) -> tuple[Turn, RunningMachine | None]:
        """Run a turn. ``begin`` starts or returns the machine. With ``in_thread`` everything runs there, because it
        may call user code. The returned machine is None if it cannot continue. A light turn that exceeds its limits
        raises `Heavy`.
        """
        lines: list[tuple[str, str]] = []
        try:
            if in_thread is not None:
                machine = await _advance_in(in_thread, job, begin)
            else:
                machine = begin()
                more = follow(machine, job, SLICE)
                if more or machine.status == "paused":
                    await self._run_on(job, machine, more)
            lines = machine.take_logs()
            turn, blobs = self._turn(job, machine)
            if not SHOWN.isdisjoint(turn.kinds):
                await self._show(job, turn)
            if blobs:
                await self._store(job, blobs)
            if turn.input_bytes > LARGEST_INLINE:
                turn.stored = await store_inputs(self.blobs, job.execution, turn.requests)
            if lines:
                self._write_log(job, turn, lines)
            return turn, machine
        except (LimitExceeded, NotJson, InvalidInput) as error:
            if is_light.get() and isinstance(error, LimitExceeded):
                raise Heavy from None
            code = "LimitExceeded" if isinstance(error, LimitExceeded) else "WRONG_ARG_TYPE"
            broken = _broken(job, ErrorValue(code, str(error)))
            if lines:
                self._write_log(job, broken, lines)
            return broken, None

    def _write_log(self, job: Job, turn: Turn, lines: list[tuple[str, str]]) -> None:
        """Write log lines with the turn, once it is certain: a turn that is given up is run again."""
        for level, message in lines:
            self._log(job.execution, level, message)
        kept = tuple([log_line(job.now, "", *line) for line in lines if line[0] != UNKEPT_LEVEL])
        if kept:
            turn.appended = (*turn.appended, AppendChunks(LOG, kept))

    async def _show(self, job: Job, turn: Turn) -> None:
        """Take what the turn shows out of its requests: tags, published values, chunks of streams; and the name under
        which its machine is kept."""
        if SetTags in turn.kinds:
            await self._set_tags(job, turn)
        if Checkpoint in turn.kinds:
            turn.checkpoint = next(
                request.name for request, _ in reversed(turn.requests) if type(request) is Checkpoint
            )
        if Publish in turn.kinds or WriteStream in turn.kinds:
            await self._publish(job, turn)
        turn.requests = [pair for pair in turn.requests if type(pair[0]) not in SHOWN]

    async def _publish(self, job: Job, turn: Turn) -> None:
        values: list[tuple[str, bytes]] = []
        appended: list[AppendChunks] = []
        for request, _ in turn.requests:
            if isinstance(request, Publish):
                values.append((request.key, self._shown(request.key, request.value)))
            elif isinstance(request, WriteStream):
                chunks = [self._shown(request.stream, each, is_chunk=True) for each in request.chunks]
                appended.append(AppendChunks(request.stream, tuple(chunks), request.closes))
        turn.published = newest(values) if values else None
        turn.appended = appended
        keys = frozenset(key for key, _ in values)
        known = self._keys.get(job.execution, frozenset())
        if appended or not keys <= known or any(len(data) > UNCOUNTED for _, data in values):
            usage = await self._usage(job.execution)
            size = check_turn(usage, turn.published, appended)
            if size:
                await self.blobs.charge(job.execution, size)
            self._keys[job.execution] = keys.union(usage.values)
            if len(self._keys) > REMEMBERED:
                self._keys.popitem(last=False)

    def _shown(self, name: str, value: Any, *, is_chunk: bool = False) -> bytes:
        data = encode_value(value, f"what is published as '{name}'", *self._most())
        refuse_large(name, data, is_chunk=is_chunk)
        return data

    async def _set_tags(self, job: Job, turn: Turn) -> None:
        """Apply changes of tags. Only the execution's own turns change its tags after its start, so what is read here
        is valid until the turn's commit, or the turn is refused.
        """
        view = await self._archive.execution(job.execution)
        asked = merge_tags(request for request, _ in turn.requests if isinstance(request, SetTags))
        turn.tags = changed_tags(view.tags if view is not None else (), asked)

    async def _run_on(self, job: Job, machine: RunningMachine, more: bool) -> None:
        """Run the machine in slices and yield to other work between them."""
        used, until = SLICE, monotonic() + SECONDS
        light = is_light.get()
        while more or machine.status == "paused":
            if light and (more or machine.missing):
                raise Heavy
            if machine.missing:
                machine.provide({name: await self.blobs.get(job.execution, name) for name in machine.missing})
            else:
                used += SLICE if not more else 0
                if used > self.limits.instructions:
                    raise LimitExceeded(
                        f"the script ran more than {self.limits.instructions:,} instructions without an await "
                        f"(line {machine.line}); move long computations into a task"
                    )
                if monotonic() > until:
                    await asyncio.sleep(0)
                    until = monotonic() + SECONDS
            if machine.status == "paused":
                machine.resume({}, now=job.now, budget=SLICE)
            more = follow(machine, job, SLICE)

    async def _store(self, job: Job, blobs: Mapping[str, bytes]) -> None:
        """Store blobs, after removing those of earlier snapshots. Blobs that another process stores meanwhile remain:
        they are for this turn or a later one.
        """
        if job.version and not job.blobs.issuperset(blobs):
            journaled = await self.journaled(job.execution, job.setting)
            if journaled is not None:
                await self.blobs.prune(job.execution, job.version, {*job.blobs, *journaled})
        for data in blobs.values():
            await self.blobs.put(job.execution, data, turn=job.version)

    def _turn(self, job: Job, machine: RunningMachine) -> tuple[Turn, Mapping[str, bytes]]:
        """Return the turn, and the blobs of its snapshot that may be new."""
        effects, raised = machine.take_effects(), machine.take_raised()
        job.is_over = machine.status == "completed" and not effects
        requests, input_bytes = self._requests(effects)
        turn = Turn(
            "failed" if machine.status == "failed" else "completed",
            job.version,
            job.read,
            requests,
            frozenset(map(type, effects)),
            input_bytes=input_bytes,
            line=machine.line,
            settled=job.settled,
            taken=tuple(job.taken),
            cancel=job.cancel,
            interrupted=job.interrupted,
        )
        if machine.status == "suspended":
            return turn, self._suspend(job, machine, turn)
        if machine.status == "failed":
            turn.error = storable_error(machine.error) if machine.error is not None else None
            turn.cut_short = machine.cut_short
            turn.raised = None if machine.cut_short else ranges(set(raised))
            turn.raises_again = machine.raises_again
        else:
            turn.output = encode_value(machine.result, "the result of the workflow", *self._most())
            self._check_size(turn.output, "the result of the workflow")
        return turn, {}

    def _suspend(self, job: Job, machine: RunningMachine, turn: Turn) -> Mapping[str, bytes]:
        awaiting = job.awaiting
        if awaiting is None:
            raise InternalError("a suspended machine awaits nothing")
        blobs: dict[str, bytes] = {}

        def put(data: bytes) -> str:
            name = sha256(data).hexdigest()
            blobs[name] = data
            return name

        turn.snapshot = self._dump(machine, put)
        if len(turn.snapshot) > self.limits.snapshot_bytes:
            raise LimitExceeded(
                f"the state of the script is {len(turn.snapshot):,} bytes, more than the limit snapshot_bytes of "
                f"{self.limits.snapshot_bytes:,}; keep large data in tasks and pass references"
            )
        turn.weight = len(turn.snapshot) + (sum(map(len, blobs.values())) if blobs else 0)
        turn.status = "suspended"
        turn.reachable = machine.reachable()
        names: tuple[str, ...] = ()
        if signals := machine.waiting_signals():
            names = tuple(dict.fromkeys([wait.name for wait in signals if wait.id not in job.known]))
        turn.wake = wake_of(awaiting, job.known, names)
        turn.awaited = describe(awaiting)
        _, turn.limits = without_limits(awaiting)
        if blobs or job.blobs:
            turn.blobs = blob_names([turn.snapshot]).union(blobs)
        return blobs

    def _dump(self, machine: RunningMachine, put: Callable[[bytes], str]) -> bytes:
        if isinstance(machine, Machine):
            return machine.dumps(put=put, most=self.limits.stored_bytes)
        return machine.dumps(put=put)

    def _requests(self, effects: Iterable[Effect]) -> tuple[list[tuple[Effect, bytes]], int]:
        """Return the requests, and the bytes of their inputs."""
        found: list[tuple[Effect, bytes]] = []
        size = 0
        for effect in effects:
            request = self._request(effect)
            found.append(request)
            size += len(request[1])
            if size > self.limits.stored_bytes:
                raise LimitExceeded(
                    f"the inputs of {len(found):,} tasks and workflows started in one turn are more than the limit "
                    f"stored_bytes of {self.limits.stored_bytes:,}; start fewer between two awaits, or pass references"
                )
        return found, size

    def _request(self, effect: Effect) -> tuple[Effect, bytes]:
        """Return a checked effect with its input in stored form."""
        match effect:
            case StartTask(name=name, options=options):
                _check_name(name)
                if options:
                    _check_options(task_options, options, f"task '{name}'")
                if asked := self._options_of(name):
                    if asked.get("concurrency") is not None and is_gathered(options):
                        raise InvalidInput(f"the task '{name}' {OTHER_LIMIT}")
                    effect = msgspec.structs.replace(effect, options={**asked, **options})
                return effect, self._input(name, effect.inputs)
            case StartWorkflow(name=name, options=options):
                _check_name(name)
                if options:
                    _check_options(child_options, options, f"workflow '{name}'")
                return effect, self._input(name, effect.inputs)
            case Reply():
                return effect, self._answer(effect)
            case AwaitSignal(name=name):
                _check_name(name)
        return effect, b""

    def _answer(self, reply: Reply) -> bytes:
        """Return the answer as it is stored, with its request and in the history."""
        if reply.error is not None:
            return encode_value({"id": reply.id, "error": {"message": reply.error}}, "the answer")
        return encode_value(
            {"id": reply.id, "value": reply.value}, f"the answer to '{reply.name}'", *self._most()
        )

    def _input(self, name: str, value: Any) -> bytes:
        what = f"the input of '{name}'"
        raw = encode_small(value, what)
        if raw is None:
            raw = encode_value(value, what, *self._most())
        self._check_size(raw, what)
        return raw

    def _most(self) -> tuple[int, int | None]:
        """Return the limits on one value: bytes of JSON, and lists and objects in it. A light turn leaves large
        values to a subprocess.
        """
        return (LIGHT_BYTES, LIGHT_PARTS) if is_light.get() else (self.limits.value_bytes, None)

    def _check_size(self, raw: bytes, what: str) -> None:
        if len(raw) > self.limits.value_bytes:
            raise LimitExceeded(
                f"{what} is {len(raw):,} bytes of JSON, more than the limit value_bytes of {self.limits.value_bytes:,}"
            )


async def _nothing_journaled(_execution: str, _setting: JournalSetting) -> Collection[str] | None:
    return ()


async def _advance_in(
    thread: InThread[None], job: Job, begin: Callable[[], RunningMachine]
) -> RunningMachine:
    held: list[RunningMachine] = []

    def go() -> None:
        held.append(begin())
        while follow(held[0], job, None):
            pass

    await thread(go)
    return held[0]


@lru_cache(maxsize=1024)
def _check_name(name: str) -> None:
    """Check the name of a task, a workflow or a signal: it becomes part of keys in every store. Most names are called
    again and again, so those that passed are remembered.
    """
    if len(name) > LONGEST_NAME:
        raise InvalidInput(f"a name has at most {LONGEST_NAME} characters: '{name[:40]}…'")
    if not name.isascii() and not is_unicode(name):
        raise InvalidInput("a name holds a character that is not valid Unicode")
    if "\0" in name:  # PostgreSQL cannot store it in a text, and all stores must behave alike
        raise InvalidInput("a name holds a NUL character")


def _check_options(read: Callable[[Mapping[str, Any]], object], options: Mapping[str, Any], of: str) -> None:
    try:
        read(options)
    except InvalidInput as error:
        raise InvalidInput(f"{of}: {error}") from None


def _broken(job: Job, error: ErrorValue) -> Turn:
    return Turn(
        "failed",
        job.version,
        job.read,
        error=storable_error(error),
        cut_short=not job.is_over,
        settled=job.settled,
        taken=tuple(job.taken),
        cancel=job.cancel,
        interrupted=job.interrupted,
    )

"""A remote worker in one small file: it takes tasks over HTTP, runs functions, and reports. Needs no store, no kernel.

    worker = RemoteWorker("http://127.0.0.1:8700", queues=["images"])

    @worker.task("resize")
    def resize(input, task):
        return {"file": make_small(input["file"])}

    worker.run()

Copy it, or read it as the reference of the protocol: claim, heartbeat, complete, fail.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

logger = logging.getLogger("dalsegno.remote_worker")

PAUSE = 1.0
LONGEST_PAUSE = 30.0
LONGEST_TRACEBACK = 50_000
"""Characters; the server keeps fewer."""


class TaskLost(Exception):
    """The task is not this worker's any more; whatever it comes to is of no use."""


class Refused(Exception):
    """The server did not accept a call; ``code`` says why."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code


@dataclass(slots=True)
class RemoteTask:
    """One task in hand. ``lost`` is set once another worker may have it: long runs should look at it."""

    id: str
    fence: int
    name: str
    input: Any
    attempt: int
    idempotency_key: str
    heartbeat_seconds: float
    about: dict[str, Any]
    """The whole reply: execution, workflow, node, queue, deadline, traceparent."""
    lost: threading.Event = field(default_factory=threading.Event)


class RemoteWorker:
    """Takes tasks from ``queues``, or, without any, each task from the queue of its own name. ``key`` needs the scope
    ``worker``."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8700",
        *,
        key: str | None = None,
        queues: Sequence[str] | None = None,
        name: str | None = None,
        concurrency: int = 1,
    ) -> None:
        self.url = url.rstrip("/")
        self.key = key if key is not None else os.environ.get("DALSEGNO_KEY")
        self.queues = list(queues) if queues else None
        self.name = name or f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.concurrency = concurrency
        self._functions: dict[str, Callable[..., Any]] = {}
        self._held: dict[str, RemoteTask] = {}
        self._free = threading.Semaphore(concurrency)
        self._stopped = threading.Event()

    def task(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers ``f(input)`` or ``f(input, task)``; what it returns must be JSON."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._functions[name] = function
            return function

        return register

    def run(self) -> None:
        """Until ``stop`` is called or the process is interrupted; what runs then is finished first."""
        beats = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        beats.start()
        threads: list[threading.Thread] = []
        try:
            while not self._stopped.is_set():
                self._free.acquire()
                task = self._next()
                if task is None:
                    self._free.release()
                    continue
                threads = [each for each in threads if each.is_alive()]
                threads.append(threading.Thread(target=self._perform, args=(task,), name=task.id))
                threads[-1].start()
        except KeyboardInterrupt:
            self.stop()
        for each in threads:
            each.join()

    def stop(self) -> None:
        self._stopped.set()

    # -- the protocol -----------------------------------------------------------------------------------------

    def claim(self, wait: float = 20.0) -> RemoteTask | None:
        """The next task, or None if there is none in that time."""
        asked: dict[str, Any] = {
            "worker": self.name,
            "tasks": sorted(self._functions),
            "limit": 1,
            "wait": wait,
        }
        if self.queues is not None:
            asked["queues"] = self.queues
        for found in self._call("/v1/tasks/claim", asked, wait + 30)["tasks"]:
            task = RemoteTask(
                found["id"],
                found["fence"],
                found["name"],
                found["input"],
                found["attempt"],
                found["idempotency_key"],
                found["heartbeat_seconds"],
                found,
            )
            self._held[task.id] = task
            return task
        return None

    def complete(self, task: RemoteTask, output: Any) -> None:
        self._answer(task, "complete", {"output": output})

    def fail(self, task: RemoteTask, error: BaseException, *, retryable: bool = True) -> None:
        about = {"type": type(error).__name__, "message": str(error) or type(error).__name__}
        where = _traceback(error)
        if where:
            about["traceback"] = where
        self._answer(task, "fail", {"error": {**about, "retryable": retryable}})

    def heartbeat(self) -> None:
        """Names everything that is in hand: what it does not name goes to another worker."""
        held = list(self._held.values())
        named = [{"id": task.id, "fence": task.fence} for task in held]
        reply = self._call("/v1/tasks/heartbeat", {"worker": self.name, "tasks": named})
        for task in held:
            if task.id in reply["lost"]:
                task.lost.set()

    def _answer(self, task: RemoteTask, verb: str, body: dict[str, Any]) -> None:
        """Again and again until the server has it: answering twice is harmless."""
        pause = PAUSE
        while True:
            try:
                self._call(f"/v1/tasks/{task.id}/{verb}", {"fence": task.fence, **body})
                break
            except Refused as refused:
                if refused.status == 409:
                    task.lost.set()
                    self._held.pop(task.id, None)
                    raise TaskLost(str(refused)) from None
                if refused.status not in (429, 503):
                    self._held.pop(task.id, None)
                    raise
                logger.warning("the result of %s has to wait: %s", task.name, refused)
            except OSError as error:
                logger.warning("the result of %s has to wait: %s", task.name, error)
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        self._held.pop(task.id, None)

    def _call(self, path: str, body: dict[str, Any], timeout: float = 60.0) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)  # noqa: S310 - one's own server
        try:
            with urllib.request.urlopen(request, timeout=timeout) as reply:  # noqa: S310 - as above
                return json.load(reply)
        except urllib.error.HTTPError as error:
            raise _refused(error) from None

    # -- running ----------------------------------------------------------------------------------------------

    def _next(self) -> RemoteTask | None:
        try:
            return self.claim()
        except (OSError, Refused) as error:
            if isinstance(error, Refused) and error.status in (401, 403, 422):
                raise
            logger.warning("no task could be taken (%s); trying again", error)
            self._stopped.wait(PAUSE)
            return None

    def _perform(self, task: RemoteTask) -> None:
        try:
            self._report(task)
        except TaskLost as lost:
            logger.warning("task %s was lost: %s", task.name, lost)
        except Refused as refused:
            logger.error("the result of %s was refused: %s", task.name, refused)
        finally:
            self._held.pop(task.id, None)
            self._free.release()

    def _report(self, task: RemoteTask) -> None:
        function = self._functions[task.name]
        try:
            output = (
                function(task.input, task)
                if len(signature(function).parameters) > 1
                else function(task.input)
            )
            json.dumps(output, allow_nan=False)
        except (
            BaseException
        ) as error:  # a thread of its own: nothing but this task can be meant, sys.exit() neither
            logger.info("task %s failed", task.name, exc_info=True)
            self.fail(task, error)
            return
        self.complete(task, output)

    def _beat(self) -> None:
        while not self._stopped.is_set() or self._held:
            every = min((task.heartbeat_seconds for task in list(self._held.values())), default=PAUSE)
            time.sleep(every / 2)
            try:
                if self._held:
                    self.heartbeat()
            except (OSError, Refused) as error:
                logger.warning("the heartbeat was not heard (%s); trying again", error)


def _traceback(error: BaseException) -> str:
    """Where the task raised it, with causes and groups, without the frames of this file. Empty where none is left."""
    told = traceback.TracebackException.from_exception(error, compact=True)
    kept = _without_this_file(told)
    text = "".join(told.format()).rstrip() if kept else ""
    half = LONGEST_TRACEBACK // 2
    return text if len(text) <= LONGEST_TRACEBACK else f"{text[:half]}\n…\n{text[-half:]}"


def _without_this_file(told: traceback.TracebackException) -> int:
    """How many frames stay."""
    told.stack = traceback.StackSummary.from_list([each for each in told.stack if each.filename != __file__])
    related = [told.__cause__, told.__context__, *(told.exceptions or ())]
    return len(told.stack) + sum(_without_this_file(each) for each in related if each is not None)


def _refused(error: urllib.error.HTTPError) -> Refused:
    text = error.read().decode(errors="replace")
    try:
        problem = json.loads(text)
        return Refused(error.code, str(problem.get("code", "")), str(problem.get("detail", text)))
    except ValueError:
        return Refused(error.code, "", text[:1000])

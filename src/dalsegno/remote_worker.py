"""A remote worker in one small file: it claims tasks over HTTP, runs functions, and reports. Needs no store, no
engine.

    worker = RemoteWorker("http://127.0.0.1:8700", queues=["images"])

    @worker.task("resize")
    def resize(input, task):
        return {"file": make_small(input["file"])}

    worker.run()

Copy it, or use it as the reference of the protocol: claim, heartbeat, complete, fail.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import signal
import socket
import threading
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

logger = logging.getLogger("dalsegno.remote_worker")

PAUSE = 1.0
LONGEST_PAUSE = 30.0
LONGEST_TRACEBACK = 50_000
"""Characters; the server keeps fewer."""


class TaskLost(Exception):
    """The worker does not hold the task any more; its result will be refused."""


class Refused(Exception):
    """The server refused a call; ``code`` says why."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code


@dataclass(slots=True)
class RemoteTask:
    """One claimed task. ``lost`` is set once another worker may have it: long runs should check it."""

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
    """Claims tasks from ``queues``; without queues, each task from the queue of its own name. ``key`` needs the
    scope ``worker``."""

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
        self._threads: set[threading.Thread] = set()
        self._failure: Exception | None = None

    def task(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Registers ``f(input)`` or ``f(input, task)``; its result must be JSON."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._functions[name] = function
            return function

        return register

    def run(self, grace: float | None = None) -> None:
        """Runs until ``stop`` is called, or the process gets SIGTERM or Ctrl-C. From then on no task is claimed,
        and running tasks are finished first; after ``grace`` seconds those still running are returned to the
        server for other workers. In the main thread SIGTERM calls ``stop`` meanwhile, unless the program handles
        it itself."""
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()
        with _stopped_by_signal(self.stop):
            claims = threading.Thread(target=self._claim_all, name="claims", daemon=True)
            claims.start()
            try:
                self._stopped.wait()
            except KeyboardInterrupt:
                self.stop()
            self._finish(grace)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Drains the worker: it claims no further task. A task that the server assigns to a claim in progress is
        returned. ``run`` returns when the running tasks have ended. May be called from any thread, and
        repeatedly."""
        self._stopped.set()

    def _finish(self, grace: float | None) -> None:
        until = None if grace is None else time.monotonic() + grace
        for each in list(self._threads):
            each.join(None if until is None else max(0.0, until - time.monotonic()))
        left = list(self._held.values())
        if left:
            logger.warning("%d tasks did not end within %s s and are handed back", len(left), grace)
            self._hand_back(left)

    def _hand_back(self, tasks: Sequence[RemoteTask]) -> None:
        """Return tasks to the server, which offers them to other workers at once. Only then may their functions
        end: an earlier answer would be accepted."""
        for task in tasks:
            self._held.pop(task.id, None)
        try:
            self.heartbeat(tasks)
        except (OSError, Refused) as error:
            logger.warning(
                "tasks could not be handed back (%s); they go to others when their lease ends", error
            )
        for task in tasks:
            task.lost.set()

    # -- the protocol -----------------------------------------------------------------------------------------

    def claim(self, wait: float = 20.0) -> RemoteTask | None:
        """Returns the next task, or None if there is none in that time."""
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

    def heartbeat(self, dropped: Sequence[RemoteTask] = ()) -> None:
        """Extends the leases of all held tasks: a task that is not named goes to another worker; a ``dropped`` one,
        at once."""
        held = list(self._held.values())
        body: dict[str, Any] = {"worker": self.name, "tasks": _named(held)}
        if dropped:
            body["dropped"] = _named(dropped)
        reply = self._call("/v1/tasks/heartbeat", body)
        for task in held:
            if task.id in reply["lost"]:
                task.lost.set()

    def _answer(self, task: RemoteTask, verb: str, body: dict[str, Any]) -> None:
        """Repeat the answer until the server has it: it is idempotent."""
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

    def _claim_all(self) -> None:
        """Claim tasks in a daemon thread: a claim that waits ends with the process, and the server assigns nothing
        to a caller that has disconnected."""
        try:
            while not self._stopped.is_set():
                self._free.acquire()
                task = None if self._stopped.is_set() else self._next()
                if task is None:
                    self._free.release()
                elif self._stopped.is_set():
                    self._free.release()
                    self._hand_back([task])
                else:
                    self._begin(task)
        except Exception as error:  # noqa: BLE001 - ``run`` raises it
            self._failure = error
            self.stop()

    def _begin(self, task: RemoteTask) -> None:
        thread = threading.Thread(target=self._perform, args=(task,), name=task.id, daemon=True)
        self._threads.add(thread)
        thread.start()

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
            self._threads.discard(threading.current_thread())
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
        ) as error:  # the thread runs only this task, so even sys.exit() concerns nothing else
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
    """Return the traceback from the task's code on, with causes and groups, without the frames of this file. Empty
    if no frames are left."""
    summary = traceback.TracebackException.from_exception(error, compact=True)
    kept = _without_this_file(summary)
    text = "".join(summary.format()).rstrip() if kept else ""
    half = LONGEST_TRACEBACK // 2
    return text if len(text) <= LONGEST_TRACEBACK else f"{text[:half]}\n…\n{text[-half:]}"


def _without_this_file(summary: traceback.TracebackException) -> int:
    """Remove the frames of this file; return the number of the others."""
    summary.stack = traceback.StackSummary.from_list(
        [each for each in summary.stack if each.filename != __file__]
    )
    related = [summary.__cause__, summary.__context__, *(summary.exceptions or ())]
    return len(summary.stack) + sum(_without_this_file(each) for each in related if each is not None)


def _named(tasks: Sequence[RemoteTask]) -> list[dict[str, Any]]:
    return [{"id": task.id, "fence": task.fence} for task in tasks]


@contextmanager
def _stopped_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` on SIGTERM, if signals can be handled in this thread and the program does not handle this one."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _refused(error: urllib.error.HTTPError) -> Refused:
    text = error.read().decode(errors="replace")
    try:
        problem = json.loads(text)
        return Refused(error.code, str(problem.get("code", "")), str(problem.get("detail", text)))
    except ValueError:
        return Refused(error.code, "", text[:1000])

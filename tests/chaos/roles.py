"""A process that has imported everything and forks a worker, a scheduler or a server for each line that it reads.

Usage: ``python -m tests.chaos.roles <store url> <log folder> hasty|usual``: with the short leases of the chaos tests,
or as users have it. Lines: ``worker``, ``scheduler``, ``server <port>``. What is forked runs the same code as the
command of that name. Its process id is the answer.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from dalsegno.cli.process.listen import Plan, listen
from dalsegno.cli.process.serve import schedule, serve
from dalsegno.engine.process import run
from dalsegno.engine.settings import EngineSettings
from dalsegno.errors import OperatorError
from dalsegno.server import ServerSettings
from dalsegno.server.application import Roles
from tests.chaos.mixed_workload import app, settings
from tests.chaos.witness import bear_witness
from tests.servers.forking import build_grammars
from tests.servers.process import HOST, die_with_parent


def answer(url: str, folder: Path, chosen: EngineSettings) -> None:
    build_grammars()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not kept as zombies
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_play(url, folder, chosen, line.split()))
        os.write(1, f"{child}\n".encode())


def _play(url: str, folder: Path, chosen: EngineSettings, words: list[str]) -> int:
    """The exit code. A store that cannot be opened ends the process, as it does the command; whoever tends it starts
    another one."""
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(folder / f"{words[0]}-{os.getpid()}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    app.url, app.settings = url, chosen
    bear_witness()
    try:
        match words:
            case ["worker"]:
                run(serve(app, quiet=False, as_json=False))
            case ["scheduler"]:
                run(schedule(app, quiet=False, as_json=False))
            case ["server", port]:
                nothing_beside = Roles(worker=False, scheduler=False)
                run(listen(Plan(app, ServerSettings(HOST, int(port)), nothing_beside)))
            case _:
                raise ValueError(f"no role: {words}")
    except OperatorError as error:
        os.write(2, f"ended: {error}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    store, logs, pace = sys.argv[1:]
    answer(store, Path(logs), settings() if pace == "hasty" else EngineSettings())

"""A process that has imported everything and forks a worker for each line it reads: restarts cost milliseconds.

Usage: ``python -m tests.chaos.zygote <store url> <concurrency>``. A worker prints ``ready <pid>`` once it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from dalsegno import App
from dalsegno.engine.settings import EngineLimits, EngineSettings
from dalsegno.graph.build import load_graph
from dalsegno.nodes.registry import builtin_registry
from tests.chaos.workload import DOCUMENTS, register


def serve(url: str, concurrency: int, losses: int) -> None:
    for document in DOCUMENTS.values():  # what is built on first use is then inherited by every worker
        load_graph(document, builtin_registry())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not kept as zombies
    for _ in sys.stdin:
        if os.fork() == 0:
            work(url, concurrency, losses)
            os._exit(0)


def work(url: str, concurrency: int, losses: int) -> None:
    parent = os.getppid()
    settings = EngineSettings(concurrency=concurrency, limits=EngineLimits(losses=losses))
    app = register(App(url, settings=settings))
    with app.running():
        os.write(1, f"ready {os.getpid()}\n".encode())
        while os.getppid() == parent:  # nobody is left behind when the test itself is killed
            time.sleep(0.5)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

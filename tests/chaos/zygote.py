"""A process that has imported everything and forks a worker for each line it reads: restarts cost milliseconds.

Usage: ``python -m tests.chaos.zygote <store url> <concurrency> <losses> <module>``; the module's ``application`` makes
the application that runs. A worker prints ``ready <pid>`` once it does.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from typing import Any

from dalsegno.engine.settings import EngineLimits, EngineSettings


def serve(url: str, settings: EngineSettings, workload: Any) -> None:
    workload.prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not kept as zombies
    for _ in sys.stdin:
        if os.fork() == 0:
            work(url, settings, workload)
            os._exit(0)


def work(url: str, settings: EngineSettings, workload: Any) -> None:
    parent = os.getppid()
    app = workload.application(url, settings)
    with app.running():
        os.write(1, f"ready {os.getpid()}\n".encode())
        while os.getppid() == parent:  # nobody is left behind when the test itself is killed
            time.sleep(0.5)


if __name__ == "__main__":
    store, concurrency, losses, module = sys.argv[1:]
    limits = EngineLimits(losses=int(losses))
    serve(store, EngineSettings(concurrency=int(concurrency), limits=limits), import_module(module))

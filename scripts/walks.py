"""Count the source files that one operation walks through: ``python scripts/walks.py [why|token|start …]``.

A file counts if one of its functions is called while the operation runs, in any thread. Importing a module calls none.
Every operation runs once before it is counted, so that caches are warm, as they are in a process that works.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dalsegno

SOURCE = str(Path(dalsegno.__file__).parent) + "/"

AFTER_START = 0.3
"""Seconds after which a call that starts an execution has certainly returned."""

STEPS: dict[str, Any] = {
    "name": "walk",
    "nodes": [
        {"id": "begin", "type": "begin_walk", "parameters": {}},
        {"id": "middle", "type": "log", "parameters": {"message": "here"}},
        {"id": "end", "type": "end_walk", "parameters": {}},
    ],
    "edges": [{"src": "begin", "dst": "middle"}, {"src": "middle", "dst": "end"}],
}
UNSERVED: dict[str, Any] = {
    "name": "unserved",
    "nodes": [{"id": "it", "type": "log", "queue": "nobody", "parameters": {"message": "here"}}],
}
SCRIPT = """\
const dug = Task.with({queue: "nobody"}).run("dig", 1)
await Promise.all([Signal.next("go"), Timer.delay("1h"), dug])
"""


class Walk:
    """The files that are walked through while it is ``on``."""

    def __init__(self) -> None:
        self.on = False
        self._codes: set[CodeType] = set()

    def note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.on and event == "call":
            self._codes.add(frame.f_code)

    @contextmanager
    def counting(self) -> Iterator[None]:
        self._codes.clear()
        self.on = True
        try:
            yield
        finally:
            self.on = False

    def files(self) -> list[str]:
        """Those of Dal Segno. The body of a module or a class is no function."""
        return sorted(
            {
                code.co_filename.removeprefix(SOURCE)
                for code in set(self._codes)
                if code.co_filename.startswith(SOURCE) and _is_function(code)
            }
        )


_OPTIMIZED = 0x1
"""Set for code with fast locals: functions, and not the bodies of modules and classes."""


def _is_function(code: CodeType) -> bool:
    return bool(code.co_flags & _OPTIMIZED)


def walk_token(walk: Walk, folder: Path) -> list[str]:
    """From the moment in which one node of a graph runs to that in which the node after the next one runs.

    The first node waits until the call that started the execution has returned, so that the call does not count.
    """
    app = dalsegno.App(f"sqlite:///{folder / 'token.db'}")

    @app.node("begin_walk")
    async def begin(_context: object, _parameters: object) -> None:
        await asyncio.sleep(AFTER_START)
        walk.on = True

    @app.node("end_walk")
    async def end(_context: object, _parameters: object) -> None:
        walk.on = False

    with app.running():
        app.deploy(STEPS)
        app.start("walk").result(timeout=30)
        with walk.counting():
            walk.on = False
            app.start("walk").result(timeout=30)
    return walk.files()


def walk_start(walk: Walk, folder: Path) -> list[str]:
    """``POST /v1/executions`` of a workflow whose queue nobody serves."""
    import httpx  # noqa: PLC0415 - as above

    from dalsegno.server.application import Roles, create_application  # noqa: PLC0415 - only this needs a server

    async def post() -> None:
        app = dalsegno.App(f"sqlite:///{folder / 'start.db'}")
        application = create_application(app, roles=Roles(worker=False, scheduler=False))
        async with application.router.lifespan_context(application):
            transport = httpx.ASGITransport(application)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                await app.adeploy(UNSERVED)
                body = {"workflow": "unserved", "input": {"n": 1}}
                (await http.post("/v1/executions", json=body)).raise_for_status()
                with walk.counting():
                    (await http.post("/v1/executions", json=body)).raise_for_status()

    asyncio.run(post())
    return walk.files()


def walk_why(walk: Walk, folder: Path) -> list[str]:
    """The answer of ``why`` for a graph that waits for a worker, in a store that is open."""
    app = dalsegno.App(f"sqlite:///{folder / 'why.db'}")

    async def ask() -> None:
        await app.adeploy(UNSERVED)
        await _counted(walk, app, await app.client.start("unserved"))

    asyncio.run(ask())
    return walk.files()


def walk_why_script(walk: Walk, folder: Path) -> list[str]:
    """The same for a script that waits for a signal, a timer and a task."""
    store = f"sqlite:///{folder / 'script.db'}"
    app = dalsegno.App(store)
    with app.running():
        app.deploy_script(SCRIPT, "asks")
        handle = app.start("asks")
        while not any(wait.kind == "signal" for wait in handle.why()):
            time.sleep(0.01)
    asyncio.run(_counted(walk, dalsegno.App(store), handle.id))
    return walk.files()


async def _counted(walk: Walk, app: dalsegno.App, execution: str) -> None:
    await app.host_here()
    await app.client.why(execution)
    with walk.counting():
        await app.client.why(execution)
    await app.aclose()


def walk_why_command(walk: Walk, folder: Path) -> list[str]:
    """``dalsegno why`` as a whole: options, opening the store, the answer, printing it, closing the store."""
    from typer.testing import CliRunner  # noqa: PLC0415 - only this operation needs the command line

    from dalsegno.cli.main import app as cli  # noqa: PLC0415 - as above

    store = f"sqlite:///{folder / 'command.db'}"
    app = dalsegno.App(store)

    async def prepare() -> str:
        await app.adeploy(UNSERVED)
        execution = await app.client.start("unserved")
        await app.aclose()
        return execution

    execution = asyncio.run(prepare())

    def ask() -> None:
        CliRunner().invoke(cli, ["why", execution, "--store", store], catch_exceptions=False)

    ask()
    with walk.counting():
        ask()
    return walk.files()


OPERATIONS = {
    "token": walk_token,
    "start": walk_start,
    "why": walk_why,
    "why-script": walk_why_script,
    "why-command": walk_why_command,
}


def main(arguments: list[str]) -> None:
    walk = Walk()
    threading.setprofile(walk.note)  # threads that are started from now on
    sys.setprofile(walk.note)
    for name in [each for each in arguments if not each.startswith("-")] or OPERATIONS:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            files = OPERATIONS[name](walk, Path(folder))
        _report(name, files, by_file="--files" in arguments)


def _report(name: str, files: list[str], *, by_file: bool) -> None:
    lines = [f"{name}: {len(files)} files"]
    packages = Counter(file.rpartition("/")[0] or "." for file in files)
    lines += [f"  {count:3}  {package}" for package, count in sorted(packages.items())]
    if by_file:
        lines += [f"       {file}" for file in files]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

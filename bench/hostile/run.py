"""A soak with a hostile caller: random and adversarial requests with a ``run`` key while an honest workflow goes on.

    python -m bench.hostile.run --store sqlite --seconds 600
    python -m bench.hostile.run --store postgres --seconds 600 --seed 7

``make soak-hostile`` runs both. Server and worker are two processes on one store. Four hostile callers send what
bench/hostile/grammar.py makes; once a second the honest caller starts its workflow and waits for the result. Ends with
code 1 if a bound of verdict.py does not hold. Logs and figures go to build/hostile-STORE/.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.hostile.verdict import Bounds, complaints, measured_p99
from bench.hostile.wire import Request, Wire
from bench.postgres.server import private_postgres
from dalsegno.bench.report import percentile
from tests.servers.process import die_with_parent, free_port

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build"
HONEST = {
    "name": "honest",
    "nodes": [
        {
            "id": "first",
            "type": "edit",
            "parameters": {"assignments": [{"name": "n", "value": "{{ input.n + 1 }}"}]},
        },
        {
            "id": "second",
            "type": "conditional",
            "parameters": {"expression": "$first.n > 0", "true_edge_id": "yes"},
        },
        {
            "id": "third",
            "type": "edit",
            "parameters": {"assignments": [{"name": "n", "value": "{{ $first.n * 2 }}"}]},
        },
    ],
    "edges": [{"src": "first", "dst": "second"}, {"id": "yes", "src": "second", "dst": "third"}],
    "output": "{{ $third.n }}",
}
STEAL = 7
"""Place of what the host gave to others among the times of /proc/stat."""
DISTURBED = 0.1
"""Part of half a second from which on the host was away."""
NOT_MEASURED = 3
"""Exit code of a run that broke no bound, and whose latency says nothing."""
STARTS = 60.0
"""Seconds until server and worker must answer."""


class Host:
    """How much of the cores' time the host of a virtual machine gave to others. Whoever waits for an answer meanwhile
    waits for the host; such waits are counted apart."""

    def __init__(self) -> None:
        self._first = self._last = self._read()
        self._looked = time.monotonic()
        self._away: list[tuple[float, float]] = []

    def look(self) -> None:
        now, times = time.monotonic(), self._read()
        if self._part(self._last, times) > DISTURBED:
            self._away.append((self._looked, now))
        self._last, self._looked = times, now

    def was_away(self, since: float, until: float) -> bool:
        return any(began < until and since < ended for began, ended in self._away)

    def stolen_in_all(self) -> float:
        return round(self._part(self._first, self._read()), 4)

    def _part(self, before: list[int], after: list[int]) -> float:
        passed = [late - early for early, late in zip(before, after, strict=True)]
        return passed[STEAL] / sum(passed) if len(passed) > STEAL and sum(passed) else 0.0

    def _read(self) -> list[int]:
        """Ticks of all cores since the machine began, by what they were spent on."""
        try:
            return [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
        except OSError:
            return []


class Soak:
    def __init__(self, url: str, folder: Path, chosen: argparse.Namespace) -> None:
        self.url = url
        self.folder = folder
        self.chosen = chosen
        self.port = free_port()
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self.latencies: list[tuple[float, float]] = []
        """When each honest execution began, and how long it took."""
        self.starts: list[float] = []
        self.failures: list[str] = []
        self.memory: dict[str, float] = {}
        self.disk: list[float] = []
        self.reached = 0
        self.host = Host()

    async def run(self) -> dict[str, Any]:
        async with AsyncExitStack() as stack:
            listener = await asyncio.start_server(self._reached, "127.0.0.1", 0)
            await stack.enter_async_context(listener)
            honest, hostile = self._key("honest"), self._key("hostile")
            await self._start_roles(stack)
            wire = Wire(self.port, honest)
            await self._ready(wire)
            await self._measure_disk()
            attacker = await self._attack(stack, hostile, listener.sockets[0].getsockname()[1])
            attack = asyncio.create_task(attacker.communicate(f"{hostile}\n".encode()))
            await asyncio.gather(self._honest(wire), self._watch(), asyncio.wait({attack}))
            report = json.loads((await attack)[0])
            died = [
                name
                for name, each in self.processes.items()
                if each.returncode is not None and name != "attacker"
            ]
        return self._figures(report, died)

    async def _start_roles(self, stack: AsyncExitStack) -> None:
        server = ("server", "--port", str(self.port), "--no-worker", "--no-scheduler")
        await self._start(stack, "server", *server)
        await self._start(stack, "worker", "worker")

    def _key(self, name: str) -> str:
        command = [
            sys.executable,
            "-m",
            "dalsegno",
            "keys",
            "add",
            name,
            "--scope",
            "run",
            "--store",
            self.url,
        ]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()[0]

    async def _start(self, stack: AsyncExitStack, name: str, *command: str) -> None:
        log = stack.enter_context((self.folder / f"{name}.log").open("wb"))
        words = ["-m", "dalsegno", *command, "--store", self.url, "--retention", self.chosen.retention]
        await self._spawn(stack, name, words, log)

    async def _attack(self, stack: AsyncExitStack, key: str, listener: int) -> asyncio.subprocess.Process:
        chosen = self.chosen
        numbers = (self.port, chosen.seconds, chosen.seed, chosen.callers, listener)
        words = ["-m", "bench.hostile.attacks", *map(str, numbers)]
        return await self._spawn(stack, "attacker", words, None, asyncio.subprocess.PIPE)

    async def _spawn(
        self, stack: AsyncExitStack, name: str, words: list[str], log: Any, pipe: int | None = None
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
            stdin=pipe or asyncio.subprocess.DEVNULL,
            stdout=pipe or log,
            stderr=asyncio.subprocess.STDOUT if log is not None else None,
            preexec_fn=die_with_parent,
        )
        self.processes[name] = process
        stack.push_async_callback(_end, process)
        return process

    async def _ready(self, wire: Wire) -> None:
        ends = time.monotonic() + STARTS
        while (await wire.send(Request("GET", "/v1/health/ready"))).status != 200:
            if time.monotonic() > ends:
                raise SystemExit("the server is not ready; see its log")
            await asyncio.sleep(0.1)
        reply = await wire.send(Request("POST", "/v1/definitions", json.dumps(HONEST).encode()))
        if reply.status not in (200, 201):
            raise SystemExit(f"the honest workflow was refused: {reply.body!r}")
        await self._once(wire, 0)
        if self.failures:
            raise SystemExit(f"the honest workflow fails without any load: {self.failures}")
        self.latencies.clear()

    # -- the honest caller ------------------------------------------------------------------------------------

    async def _honest(self, wire: Wire) -> None:
        """Starts on the second, whether or not the one before has ended."""
        began, running = time.monotonic(), set()
        for number in range(self.chosen.seconds):
            await asyncio.sleep(max(began + number - time.monotonic(), 0))
            task = asyncio.create_task(self._once(wire, number))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def _once(self, wire: Wire, number: int) -> None:
        began = time.monotonic()
        body = json.dumps({"workflow": "honest", "input": {"n": number}}).encode()
        reply = await wire.send(Request("POST", "/v1/executions", body))
        if reply.status not in (200, 201, 202):
            self.failures.append(f"start {number}: {reply.status} {reply.body[:200]!r}")
            return
        self.starts.append(time.monotonic() - began)
        path = f"/v1/executions/{reply.json()['id']}/wait?seconds=30"
        reply = await wire.send(Request("GET", path))
        found = reply.json() if reply.status == 200 else {}
        if found.get("state") != "COMPLETED" or found.get("output") != (number + 1) * 2:
            self.failures.append(f"result {number}: {reply.status} {reply.body[:200]!r}")
        self.latencies.append((began, time.monotonic() - began))

    @property
    def _roles(self) -> list[str]:
        return [name for name in self.processes if name != "attacker"]

    # -- what is watched --------------------------------------------------------------------------------------

    async def _reached(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No request of the server or the worker may come here."""
        self.reached += 1
        writer.close()

    async def _watch(self) -> None:
        ends = time.monotonic() + self.chosen.seconds
        shown = time.monotonic()
        while time.monotonic() < ends:
            await asyncio.sleep(0.5)
            self.host.look()
            for name in self._roles:
                self._measure_memory(name)
            if time.monotonic() - shown >= 10:
                shown = time.monotonic()
                await self._measure_disk()
                self._show(self.chosen.seconds - (ends - shown))

    def _measure_memory(self, name: str) -> None:
        for pid in (self.processes[name].pid, *_descendants(self.processes[name].pid)):
            shown = name if pid == self.processes[name].pid else f"{name}'s child"
            self.memory[shown] = max(self.memory.get(shown, 0.0), _resident_mb(pid))

    async def _measure_disk(self) -> None:
        if self.url.startswith("sqlite"):
            self.disk.append(sum(each.stat().st_size for each in self.folder.glob("store.db*")) / 1e6)
            return
        connection = await asyncpg.connect(self.url)
        try:
            self.disk.append(await connection.fetchval("SELECT pg_database_size(current_database())") / 1e6)
        finally:
            await connection.close()

    def _show(self, at: float) -> None:
        p99 = percentile([took * 1000 for _, took in self.latencies], 0.99) or 0.0
        memory = ", ".join(f"{name} {mb:.0f} MB" for name, mb in self.memory.items())
        print(f"{at:5.0f} s  honest p99 {p99:.0f} ms, {memory}, disk {self.disk[-1]:.0f} MB", flush=True)

    def _figures(self, report: dict[str, Any], died: list[str]) -> dict[str, Any]:
        milliseconds = [took * 1000 for _, took in self.latencies]
        undisturbed = [
            took * 1000 for began, took in self.latencies if not self.host.was_away(began, began + took)
        ]
        logs = {name: (self.folder / f"{name}.log").read_text(errors="replace") for name in self._roles}
        return {
            "seconds": self.chosen.seconds,
            "seed": self.chosen.seed,
            "hostile_requests": sum(report["answers"].values()),
            "honest_executions": len(milliseconds),
            "honest_failures": self.failures[:10],
            "p50_ms": percentile(milliseconds, 0.5),
            "p99_ms": percentile(milliseconds, 0.99),
            "start_p50_ms": percentile([each * 1000 for each in self.starts], 0.5),
            "start_p99_ms": percentile([each * 1000 for each in self.starts], 0.99),
            "worst_ms": max(milliseconds, default=0.0),
            "stolen": self.host.stolen_in_all(),
            "undisturbed_executions": len(undisturbed),
            "undisturbed_p99_ms": percentile(undisturbed, 0.99),
            "memory_mb": self.memory,
            "disk_mb": [self.disk[0], max(self.disk)],
            "wrong_answers": report["wrong_count"],
            "wrong": report["wrong"],
            "tracebacks": sum(text.count("Traceback") for text in logs.values()),
            "reached": self.reached,
            "died": died,
            "slowest_s": report["slowest_s"],
            "answers": report["answers"],
        }


def _descendants(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child)


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(30):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


@contextmanager
def _store(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'store.db'}"
        return
    with private_postgres(0) as server:
        yield server.create_database("hostile")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench.hostile.run", description=__doc__)
    made.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    made.add_argument("--seconds", type=int, default=600)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--callers", type=int, default=4, help="Hostile callers at the same time.")
    made.add_argument("--retention", default="30s", help="For which ended executions are kept.")
    made.add_argument("--into", type=Path, default=None, help="Folder for logs and figures.")
    made.add_argument("--p99-ms", type=float, default=Bounds.p99_ms, help="Bound of the honest latency.")
    made.add_argument("--memory-mb", type=float, default=Bounds.memory_mb, help="Bound of each process.")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    folder = chosen.into or BUILD / f"hostile-{chosen.store}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with _store(chosen.store, folder.resolve()) as url:
        found = asyncio.run(Soak(url, folder, chosen).run())
    (folder / "figures.json").write_text(json.dumps(found, indent=2))
    print(json.dumps({key: value for key, value in found.items() if key != "answers"}, indent=2))
    bounds = Bounds(chosen.p99_ms, chosen.memory_mb)
    wrong = list(complaints(found, bounds))
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    if measured_p99(found, bounds) is None:
        print("the host took the cores away all the time: the latency is not measured", file=sys.stderr)
        return NOT_MEASURED
    return 0


if __name__ == "__main__":
    sys.exit(main())

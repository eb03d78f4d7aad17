"""Many calls of one client at once, beside a server of their own on SQLite.

    python -m bench.client.burst
    python -m bench.client.burst --calls 200,1000,5000

For each number: so many gathered ``astart``; so many gathered ``aresult`` of executions that wait for a signal, and
one signal meanwhile; then all signals at once, until all results are there. Prints seconds, the client's own processor
time, its connections and its resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from pathlib import Path
from typing import Any

from dalsegno import Client
from tests.client.documents import WAITS
from tests.servers.dalsegno import DalsegnoServer
from tests.servers.workspace import Workspace

GIVEN_UP = 150.0
"""Seconds after which a number of calls is not waited for any longer."""


def resident() -> float:
    """MB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sockets() -> int:
    """Open connections of this process."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += str(each.readlink()).startswith("socket:")
        except OSError:
            continue
    return found


def processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def gathered(work: list[Any]) -> tuple[list[Any], str]:
    """What it came to, and how long it took."""
    began, used = time.monotonic(), processor_time()
    try:
        async with asyncio.timeout(GIVEN_UP):
            found = await asyncio.gather(*work, return_exceptions=True)
    except TimeoutError:
        return [], f"not within {GIVEN_UP:g} s"
    wrong = [each for each in found if isinstance(each, BaseException)]
    kinds = {type(each).__name__ for each in wrong}
    failed = f", {len(wrong)} failed ({', '.join(sorted(kinds))})" if wrong else ""
    return found, f"{time.monotonic() - began:.2f} s ({processor_time() - used:.2f} s processor){failed}"


async def measure(url: str, calls: int) -> None:
    async with Client(url) as client:
        handles, text = await gathered([client.astart("waits", n=n) for n in range(calls)])
        print(f"{calls:>6} starts   {text}", flush=True)
        handles = [each for each in handles if not isinstance(each, BaseException)]
        if len(handles) < calls:
            return
        waits = [asyncio.create_task(handle.aresult(timeout=GIVEN_UP)) for handle in handles]
        await asyncio.sleep(2)
        _, text = await gathered([handles[0].asignal("go", {"by": "Ann"})])
        print(f"{calls:>6} waits    one signal beside them: {text}; {sockets()} connections", flush=True)
        signals = [handle.asignal("go", {"by": "Ann"}) for handle in handles[1:]]
        _, text = await gathered([*signals, *waits])
        print(f"{calls:>6} signals  with their results: {text}; {resident():.0f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", default="200,500,1000,2000,5000")
    chosen = parser.parse_args()
    workspace = Workspace()
    try:
        with DalsegnoServer(workspace.new_folder("dalsegno")) as server:
            with Client(server.url) as client:
                client.deploy(WAITS)
            for calls in map(int, chosen.calls.split(",")):
                asyncio.run(measure(server.url, calls))
    finally:
        workspace.remove()


if __name__ == "__main__":
    main()

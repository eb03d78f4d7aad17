"""A process that opens a store full of suspended scripts, resumes some, and prints what that cost as JSON.

Usage: ``python -m tests.chaos.suspended <store url> <execution id> …``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

from dalsegno import App


def resident_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(url: str, executions: list[str]) -> None:
    app = App(url)
    before = resident_megabytes()
    began = time.monotonic()
    with app.running():
        started = time.monotonic() - began
        resumes = []
        for number, execution in enumerate(executions):
            handle = app.handle(execution)
            began = time.monotonic()
            handle.signal("go", number)
            result = handle.result(30)
            resumes.append((time.monotonic() - began) * 1000)
            assert result[1] == number, result
        figures = {
            "start_seconds": round(started, 4),
            "resident_mb_before": round(before, 1),
            "resident_mb": round(resident_megabytes(), 1),
            "resume_ms": [round(each, 2) for each in resumes],
        }
    print(json.dumps(figures))  # noqa: T201 - for the process that asked


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

"""What secrets cost, in CPU time: a run without any, opening one, and looking for its value.

python -m bench.redaction
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

from dalsegno.engine.secrets import KeySource, NewCredential, Redactor, Vault
from dalsegno.engine.secrets.redaction import _search_for
from dalsegno.engine.steps.contexts import RunContext
from dalsegno.ports.secrets import Credential
from dalsegno.wiring import open_stack

TOKEN = "sk_live_" + "4f9Qx2" * 6
ROWS = [
    {"id": number, "name": f"user {number}", "mail": f"u{number}@example.com"} for number in range(16_000)
]


def cost(work: Callable[[], object], times: int, best_of: int = 5) -> float:
    """Seconds of CPU for one call."""
    found = []
    for _ in range(best_of):
        began = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - began) / times)
    return min(found)


def idle() -> float:
    """The question that every step asks, less an empty loop's turn."""
    context = RunContext.__new__(RunContext)  # no run: only its field is looked at
    context.secrets = None
    return cost(lambda: context.secrets is None, 1_000_000) - cost(lambda: None, 1_000_000)


def opening() -> float:
    async def measure() -> float:
        stack = await open_stack("memory:")
        vault = Vault(stack.records, stack.archive, KeySource("memory:", {}))
        await vault.put(NewCredential("c", "bearer", {"token": TOKEN}, ("*",), ("*",)))
        began = time.process_time()
        for _ in range(2000):
            await vault.resolve("c", "w")
        return (time.process_time() - began) / 2000

    return asyncio.run(measure())


def main() -> None:
    redactor = Redactor()
    redactor.learn(Credential("c", "bearer", {"token": TOKEN}))
    known = frozenset({("c", frozenset({TOKEN}))})
    text = json.dumps(ROWS)
    rows = [
        ("a step that asked for nothing", idle()),
        ("opening a credential from memory", opening()),
        ("preparing the search for a token", cost(lambda: _search_for.__wrapped__(known), 20)),
        ("a log line", cost(lambda: redactor.text("step 3 of execution 0198f3c2 took 0.25 s"), 10_000)),
        (f"an output of {len(text) / 1e6:.1f} MB", cost(lambda: redactor.text(text), 3)),
    ]
    for what, seconds in rows:
        print(f"{what:40} {seconds * 1e6:12.2f} µs")


if __name__ == "__main__":
    main()

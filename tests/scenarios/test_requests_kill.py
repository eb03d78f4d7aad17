"""A worker that is killed after it has answered: whoever asks reads the answer from the store."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path

from dalsegno import App
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.servers.forking import Forked
from tests.waiting import until

WORKER = """
import sys
from dalsegno import App, requests

app = App(sys.argv[1])


@app.workflow
async def counter() -> int:
    count = 0
    async for asked in requests("count"):
        count += 1
        asked.reply(count)
        if asked.payload == "last":
            return count


with app.running():
    if len(sys.argv) > 2:
        handle = app.handle(sys.argv[2])
    else:
        handle = app.start(counter)
    print(handle.id, flush=True)
    handle.wait(60)
"""
ASKER = """
import sys
from dalsegno import App

print("asks", flush=True)
print(App(sys.argv[1]).handle(sys.argv[2]).ask("count", id="one"), flush=True)
"""


def happened(handle: Handle, kind: str) -> int:
    return sum(event.kind == kind for event in handle.events())


@LASTING
def test_an_answer_outlives_its_worker_and_its_first_asker(store_url: str, tmp_path: Path) -> None:
    worker, asker = tmp_path / "worker.py", tmp_path / "asker.py"
    worker.write_text(WORKER)
    asker.write_text(ASKER)
    with closing(App(store_url)) as app:
        with Forked(str(worker), [store_url], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            handle = app.handle(process.stdout.readline().strip())
            with Forked(str(asker), [store_url, handle.id], stdout=subprocess.PIPE) as asking:
                assert asking.stdout is not None
                assert asking.stdout.readline().strip() == "asks"
                until(lambda: happened(handle, "RequestReceived"), "the request is received")
                asking.kill()
            until(lambda: happened(handle, "RequestAnswered"), "the request is answered")
            process.kill()

        assert handle.ask("count", id="one", timeout=10) == 1

        with Forked(str(worker), [store_url, handle.id], stdout=subprocess.PIPE):
            assert handle.ask("count", "last", id="two", timeout=30) == 2
            assert handle.ask("count", id="one", timeout=10) == 1
            assert handle.result(30) == 2
        assert happened(handle, "RequestAnswered") == 2

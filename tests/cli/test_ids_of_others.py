"""Executions whose id another program has chosen, on the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.cli.conftest import Invoke
from tests.servers.sqlite import empty_sqlite
from tests.wire.documents import LINEAR, WAIT
from tests.wire.master import Master, message

OTHERS = "Exec_2025-" + "x" * 118


async def _adopt(url: str) -> None:
    master = await Master.open(url)
    await master.send(message(OTHERS, "start", WAIT))
    await master.send(message("Short-1", "start", LINEAR))
    await master.completion("Short-1")
    await master.until(lambda: bool(master.told(OTHERS)))
    await master.close()


def test_commands_take_ids_of_others(invoke: Invoke, tmp_path: Path) -> None:
    url = empty_sqlite(tmp_path / "store.db")
    asyncio.run(_adopt(url))
    for named in (OTHERS, OTHERS[:20]):
        shown = json.loads(invoke("show", named, "--store", url, "--json").stdout)
        assert (shown["id"], shown["state"]) == (OTHERS, "RUNNING")
    assert json.loads(invoke("show", "Short-1", "--store", url, "--json").stdout)["id"] == "Short-1"
    assert invoke("ls", "--store", url).exit_code == 0
    assert OTHERS in invoke("ls", "--store", url, "--json").stdout
    assert invoke("why", OTHERS, "--store", url).exit_code == 0
    assert invoke("cancel", OTHERS, "--store", url).exit_code == 0
    assert json.loads(invoke("show", OTHERS, "--store", url, "--json").stdout)["state"] == "CANCELLED"
    assert invoke("show", "nobody", "--store", url).exit_code != 0

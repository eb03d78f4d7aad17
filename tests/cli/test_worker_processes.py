"""``dalsegno worker --processes``: a family of real processes, one of which dies, and all of which drain."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from dalsegno import App
from dalsegno.cli.process.supervisor import WorkerGroup, how_it_ended
from tests.cli.conftest import Invoke
from tests.cli.documents import STEPS, TASKS, lines, write
from tests.cli.programs import Program, Programs
from tests.servers.process import alive, children_of
from tests.waiting import until


def workers(app: App) -> set[str]:
    return {view.id for view in app.host.call(app.client.stack.ledger.workers())}


def living(app: App) -> set[int]:
    """Ids of the processes that heartbeat."""
    return {pid for pid in (int(name.split(":")[-3]) for name in workers(app)) if alive(pid)}


def family(programs: Programs, store: str, *options: str) -> Program:
    return programs.begin("worker", "--processes", "2", "--store", store, *options)


def test_one_that_dies_is_replaced_and_all_drain(programs: Programs, folder: Path, postgres_url: str) -> None:
    app = App(postgres_url)
    parent = family(programs, postgres_url, "--json")
    try:
        both = until(
            lambda: len(found := living(app)) == 2 and found, "two processes with names of their own"
        )
        assert set(children_of(parent.process.pid)) == both
        os.kill(victim := min(both), signal.SIGKILL)
        until(lambda: len(found := living(app)) == 2 and victim not in found, "another one in its place")
        family_now = children_of(parent.process.pid)
        parent.send(signal.SIGTERM)
        code, out, err = parent.finish()
        assert code == 0
        assert json.loads(out) | {"seconds": 0} == {"processes": 2, "restarts": 1, "seconds": 0}
        assert f"({victim}) was killed by SIGKILL; another one starts in" in err
        assert err.count("stopped after 0 steps") == 2, "each says that it has drained"
        assert not any(map(alive, family_now))
        assert (
            workers(app) & {name for name in workers(app) if int(name.split(":")[-3]) in family_now} == set()
        )
    finally:
        app.close()


def test_running_steps_finish_first(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, steps_yaml=STEPS, cli_tasks_py=TASKS)
    store = f"sqlite:///{folder / 'shared.db'}"
    invoke("deploy", "steps.yaml", "--store", store)
    execution = invoke("start", "steps", "--store", store).stdout.strip()
    parent = family(programs, store, "--app", "cli_tasks:app", "--queues", "default,heavy", "--grace", "20")
    until(lambda: len(lines(folder / "runs.txt")) == 8, "items in progress")
    parent.send(signal.SIGINT)
    (folder / "go").touch()
    code, _, _ = parent.finish()
    assert code == 0
    shown = json.loads(invoke("show", execution, "--store", store, "--json").stdout)
    assert shown["nodes"]["work"]["runs"] == 8, "what ran was finished, and is not left to anybody else"


def test_family_does_not_outlive_a_killed_parent(programs: Programs, folder: Path) -> None:
    app = App(f"sqlite:///{folder / 'shared.db'}")
    parent = family(programs, app.url)
    try:
        both = until(lambda: len(found := living(app)) == 2 and found, "two processes")
        parent.send(signal.SIGKILL)
        until(lambda: not any(map(alive, both)), "the end of both")
    finally:
        app.close()


def test_what_is_wrong_with_the_options_is_said_once(invoke: Invoke) -> None:
    for options, message in (
        (("--store", "memory:"), "belongs to one process"),
        (("--app", "no_such_module:app"), "no_such_module"),
        (("--health-port", "nowhere"), "'nowhere' is not a port"),
    ):
        result = invoke("worker", "--processes", "2", *options)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("error:") == 1


def test_each_process_gets_the_options_and_a_health_port_of_its_own() -> None:
    made = WorkerGroup(2, "sqlite:///a.db", "shop:app", "a,b", 7, 3.0, ["30d"], "0.0.0.0:8701", True)
    first, second = (command[3:] for command in made.commands())
    assert first == [
        "worker", "--store=sqlite:///a.db", "--app=shop:app", "--queues=a,b", "--concurrency=7", "--grace=3.0",
        "--health-port=0.0.0.0:8701", "--retention=30d", "--quiet",
    ]  # fmt: skip
    assert set(second) - set(first) == {"--health-port=0.0.0.0:8702"}


def test_endings_are_told_in_words() -> None:
    assert how_it_ended(2) == "ended with exit code 2"
    assert how_it_ended(-9) == "was killed by SIGKILL"
    assert how_it_ended(-200) == "was killed by signal 200"

"""``dalsegno backup``: a copy while processes write, and executions that go on from it."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sqlite3
import stat
import threading
from pathlib import Path

from dalsegno import App
from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.adapters.sqlite.backup import back_up
from dalsegno.testing.clock import FakeClock
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Programs
from tests.waiting import until

TWO_STEPS = """\
name: two
nodes:
  - {id: nap, type: wait, parameters: {amount: 1, unit: seconds}}
  - {id: text, type: edit, parameters: {assignments: [{name: n, value: "{{ input.n }}"}]}}
edges:
  - {id: e1, src: nap, dst: text}
output: "$text.n"
"""


def ended(path: Path) -> dict[str, int]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT state, count(*) FROM execution GROUP BY state").fetchall()
    connection.close()
    return dict(rows)


def test_copy_under_load_is_whole_and_its_executions_go_on(
    programs: Programs, folder: Path, invoke: Invoke
) -> None:
    """A worker and a client write without a pause while copies are made. Each copy has what was confirmed before it
    was begun, and a worker brings all of it to its end."""
    write(folder, two_yaml=TWO_STEPS)
    assert invoke("deploy", "two.yaml").exit_code == 0
    worker = programs.begin("worker")
    over, confirmed = threading.Event(), 0
    app = App("sqlite:///dalsegno.db")

    def load() -> None:
        nonlocal confirmed
        while not over.is_set():
            app.start("two", n=confirmed)
            confirmed += 1

    loading = threading.Thread(target=load)
    loading.start()
    try:
        until(lambda: confirmed > 50, "some starts")
        copies = []
        for number in range(3):
            before = confirmed
            told = invoke("backup", f"copy-{number}.db", "--json")
            assert told.exit_code == 0, told.output
            copies.append((before, json.loads(told.stdout)))
    finally:
        over.set()
        loading.join()
        app.close()
        worker.send(signal.SIGKILL)
        worker.process.communicate()

    for before, told in copies:
        assert before <= told["executions"] <= confirmed
    restored = folder / "restored.db"
    shutil.copyfile(folder / "copy-2.db", restored)
    assert ended(restored).get("RUNNING", 0) > 0
    going_on = programs.begin("worker", "--store", "sqlite:///restored.db")
    until(lambda: set(ended(restored)) == {"COMPLETED"}, "all executions of the copy")
    assert ended(restored) == {"COMPLETED": copies[2][1]["executions"]}
    going_on.send(signal.SIGTERM)
    assert going_on.finish()[0] == 0
    assert list(folder.glob(".*")) == []


def test_copy_is_one_file_for_its_owner_alone(folder: Path, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")

    told = invoke("backup", "copy.db")

    assert told.exit_code == 0
    assert "copy.db: " in told.stdout
    assert "1 executions, verified" in told.stdout
    assert stat.S_IMODE((folder / "copy.db").stat().st_mode) == 0o600
    assert sorted(each.name for each in folder.glob("*copy*")) == ["copy.db"]
    assert invoke("ls", "--store", "sqlite:///copy.db", "--json").stdout == invoke("ls", "--json").stdout


def test_a_file_that_exists_is_not_overwritten(folder: Path, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    (folder / "copy.db").write_text("dear")

    told = invoke("backup", "copy.db")

    assert told.exit_code == 2
    assert "copy.db exists, and is not overwritten" in told.stderr
    assert "dalsegno show" not in told.stderr, "it is about no execution"
    assert (folder / "copy.db").read_text() == "dear"


def test_store_that_is_missing_is_not_made(folder: Path, invoke: Invoke) -> None:
    told = invoke("backup", "copy.db")

    assert told.exit_code == 2
    assert "there is no store at dalsegno.db" in told.stderr
    assert list(folder.iterdir()) == []


def test_key_that_lies_beside_the_store_is_named(folder: Path, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    (folder / "dalsegno.db.key").write_text("k")

    told = invoke("backup", "copy.db")

    assert "not in it: keep a separate copy of dalsegno.db.key" in told.stderr


def test_copy_that_finds_no_space_leaves_nothing_behind(
    programs: Programs, folder: Path, invoke: Invoke
) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml")
    small = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40960, 40960)); "
    child = programs.python(
        "-c",
        small
        + "import sys; sys.argv[1:] = ['backup', 'copy.db']; from dalsegno.cli.main import main; main()",
        PYTHONDONTWRITEBYTECODE="1",  # what it cannot write whole it must not leave to others
    )

    code, _, err = child.finish()

    assert code == 2, err
    assert "copy.db" in err
    assert list(folder.glob("*copy*")) == []


def test_progress_is_reported(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "store.db", FakeClock())
    store.write_blocking(
        lambda rows: rows.connection.execute(
            "CREATE TABLE filler AS SELECT zeroblob(9000000) AS data"
        ).fetchone()
    )
    seen: list[tuple[int, int]] = []

    back_up(tmp_path / "store.db", tmp_path / "copy.db", lambda copied, total: seen.append((copied, total)))

    store.close()
    assert len(seen) >= 3
    assert seen[0][0] < seen[0][1]
    assert seen[-1][0] == seen[-1][1]


def test_copy_of_postgres_is_made_by_the_command_that_is_named(
    folder: Path, invoke: Invoke, postgres_url: str
) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("run", "hello.yaml", "--store", postgres_url)

    told = invoke("backup", "copy.dump", "--store", postgres_url)

    assert told.exit_code == 2
    assert "PostgreSQL makes its own backups" in told.stderr
    command = told.stderr[told.stderr.index("pg_dump") :].strip()
    assert shlex.split(command)[:3] == ["pg_dump", "--format=custom", "--schema=dalsegno"]
    assert "copy.dump" in command


def test_memory_has_nothing_to_copy(invoke: Invoke) -> None:
    told = invoke("backup", "copy.db", "--store", "memory:")

    assert told.exit_code == 2
    assert "ends with its process" in told.stderr

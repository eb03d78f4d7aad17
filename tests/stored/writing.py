"""Writes the fixture of a release: ``python -m tests.stored.writing FOLDER``, from the root of the repository.

The folder, ``tests/stored/releases/<version>``, must not exist: a fixture is never changed. It gets

- ``store.db.gz``: a SQLite store, ``store.sql.gz``: a dump of one in PostgreSQL, ``secret.key``: the key of both;
- ``sqlite.json`` and ``postgresql.json``: the executions in them, how each goes on, and how it must end.

A process whose clock stands still at a moment of 2023 starts everything in `cases`, and is killed. Another one opens a
copy of the store and finishes it: so the endings are those of the release that wrote the fixture. Read them before you
commit them.
"""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.servers.postgres import PostgresServer, binary, make_template
from tests.servers.workspace import Workspace
from tests.stored import cases
from tests.stored.opening import do, finish, picture
from tests.stored.serving import StoredServer

ROOT = Path(__file__).parents[2]
STILL = 0.7
"""Seconds without an event after which everything that can happen has happened."""
BY_HTTP = ("p_remote", "s_remote", "g_remote")
"""These are finished by a remote program."""
WEBHOOK_SECRET = "a-secret-of-the-sender"
CREDENTIAL = "token-of-the-shop"
PROGRAMS = "programs"


# -- in a process whose clock stands still ------------------------------------------------------------------------


def write(url: str, path: Path) -> None:
    """Ends by being killed: what runs then is left to those who open the store."""
    kept = by_server(url)
    from tests.stored.workflows import app

    app.url = url
    found: dict[str, dict[str, Any]] = {}
    with app.running():
        for name, source in cases.SCRIPTS.items():
            app.deploy_script(source, name)
        for name, document in cases.GRAPHS.items():
            app.deploy({"name": name, **document})
        app.deploy_script('return "tick, the second"', "tick")
        app.schedules.add("hourly", "every 1h", "tick", missed="once", tags={"made": "hourly"})
        app.schedules.add("paused", "0 3 * * *", "tick", timezone="Europe/Rome")
        app.schedules.pause("paused")
        for name, case in cases.CASES.items():
            found[name] = started(app, name, case)
        at_rest(app)
        for position in range(max(len(case.before) for case in cases.CASES.values())):
            for name, case in cases.CASES.items():
                for step in case.before[position : position + 1]:
                    do(app, app.handle(found[name]["id"]), step)
            at_rest(app)
    with app.running(scheduler=False):
        for name, case in cases.UNDELIVERED.items():
            found[name] = started(app, name, case)
        at_rest(app)
        path.write_text(json.dumps({"kept": kept, "cases": found}))
        os._exit(0)


def started(app: Any, name: str, case: cases.Case) -> dict[str, Any]:
    from tests.stored import workflows

    options = dict(case.options)
    starter = app.with_options(
        **{key: value for key, value in options.items() if key != "submit"}, tags={"case": name}
    )
    target = getattr(workflows, case.workflow, case.workflow)
    start = starter.submit if options.get("submit") else starter.start
    handle = start(target, case.input) if case.input is not None else start(target)
    return {
        "id": handle.id,
        "workflow": case.workflow,
        "after": list(case.after),
        "varies": list(case.varies),
    }


def at_rest(app: Any) -> None:
    def places() -> list[tuple[str, str, int]]:
        return sorted(
            (view.id, view.state, view.seq) for view in (one.status() for one in app.executions(limit=1000))
        )

    seen, since = places(), time.monotonic()
    while time.monotonic() < since + STILL:
        time.sleep(0.2)
        if (new := places()) != seen:
            seen, since = new, time.monotonic()


def by_server(url: str) -> dict[str, Any]:
    """Keys, a credential, a webhook, an alert, limits and a protected name; what is told only once is kept."""
    first_key = [
        sys.executable,
        "-m",
        "dalsegno",
        "keys",
        "add",
        "ops",
        "--scope",
        "admin",
        "--store",
        url,
        "--json",
    ]
    ops = json.loads(subprocess.run(first_key, capture_output=True, text=True, check=True).stdout)
    keys = {"ops": ops}
    with tempfile.TemporaryDirectory() as folder:
        server = StoredServer(Path(folder), url, "--no-worker", "--no-scheduler")
        server.start()

        def call(method: str, path: str, body: Any = None) -> Any:
            status, reply = server.call(method, path, body, key=ops["key"])
            if status >= 300:
                raise RuntimeError(f"{path}: {status} {reply}")
            return reply

        keys["reader"] = call("POST", "keys", {"name": "reader", "scopes": ["read"]})
        keys["program"] = call(
            "POST", "keys", {"name": "program", "scopes": ["worker"], "queues": [PROGRAMS]}
        )
        keys["former"] = call("POST", "keys", {"name": "former", "scopes": ["run"]})
        call("DELETE", f"keys/{keys['former']['id']}")
        shop = {
            "type": "bearer",
            "fields": {"token": CREDENTIAL},
            "hosts": ["http://localhost:9"],
            "workflows": ["*"],
        }
        call("PUT", "credentials/shop", shop)
        hook = {
            "path": "orders/new",
            "workflow": "tick",
            "secret": WEBHOOK_SECRET,
            "signature": {"style": "github"},
        }
        call("PUT", "webhooks/orders", hook)
        call("PUT", "alerts/failures", {"workflow": "p_failed", "url": "http://127.0.0.1:9/hook"})
        call("PUT", "limits/stored", {"concurrency": 2, "rate": "100/m"})
        call("PUT", "protected-names/g_nightly")
        server.stop()
    return {"keys": keys, "webhook_secret": WEBHOOK_SECRET, "credential": CREDENTIAL}


# -- in a process with the clock of today ---------------------------------------------------------------------------


def record(url: str, path: Path) -> None:
    """Finishes a copy of the store and adds the endings."""
    from tests.stored.workflows import app

    stored = json.loads(path.read_text())
    app.url = url
    for each in stored["cases"].values():
        each["before"] = picture(app.handle(each["id"]))
    with app.running():
        endings = finish(app, stored["cases"], [name for name in stored["cases"] if name not in BY_HTTP])
    for name, each in endings.items():
        stored["cases"][name]["ending"] = each
    path.write_text(json.dumps(stored, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


# -- all of it ------------------------------------------------------------------------------------------------------


def in_process(verb: str, url: str, path: Path, key: Path) -> None:
    environment = {**os.environ, "DALSEGNO_SECRET_KEY": key.read_text().strip()}
    environment |= {"STORED_WRITING": "1"} if verb == "write" else {}
    command = [sys.executable, "-m", "tests.stored.writing", verb, url, str(path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def compressed(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def write_sqlite(folder: Path, work: Path) -> None:
    live, copy = work / "live.db", work / "copy.db"
    in_process("write", f"sqlite:///{live}", folder / "sqlite.json", folder / "secret.key")
    with closing(sqlite3.connect(live)) as store:
        store.execute("VACUUM INTO ?", [str(copy)])
    compressed(folder / "store.db.gz", copy.read_bytes())
    in_process("record", f"sqlite:///{copy}", folder / "sqlite.json", folder / "secret.key")


def write_postgres(folder: Path, server: PostgresServer) -> None:
    url = server.create_database("live")
    in_process("write", url, folder / "postgresql.json", folder / "secret.key")
    command = [
        str(binary("pg_dump")),
        "--no-owner",
        "--no-privileges",
        "--no-comments",
        "--restrict-key=dalsegno",
        url,
    ]
    dump = subprocess.run(command, capture_output=True, check=False)
    if dump.returncode:
        dump = subprocess.run(
            [word for word in command if "restrict" not in word], capture_output=True, check=True
        )
    lines = [line for line in dump.stdout.splitlines(keepends=True) if b"restrict dalsegno" not in line]
    compressed(folder / "store.sql.gz", b"".join(lines))  # older releases of psql do not know \\restrict
    in_process("record", url, folder / "postgresql.json", folder / "secret.key")


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    made = subprocess.run(
        [sys.executable, "-m", "dalsegno", "credentials", "new-key"],
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "secret.key").write_text(made.stdout.split()[0] + "\n")
    with tempfile.TemporaryDirectory() as work:
        write_sqlite(folder, Path(work))
    workspace = Workspace()
    try:
        template = make_template(workspace.new_folder("initdb"))
        with PostgresServer(workspace.new_folder("pg"), template) as server:
            write_postgres(folder, server)
    finally:
        workspace.remove()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("write" | "record") as verb, url, path]:
            {"write": write, "record": record}[verb](url, Path(path))
        case [folder]:
            main(Path(folder))
        case _:
            raise SystemExit(__doc__)

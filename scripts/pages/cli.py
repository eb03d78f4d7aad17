"""``cli.md``: every command with its arguments and options, from the program itself."""

from __future__ import annotations

from typing import Any

import typer
from typer.testing import CliRunner

from dalsegno.cli.group import SECTIONS
from dalsegno.cli.main import app
from scripts.pages.markdown import NOTICE

INTRODUCTION = """
Results go to standard output, everything else to standard error. `--json` prints one JSON value instead of text. An
execution may be named by its id, by the first characters of it, or by `last`: the newest that no
workflow started (name a child by its id).

In JSON an execution has an `id` and a `state`, as [over HTTP](../server.md#names), and what refers to one says
`execution`. The earlier names are also printed until 0.2: `execution_id` for `id` and `execution`, `status` for
`state`. What is refused is printed as `{"error": {"code", "message"}}`; where the message is about places in a document
or an input, with `findings`: a list of `{"pointer", "rule", "severity", "message"}`.

| exit code | meaning |
| --- | --- |
| 0 | done; the execution completed |
| 1 | the execution failed or was cancelled |
| 2 | wrong usage, an invalid document, a refusal (the message says what to do) |
| 3 | a bug in Dal Segno |
| 4 | the file of the store was deleted or replaced while the process had it open ([DS-231](errors.md#ds-231)) |
| 124 | `--timeout` passed; the execution can be resumed |
| 130 | interrupted; the execution can be resumed |

| environment | meaning |
| --- | --- |
| `DALSEGNO_STORE` | the store, where `--store` is not given; else that of `App(…)`, else `sqlite:///dalsegno.db` |
| `DALSEGNO_BROKER` | Redis or RabbitMQ, where `--broker` is not given; else that of `App(…)`, else the store |
| `DALSEGNO_REDIS` | the Redis of other programs, where `--redis` is not given; else a broker that is Redis |
| `DALSEGNO_CONFIG` | a TOML file with `store`, `broker`, `redis`, `adopt`; else `dalsegno.toml` here; variables win |
| `DALSEGNO_SERVER` | the server, where `--server` is not given; then no store is opened here |
| `DALSEGNO_KEY` | the API key for that server, `ds_…`; also of `Client(…)` and of remote workers |
| `DALSEGNO_LISTEN` | a direct URL of the same PostgreSQL database, where the store's goes through a pooler |
| `DALSEGNO_JOURNAL` | the [journal](../how-to/rerun-at-a-turn.md) of workflows that declare none, such as `failures` |
| `DALSEGNO_HEALTH_PORT` | where `worker` and `scheduler` answer `/live`, `/ready` and `/metrics` |
| `DALSEGNO_EGRESS_ALLOW` | what HTTP nodes of a worker may reach in addition to public addresses |
| `DALSEGNO_SECRET_KEY` | the key that seals [secrets](../secrets.md); the same for all processes of a store |
| `DALSEGNO_SECRET_KEY_FILE` | a file with that key, instead of the key itself |
| `DALSEGNO_UNSEALED_SNAPSHOTS` | `refuse`, or until when [unsealed snapshots](../security.md) are accepted |
| `DALSEGNO_SMTP_URL` | the mail server of [failure alerts](../failure-alerts.md): `smtp://user:password@host:587` |
| `DALSEGNO_MAIL_FROM` | who those mails come from; else `dalsegno@localhost` |
| `DALSEGNO_REMOTE` | queues that [other programs](../remote-workers.md#over-redis-or-rabbitmq) serve over the broker |
| `DALSEGNO_ADOPT` | which messages of other programs are [taken in](python.md#enginesettings): `any`, `known`, `off` |
| `DALSEGNO_DEBUG` | `1`: commands show tracebacks of their errors; those of tasks and nodes keep frames of Dal Segno |

"""


def page() -> str:
    group: Any = typer.main.get_command(app)
    known = [name for names in SECTIONS.values() for name in names]
    sections = dict(SECTIONS) | {"Other": tuple(name for name in sorted(group.commands) if name not in known)}
    parts = []
    for title, names in sections.items():
        present = [name for name in names if name in group.commands]
        if present:
            commands = "\n".join(_command(*names) for name in present for names in _with_parts(group, name))
            parts.append(f"## {title}\n\n{commands}")
    return f"# Command line\n\n{NOTICE}{INTRODUCTION}" + "\n".join(parts)


def _with_parts(group: Any, name: str) -> list[tuple[str, ...]]:
    """A command, and those inside it if it is a group."""
    inner = getattr(group.commands[name], "commands", {})
    return [(name,), *((name, part) for part in inner)]


def _command(*names: str) -> str:
    """The help as the program prints it: the one thing that is true of every version of its libraries."""
    told = CliRunner().invoke(app, [*names, "--help"], prog_name="dalsegno", env={"COLUMNS": "100"})
    lines = [line.rstrip() for line in told.output.strip().splitlines()]
    return f"### {' '.join(names)}\n\n```text\n" + "\n".join(lines) + "\n```\n"

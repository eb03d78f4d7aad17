"""Checks of a PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dalsegno.cli.doctor.check import Check, judge
from dalsegno.errors import DalSegnoError
from dalsegno.server.settings import is_loopback
from dalsegno.wiring import LISTEN_VARIABLE, require_postgres_driver

if TYPE_CHECKING:
    from dalsegno.adapters.postgres.diagnostics import Link

APART = 5.0
"""Seconds by which clocks may differ without a warning."""
SHOWN = 5
"""Number of missing rights that are named."""
KEEP_MAKING = (
    "Nothing is lost, and a retention empties it. Keep a process running whose user owns the tables of the schema"
    " `dalsegno`: it makes partitions a week ahead."
)


VERIFY = (
    "Add `sslmode=verify-full&sslrootcert=FILE` to the store's URL; the file has the certificate of the authority that"
    " signed the server's. Without it the driver falls back to plain text (`prefer`)."
)


async def examine_server(url: str) -> list[Check]:
    try:
        require_postgres_driver()
        from dalsegno.adapters.postgres.diagnostics import OLDEST, examine_database  # noqa: PLC0415 - needs the driver

        facts = await examine_database(url, os.environ.get(LISTEN_VARIABLE) or url)
    except DalSegnoError as error:
        return [
            judge("database", str(error), fail=True, cure="Check the URL, the network and the server's log.")
        ]
    apart = abs(facts.clock_ahead)
    clock = "ahead of" if facts.clock_ahead > 0 else "behind"
    return [
        judge(
            "database",
            f"PostgreSQL {facts.version}" + (", a standby" if facts.standby else ""),
            fail=facts.major < OLDEST or facts.standby,
            cure=f"Use a primary server of PostgreSQL {OLDEST} or newer.",
        ),
        judge(
            "durability",
            "commits are on disk" if facts.durable else "commits are confirmed before they are on disk",
            warn=not facts.durable,
            cure="Set fsync, full_page_writes and synchronous_commit on, unless losing the last moments is fine.",
        ),
        judge(
            "clearing up",
            "dead rows are removed"
            if facts.vacuums
            else "dead rows are never removed: everything gets slower",
            warn=not facts.vacuums,
            cure="Set autovacuum and track_counts on: every step leaves dead rows behind.",
        ),
        judge(
            "wake-ups",
            "reach this machine" if facts.wakes else "do not reach this machine: work is found by polling",
            warn=not facts.wakes,
            cure=f"Behind a pooler, give a direct URL in {LISTEN_VARIABLE}.",
        ),
        judge(
            "server's clock",
            f"{apart:.1f} s {clock} this machine's" if apart > 1 else "as this machine's",
            warn=apart > APART,
            cure="Set the clocks of all machines by NTP.",
        ),
        judge_links(facts.links),
    ]


def judge_links(links: Iterable[Link]) -> Check:
    """Check whether traffic to the server over a network can be read or changed on the way."""
    remote = [each for each in links if each.address and not is_loopback(each.address)]
    wrong = next((each for each in remote if not each.verified), None)
    if wrong is None:
        detail = "encrypted, the server's certificate is verified" if remote else "stays on this machine"
        return judge("encryption", detail)
    detail = (
        f"the certificate of the server at {wrong.address} is not verified: another machine can pose as it"
        if wrong.encrypted
        else f"the connection to {wrong.address} is plain text: passwords' hashes and all data can be read on its way"
    )
    return judge("encryption", detail, warn=True, cure=VERIFY)


async def examine_rights(url: str) -> list[Check]:
    """Check the user's rights. Empty if none is missing."""
    from dalsegno.adapters.postgres.diagnostics import examine_rights_of  # noqa: PLC0415 - needs the driver

    refused = await examine_rights_of(url)
    if refused is None:
        return []
    shown = ", ".join(refused.names[:SHOWN])
    more = f" and {len(refused.names) - SHOWN} more" if len(refused.names) > SHOWN else ""
    detail = f"the role {refused.role} may not read and write all of the store: {shown}{more}"
    cure = f"Let the owner of the schema or a superuser run: {refused.cure}"
    return [judge("rights", detail, fail=True, cure=cure)]


async def examine_history(url: str) -> Check:
    """Check, for a database with our schema, that each day has a partition of its own, now and in the days to come."""
    from dalsegno.adapters.postgres.diagnostics import examine_history_of  # noqa: PLC0415 - needs the driver

    facts = await examine_history_of(url)
    found = []
    if facts.in_common is not None:
        days = _span(*facts.in_common)
        found.append(f"of {days} is in no partition of its own: it is removed row by row, which takes longer")
    if facts.missing is not None:
        found.append(f"of {_span(*facts.missing)} has no partition to go to")
    if not facts.ownership.suffices:
        found.append(f"{facts.ownership.complaint()}, and so cannot make partitions")
    return judge(
        "history",
        "; ".join(found) or "each day has a partition of its own",
        warn=bool(found),
        cure=KEEP_MAKING if facts.ownership.suffices else f"Nothing is lost. {facts.ownership.cure()}",
    )


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"

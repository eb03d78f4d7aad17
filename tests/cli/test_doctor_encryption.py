"""``doctor`` tells whether the connection to PostgreSQL is encrypted, and whether its certificate was verified."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dalsegno.adapters.postgres.diagnostics import Link, examine_database
from dalsegno.cli.doctor.database import judge_links
from tests.servers.postgres import PostgresServer, server_identity


@pytest.mark.parametrize(
    ("link", "status", "words"),
    [
        (Link("", encrypted=False, verified=False), "ok", "this machine"),
        (Link("127.0.0.1", encrypted=False, verified=False), "ok", "this machine"),
        (Link("::1", encrypted=False, verified=False), "ok", "this machine"),
        (Link("10.0.0.5", encrypted=False, verified=False), "warn", "plain text"),
        (Link("2001:db8::5", encrypted=True, verified=False), "warn", "not verified"),
        (Link("10.0.0.5", encrypted=True, verified=True), "ok", "is verified"),
    ],
)
def test_a_connection_over_a_network_has_to_be_verified(link: Link, status: str, words: str) -> None:
    check = judge_links([Link("127.0.0.1", encrypted=False, verified=False), link])
    assert check.status == status
    assert words in check.detail
    assert ("verify-full" in (check.cure or "")) == (status == "warn")


def certificate(server: PostgresServer) -> Path:
    """Of the server, signed by itself; the server uses it after a reload."""
    key, made = server.data / "server.key", server.data / "server.crt"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *kind, *name, "-keyout", key, "-out", made],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    if identity := server_identity():
        os.chown(key, *identity)
        os.chown(made, *identity)
    return made


async def test_how_a_connection_travels_is_seen_on_the_connection_itself(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    """What ``prefer``, the driver's default, makes of it depends on the server; only ``verify-*`` does not."""
    url = private_postgres.url

    async def link(more: str = "") -> Link:
        (found,) = (await examine_database(url + more, url + more)).links
        return found

    assert await link() == Link("127.0.0.1", encrypted=False, verified=False)
    root = tmp_path / "root.crt"
    root.write_bytes(certificate(private_postgres).read_bytes())
    private_postgres.psql("ALTER SYSTEM SET ssl = on")
    private_postgres.psql("SELECT pg_reload_conf()")
    while private_postgres.psql("SHOW ssl") != "on":
        pass
    assert await link("?sslmode=disable") == Link("127.0.0.1", encrypted=False, verified=False)
    assert await link("?sslmode=require") == Link("127.0.0.1", encrypted=True, verified=False)
    assert await link(f"?sslmode=verify-full&sslrootcert={root}") == Link(
        "127.0.0.1", encrypted=True, verified=True
    )

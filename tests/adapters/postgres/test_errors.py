"""What each of PostgreSQL's error codes becomes: only what is said about a value may be the step's own fault."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest
from asyncpg import exceptions

from dalsegno.adapters.postgres.caller_connections import fails_the_task
from dalsegno.adapters.postgres.errors import RefusedValue, connecting, driver_errors, explain, sqlstate_of
from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    OperatorError,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)
from tests.rows import rows

ABOUT_VALUES = ("21", "22", "23", "54")
KNOWN = [
    error
    for error in vars(exceptions).values()
    if isinstance(error, type)
    and issubclass(error, asyncpg.PostgresError)
    and getattr(error, "sqlstate", None)
]
MEANINGS: dict[str, type[DalSegnoError]] = {
    "08006": Unavailable,  # the connection broke
    "0A000": Unavailable,  # a plan that was made before a migration
    "21000": RefusedValue,  # a batch names a row twice
    "22003": RefusedValue,  # a number out of range
    "22021": RefusedValue,  # a text with a zero byte
    "23502": RefusedValue,  # a column that is missing
    "23505": RefusedValue,  # a row that is there already
    "25006": StoreReadOnly,  # a standby
    "25P02": Unavailable,  # a transaction that failed before
    "26000": Unavailable,  # a prepared statement that is gone
    "28P01": BadConfiguration,  # a wrong password
    "3D000": BadConfiguration,  # no such database
    "3F000": SchemaMismatch,  # no schema
    "40001": Unavailable,  # undone beside another one
    "40P01": Unavailable,  # a deadlock
    "42501": StoreReadOnly,  # no right to do this
    "42703": SchemaMismatch,  # a column that a newer version took away
    "42883": SchemaMismatch,  # a function
    "42P01": SchemaMismatch,  # a table
    "53100": StoreFull,  # no space
    "53200": Unavailable,  # no memory
    "53300": Unavailable,  # too many connections
    "54000": RefusedValue,  # a row that is too large
    "55P03": Unavailable,  # a lock that others held
    "57014": Unavailable,  # a statement that somebody cancelled
    "57P01": Unavailable,  # a server that is shut down
    "58030": Unavailable,  # an error of the disk
    "58P01": Unavailable,  # a file that is missing
    "P0001": Unavailable,  # what somebody's trigger says
    "XX000": Unavailable,  # a bug of PostgreSQL
    "XX001": StoreCorrupt,  # a damaged page
    "XX002": StoreCorrupt,  # a damaged index
    "ZZ999": Unavailable,  # nobody knows
}


def said(state: str) -> asyncpg.PostgresError:
    """As the driver raises it."""
    return asyncpg.PostgresError.new({"C": state, "M": "as the server says it", "S": "ERROR"})


@rows("state", MEANINGS)
def test_code_means_what_whoever_must_act_needs(state: str) -> None:
    error = said(state)
    assert error.sqlstate == state

    told = explain(error)

    assert type(told) is MEANINGS[state]
    assert "as the server says it" in str(told)


@rows("kind", KNOWN, ids=lambda kind: f"{kind.sqlstate}-{kind.__name__}")
def test_only_what_is_said_about_a_value_is_the_fault_of_a_step(kind: type[asyncpg.PostgresError]) -> None:
    told = explain(kind("x"))

    assert isinstance(told, RefusedValue if kind.sqlstate[:2] in ABOUT_VALUES else OperatorError)


@pytest.mark.parametrize("state", ["42703", "42P01", "42883", "42601", "3F000"])
def test_tables_that_do_not_fit_are_met_by_an_upgrade_or_a_migration(state: str) -> None:
    told = str(explain(said(state)))

    assert "upgrade this program" in told
    assert "dalsegno migrate" in told
    assert f"SQLSTATE {state}" in told


def test_servers_of_which_none_is_the_primary_are_waited_for() -> None:
    told = explain(asyncpg.TargetServerAttributeNotMatched("None of the hosts match"))

    assert isinstance(told, Unavailable)
    assert "promote one" in str(told)


LOGIN_REFUSED = ["28000", "28P01", "3D000"]


@pytest.mark.parametrize("state", LOGIN_REFUSED)
def test_store_that_was_open_and_lets_nobody_in_any_more_is_away(state: str) -> None:
    """A step that reads then is handed back; it is nothing that this process could not run."""
    with pytest.raises(Unavailable, match="as the server says it"), driver_errors():
        raise said(state)


@pytest.mark.parametrize("state", LOGIN_REFUSED)
def test_store_that_lets_nobody_in_from_the_first_has_a_wrong_url(state: str) -> None:
    with pytest.raises(BadConfiguration, match="as the server says it"), driver_errors(), connecting("x"):
        raise said(state)


def test_code_is_found_behind_our_own_error() -> None:
    told = explain(said("22021"))
    told.__cause__ = said("22021")

    assert sqlstate_of(told) == "22021"
    assert sqlstate_of(ValueError("no code")) == ""


def test_time_that_has_run_out_is_told_in_words() -> None:
    assert "(TimeoutError: no answer in time)" in str(explain(TimeoutError()))
    with (
        pytest.raises(Unavailable, match=r"db:5432 cannot be reached .*no answer in time"),
        connecting(AT_DB),
    ):
        raise TimeoutError


AT_DB = "postgresql://me@db:5432/x"


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"),
        asyncpg.InterfaceError("cannot call Connection.terminate(): connection has been released"),
    ],
)
def test_insides_of_the_driver_mean_that_the_connection_was_lost(error: Exception) -> None:
    told = explain(error)

    assert isinstance(told, Unavailable)
    assert "the connection was lost (" in str(told)


async def test_wrong_session_attribute_is_answered_with_the_right_ones() -> None:
    right = r"any, primary, .*, read-write, read-only"
    with pytest.raises(BadConfiguration, match=right) as told, connecting(AT_DB):
        await asyncpg.connect(f"{AT_DB}?target_session_attrs=readwrite")

    assert "built-in" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "environment", "said"),
    [
        (AT_DB, {}, "none was given"),
        ("postgresql://db:5432/x", {}, "none was given"),
        ("postgresql://me:wrong@db:5432/x", {}, "the password is wrong"),
        (f"{AT_DB}?password=wrong", {}, "the password is wrong"),
        (AT_DB, {"PGPASSWORD": "wrong"}, "the password is wrong"),
        (AT_DB, {"PGPASSFILE": __file__}, "the password is wrong"),
    ],
)
def test_password_that_was_not_given_is_not_called_wrong(
    url: str, environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(BadConfiguration, match=said), connecting(url):
        raise asyncpg.PostgresError.new({"C": "28P01", "M": "failed", "S": "FATAL"})


@pytest.mark.parametrize(
    ("state", "is_the_tasks"),
    [("55000", True), ("55006", True), ("55P03", False), ("40001", False), ("53200", False), ("23505", True)],
)
def test_commit_that_fails_is_the_tasks_failure_where_trying_again_does_not_help(
    state: str, is_the_tasks: bool
) -> None:
    assert fails_the_task(said(state)) is is_the_tasks

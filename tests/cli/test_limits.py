"""``dalsegno limits``: set, listed, taken away; refused where it makes no sense."""

from __future__ import annotations

import json

from tests.cli.conftest import Invoke


def test_a_limit_is_set_listed_and_taken_away(invoke: Invoke) -> None:
    invoke("keys", "add", "ci")  # makes the store
    made = invoke("limits", "set", "gmail", "--concurrency", "5", "--rate", "10/s")
    assert made.stdout == "gmail: 5 at once, 10/s; 0 in use, 0 waiting\n"
    assert "gmail" in invoke("limits", "ls").stdout
    [listed] = json.loads(invoke("limits", "ls", "--json").stdout)["limits"]
    assert (listed["key"], listed["concurrency"], listed["rate"]) == ("gmail", 5, "10/s")

    assert invoke("limits", "rm", "gmail").stdout == "gmail: as definitions say\n"

    again = invoke("limits", "rm", "gmail")
    assert again.exit_code != 0
    assert "no limit is set for the key 'gmail'" in again.stderr
    assert json.loads(invoke("limits", "ls", "--json").stdout) == {"limits": []}


def test_a_store_that_is_not_there_is_not_made(invoke: Invoke) -> None:
    assert "there is no store" in invoke("limits", "set", "gmail", "--concurrency", "1").stderr


def test_what_makes_no_sense_is_refused(invoke: Invoke) -> None:
    invoke("keys", "add", "ci")
    for arguments, said in (
        ((), "give a concurrency, a rate or both"),
        (("--rate", "fast"), "write it as 10/s"),
        (("--concurrency", "-1"), "from 0 (nothing starts)"),
    ):
        refused = invoke("limits", "set", "gmail", *arguments)
        assert refused.exit_code != 0
        assert said in " ".join(refused.stderr.split())

"""The port docstrings number their guarantees; the suite and the documentation must speak of the same ones."""

from __future__ import annotations

import re
from pathlib import Path

from dalsegno.ports import archive, broker, clock, ledger, limits, published, records
from dalsegno.testing.contract import ALL_GUARANTEES, TOPICS, WHOLE_STACK, Capabilities, Topic, bind
from tests.rows import rows

PORTS = (
    ledger.Ledger,
    broker.Broker,
    archive.Archive,
    records.Blobs,
    records.Records,
    limits.Limits,
    clock.Clock,
    published.PublishedData,
)
DOCS = Path(__file__).parents[2] / "docs"
NAMED = re.compile(r"\*\*([A-Z]\d+) ([a-z ]+?)\*\*")
NUMBERED = re.compile(r"\b([LBAKRMCP]\d+)\b")


def guarantees() -> dict[str, str]:
    """Number to name, as the port docstrings give them; a guarantee that stands alone needs no name."""
    found: dict[str, str] = {}
    for port in PORTS:
        text = port.__doc__ or ""
        found |= dict.fromkeys(NUMBERED.findall(text), "") | dict(NAMED.findall(text))
    return found


def names_of_tests(topic: type[Topic]) -> list[str]:
    return [name for name in vars(topic) if name.startswith("test_")]


ALL_TESTS = [name for topic in TOPICS for name in names_of_tests(topic)]


@rows(("number", "name"), guarantees().items())
def test_guarantee_has_a_test_of_its_name(number: str, name: str) -> None:
    prefix = "_".join(["test", number.lower(), *name.split()])
    assert [test for test in ALL_TESTS if test.startswith(prefix)], f"no test is called {prefix}_…"


def test_suite_knows_exactly_the_guarantees_of_the_ports() -> None:
    assert set(guarantees()) == ALL_GUARANTEES


def test_no_test_speaks_of_a_guarantee_that_no_port_gives() -> None:
    numbers = {found.group(1).upper() for test in ALL_TESTS if (found := re.match(r"test_([a-z]\d+)_", test))}
    assert numbers == set(guarantees())


@rows("topic", TOPICS, ids=lambda topic: topic.__name__)
def test_topic_declares_the_guarantees_its_tests_are_named_after(topic: type[Topic]) -> None:
    named = {
        found.group(1).upper()
        for test in names_of_tests(topic)
        if (found := re.match(r"test_([a-z]\d+)_", test))
    }
    assert named <= topic.guarantees


def test_test_names_are_unique() -> None:
    assert len(ALL_TESTS) == len(set(ALL_TESTS))


def test_every_topic_is_listed() -> None:
    """A topic that nobody lists is a topic that nobody binds."""
    assert {topic.__name__ for topic in Topic.__subclasses__()} == {topic.__name__ for topic in TOPICS}


def test_documentation_names_guarantees_as_the_ports_do() -> None:
    known = guarantees()
    for page in sorted(DOCS.rglob("*.md")):
        for number, name in NAMED.findall(page.read_text(encoding="utf-8")):
            assert known.get(number) == name, f"{page.relative_to(DOCS)} calls {number} '{name}'"


def test_a_binding_gets_only_what_it_declares() -> None:
    young = bind(Capabilities(frozenset(("commit",)), frozenset(("L1", "L2", "L5", "L7"))))
    whole = bind(Capabilities(WHOLE_STACK))

    assert set(young) == {
        "TestLedgerOnce",
        "TestLedgerWhole",
        "TestLedgerOutbox",
        "TestLedgerEnding",
        "TestLedgerEndIfLast",
        "TestLedgerItemEnding",
        "TestLedgerBarriers",
        "TestLedgerSkippedSlots",
        "TestLedgerAnyBarriers",
        "TestLedgerSplitBarriers",
        "TestLedgerPayloads",
        "TestLedgerNames",
    }
    assert set(whole) == {f"Test{topic.__name__}" for topic in TOPICS} - {
        "TestDurableStore",
        "TestSharedStore",
        "TestDurableScripts",
        "TestSharedScripts",
        "TestSharedLimits",
        "TestDurablePending",
        "TestSharedPending",
    }

"""The editor grammar: well formed, complete, and with the keywords of the lexer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dalsegno.lang.flow.syntax.keywords import KEYWORDS
from dalsegno.lang.stdlib.orchestration_names import ORCHESTRATION_NAMESPACES, RUN_VALUES
from dalsegno.lang.stdlib.registry import NAMESPACES
from tests.rows import rows

EDITORS = Path(__file__).parents[2] / "editors"
EXTERNAL = {"source.yaml"}


def load(name: str) -> Any:
    return json.loads((EDITORS / name).read_text("utf-8"))


GRAMMAR = load("dalsegno.tmLanguage.json")


def rules(rule: Any) -> Iterator[dict[str, Any]]:
    """The rule and every one inside it."""
    if isinstance(rule, dict):
        yield rule
        for part in rule.values():
            yield from rules(part)
    elif isinstance(rule, list):
        for part in rule:
            yield from rules(part)


def patterns(*keys: str) -> list[str]:
    return [rule[key] for rule in rules(GRAMMAR) for key in keys if isinstance(rule.get(key), str)]


def words_of(rule_name: str) -> set[str]:
    found: set[str] = set()
    for rule in rules(GRAMMAR["repository"][rule_name]):
        match = re.fullmatch(r"\\b\(\?:([A-Za-z|]+)\)\\b", rule.get("match", ""))
        found |= set(match.group(1).split("|")) if match else set()
    return found


def test_every_include_leads_somewhere() -> None:
    included = patterns("include")
    assert included
    for name in included:
        assert name in EXTERNAL or name[1:] in GRAMMAR["repository"], name
    used = {name[1:] for name in included}
    assert set(GRAMMAR["repository"]) <= used


@rows("pattern", patterns("match", "begin", "end"))
def test_every_pattern_compiles_and_never_matches_nothing(pattern: str) -> None:
    assert re.compile(pattern, re.MULTILINE).search("") is None


def test_captures_are_groups_of_their_pattern() -> None:
    for rule in rules(GRAMMAR):
        for captures, pattern in (("captures", "match"), ("beginCaptures", "begin"), ("endCaptures", "end")):
            groups = re.compile(rule[pattern]).groups if captures in rule else 0
            assert all(int(number) <= groups for number in rule.get(captures, ()))


def test_every_rule_names_its_scope_with_the_languages_suffix() -> None:
    for name in patterns("name"):
        assert name == GRAMMAR["name"] or name.endswith(".flow"), name


def test_keywords_are_those_of_the_lexer() -> None:
    assert words_of("words") == KEYWORDS


def test_builtins_are_those_of_the_library() -> None:
    assert words_of("builtins") == {
        *ORCHESTRATION_NAMESPACES,
        *NAMESPACES,
        *RUN_VALUES,
        "String",
        "Boolean",
        "inputs",
    }


def matched(rule_name: str, source: str) -> bool:
    found = GRAMMAR["repository"][rule_name]
    return any(re.search(rule["match"], source) for rule in rules(found) if "match" in rule)


def test_members_are_matched_before_words_so_that_keywords_may_follow_a_dot() -> None:
    order = [each["include"] for each in GRAMMAR["repository"]["code"]["patterns"]]
    assert order.index("#members") < order.index("#words")
    assert matched("members", "a.if")
    assert matched("members", "a?.await")
    assert not matched("members", "[...await x]")
    assert not matched("words", "letter nullable awaiting")


def test_the_extension_offers_the_grammar() -> None:
    package = load("vscode/package.json")["contributes"]
    (grammar,) = package["grammars"]
    assert grammar["scopeName"] == GRAMMAR["scopeName"] == "source.flow"
    assert (EDITORS / grammar["path"]).exists()
    (language,) = package["languages"]
    assert language["extensions"] == [f".{ending}" for ending in GRAMMAR["fileTypes"]]
    assert (EDITORS / "vscode" / language["configuration"]).exists()
    assert load("vscode/language-configuration.json")["comments"]["lineComment"] == "//"


def test_the_readme_shows_how_to_read_what_validate_prints() -> None:
    text = (EDITORS / "README.md").read_text("utf-8")
    task = json.loads(text.partition("```json\n")[2].partition("```")[0])["tasks"][0]
    first = task["problemMatcher"]["pattern"][0]
    place = re.match(first["regexp"], "flows/pay.flow:2:26  error  argument-count")
    assert place is not None
    assert place.groups() == ("flows/pay.flow", "2", "26", "error", "argument-count")

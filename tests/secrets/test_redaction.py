"""Redaction: every shape of a value is found, nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yarl import URL

from dalsegno.engine.secrets import Redactor
from dalsegno.errors import NotJson
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.failure import Failure
from dalsegno.ports.node import AwaitSignal, FanOut, Route, SleepUntil, StartChild, Working
from dalsegno.ports.secrets import Credential
from tests.rows import rows

SECRET = 'p@ss/w0rd+"\\&= <é>世🎼%'


def redactor(*values: str, name: str = "crm") -> Redactor:
    made = Redactor()
    made.learn(Credential(name, "custom", {f"f{number}": value for number, value in enumerate(values)}))
    return made


def in_base64(value: str, before: int, after: int = 1) -> str:
    return base64.b64encode(b"x" * before + value.encode() + b"y" * after).decode()


WAYS = {
    "plain": lambda v: v,
    "url": lambda v: quote(v, safe=""),
    "url path": quote,
    "url form": quote_plus,
    "url lower": lambda v: quote(v, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
    "url twice": lambda v: quote(quote(v, safe=""), safe=""),
    "query": lambda v: urlencode({"key": v}),
    "json": json.dumps,
    "json in unicode": lambda v: json.dumps(v, ensure_ascii=False),
    "json in json": lambda v: json.dumps(json.dumps({"a": v})),
    "json three times": lambda v: json.dumps(json.dumps(json.dumps([v]))),
    "html": html.escape,
    "repr": repr,
    "repr of bytes": lambda v: repr(v.encode()),
    "upper case": str.upper,
    "hexadecimal": lambda v: v.encode().hex(),
    "base64 at 0": lambda v: in_base64(v, 0),
    "base64 at 1": lambda v: in_base64(v, 1),
    "base64 at 2": lambda v: in_base64(v, 2),
    "base64 at 3": lambda v: in_base64(v, 3, 0),
    "base64 for urls": lambda v: base64.urlsafe_b64encode(b"ab" + v.encode() + b"c").decode(),
    "base64 in a url": lambda v: quote(in_base64(v, 4), safe=""),
    "base64 of json": lambda v: base64.b64encode(json.dumps({"t": v}, ensure_ascii=False).encode()).decode(),
    "base64 of base64 of a query": lambda v: base64.b64encode(
        b"abc" + base64.b64encode(urlencode({"t": v}).encode()) + b"!"
    ).decode(),
    "base64 in lines": lambda v: base64.encodebytes(
        b"x" * 54 + f"{v}{quote(v, safe='')}".encode() * 3
    ).decode(),
    "base64 of a mixture": lambda v: in_base64(v.replace("&", "%26").replace("/", "\\/"), 1),
    "base64 of a query": lambda v: base64.b64encode(f"a?{urlencode({'t': v})}&b".encode()).decode(),
    "base64 of an address": lambda v: base64.b64encode(
        str(URL("http://x").with_query(k=v)).encode() + b"z"
    ).decode(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("secret", ["s3cret", "a-long-token-without-anything-odd", "user name:word"])
def test_every_shape_of_a_value_is_found(way: str, secret: str) -> None:
    shaped = WAYS[way](secret).strip()
    found = redactor(secret).text(f"before {shaped} after")
    assert found.startswith("before ")
    assert found.endswith(" after")
    assert "[secret crm]" in found, found
    assert secret not in found


@rows("way", WAYS)
def test_every_shape_of_an_odd_value_is_found(way: str) -> None:
    found = redactor(SECRET).text(f"<<{WAYS[way](SECRET)}>>")
    assert "[secret crm]" in found, found


@settings(max_examples=40, deadline=None)
@given(st.text(min_size=6, max_size=40).filter(lambda text: text.isprintable() and text.strip() == text))
def test_whatever_a_value_consists_of_it_is_found(secret: str) -> None:
    known = redactor(secret)
    for way in ("plain", "url", "url form", "json", "json in json", "html", "base64 at 1", "base64 at 2"):
        assert "[secret crm]" in known.text(WAYS[way](secret)), way


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=5), st.binary(max_size=5))
def test_in_base64_it_is_found_wherever_it_stands(before: bytes, after: bytes) -> None:
    encoded = base64.b64encode(before + b"s3cret" + after).decode()
    assert "[secret crm]" in redactor("s3cret").text(encoded)


@pytest.mark.parametrize("text", ["", "nothing here", "s3cre", "3cret", "[secret other]", "S3.CRET"])
def test_what_is_no_secret_stays(text: str) -> None:
    assert redactor("s3cret").text(text) is text


def test_short_values_are_not_looked_for() -> None:
    known = redactor("25", "", "short")
    assert known.text("port 25 is short") == "port 25 is short"


def test_several_credentials_are_told_apart() -> None:
    known = redactor("first-value", name="one")
    known.learn(Credential("two", "bearer", {"token": "first-value-and-more"}))
    assert known.text("a first-value b first-value-and-more c") == "a [secret one] b [secret two] c"


def test_the_header_of_basic_is_found_whole_and_again_encoded() -> None:
    known = Redactor()
    known.learn(Credential("crm", "basic", {"username": "annabel", "password": "s3cret"}))
    header = "Basic " + base64.b64encode(b"annabel:s3cret").decode()
    assert known.text(header) == "Basic [secret crm]"
    assert "[secret crm]" in known.text(base64.b64encode(b"Authorization: " + header.encode()).decode())


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----\n"


def test_lines_of_a_key_file_are_found_one_by_one() -> None:
    known = redactor(PEM)
    assert known.text(f"is {PEM}!") == "is [secret crm]!"
    assert known.text("AQEFAASCBKcwggSjAgEAAoIB") == "[secret crm]"
    assert known.text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_long_values_are_found() -> None:
    secret = "".join(f"{number:x}" for number in range(3000))[:8192]
    assert redactor(secret).text(f"x{secret}y") == "x[secret crm]y"
    assert redactor(secret).text(quote(secret)) == "[secret crm]"


@dataclass
class Reply:
    body: str
    count: int


async def test_nested_values_keys_and_numbers() -> None:
    known = redactor("s3cret", "12345678")
    value = {
        "list": ["a", {"deep": "x s3cret y"}],
        "s3cret": 1,
        "number": 12345678,
        "float": 0.12345678,
        "bytes": b"--s3cret--",
        "object": Reply("s3cret", 3),
        "fine": [1, None, True, 2.5],
    }
    found = await known.returned(value, "the output")
    assert found == {
        "list": ["a", {"deep": "x [secret crm] y"}],
        "[secret crm]": 1,
        "number": "[secret crm]",
        "float": "0.[secret crm]",
        "bytes": found["bytes"],
        "object": {"body": "[secret crm]", "count": 3},
        "fine": [1, None, True, 2.5],
    }
    assert "[secret crm]" in found["bytes"]


async def test_a_value_without_secrets_is_returned_itself() -> None:
    value = {"a": [Reply("nothing", 1)]}
    assert await redactor("s3cret").returned(value, "the output") is value


async def test_a_large_value_is_looked_through_too() -> None:
    value = {"text": "x" * 3_000_000 + "s3cret"}
    found = await redactor("s3cret").returned(value, "the output")
    assert found["text"].endswith("x[secret crm]")


@pytest.mark.parametrize(
    "value",
    [
        Route("s3cret", ("e",)),
        Working({"a": "s3cret"}, ["s3cret"]),
        SleepUntil(5.0, "s3cret"),
        FanOut(["s3cret"], 10, "halt"),
        AwaitSignal("s3cret", 3, {"message": "s3cret"}),
        StartChild("child-s3cret", {"a": "s3cret"}),
    ],
)
async def test_whatever_a_node_may_return_is_looked_through(value: Any) -> None:
    found = await redactor("s3cret").returned(value, "the output")
    assert type(found) is type(value)
    assert "s3cret" not in repr(found)
    assert "[secret crm]" in repr(found)


async def test_what_is_not_json_is_refused_without_telling() -> None:
    with pytest.raises(NotJson) as caught:
        await redactor("s3cret").returned({"s3cret": object()}, "the output")
    assert "$.[secret crm] is of type object" in str(caught.value)


def test_failures_and_errors() -> None:
    known = redactor("s3cret")
    failure = Failure("no s3cret", "C_S3CRET", "s3cret", {"a": ["s3cret"]}, "node", retry_after=3.0)
    assert known.failure(failure) == Failure(
        "no [secret crm]", "C_[secret crm]", "[secret crm]", {"a": ["[secret crm]"]}, "node", retry_after=3.0
    )
    odd = known.failure(Failure("x", details={"s3cret": object()})).details
    assert "s3cret" not in str(odd)
    error = ErrorValue("s3cret", "s3cret", "s3cret", {"s3cret": 1}, ("s3cret",), ("a.s3cret",), ("s3cret", 1))
    assert "s3cret" not in repr(known.error(error))
    assert known.error(ErrorValue("A", "b")) == ErrorValue("A", "b", args=())


def test_errors_that_carry_more_than_plain_data() -> None:
    carried = (b"a s3cret", Reply("s3cret", 1), {b"s3cret"}, datetime(2030, 1, 1, tzinfo=UTC), object())
    found = redactor("s3cret").error(ErrorValue("A", "b", args=carried)).args
    assert [type(each) for each in found] == [str, dict, list, datetime, object]
    assert "[secret crm]" in str(found[0])
    assert found[1] == {"body": "[secret crm]", "count": 1}


def test_text_that_is_no_unicode_is_still_looked_through() -> None:
    assert "s3cret" not in redactor("s3cret").text("\udc80 s3cret")

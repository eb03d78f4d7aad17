"""Signatures of deliveries, against what senders document, and against forgers."""

from __future__ import annotations

import msgspec
import pytest

from dalsegno.admin.webhook_signatures import PRESETS, Style, sign, verify
from dalsegno.errors import SignatureRefused, StaleDelivery

BODY = b'{"n": 1}'
SECRETS: dict[Style, str] = {"standard": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
SIGNED: tuple[Style, ...] = ("github", "stripe", "slack", "standard", "plain")


def secret_of(style: Style) -> str:
    return SECRETS.get(style, "open sesame")


def test_the_example_of_github() -> None:
    headers = {
        "x-hub-signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }
    verify(PRESETS["github"], "It's a Secret to Everybody", headers, b"Hello, World!", 0.0)


def test_the_example_of_standard_webhooks() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v0,nonsense v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    proof = verify(PRESETS["standard"], secret_of("standard"), headers, b'{"test": 2432232314}', 1614265331.0)
    assert proof.id == "msg_p5jXN8AQM9LWM0D4loKWxJek"


@pytest.mark.parametrize("style", SIGNED)
def test_what_is_signed_is_taken_and_nothing_else(style: Style) -> None:
    rule, secret = PRESETS[style], secret_of(style)
    headers = sign(rule, secret, BODY, 1000.0, "d1")
    assert verify(rule, secret, headers, BODY, 1100.0).signature
    with pytest.raises(SignatureRefused, match="does not fit"):
        verify(rule, secret, headers, BODY + b" ", 1000.0)
    with pytest.raises(SignatureRefused, match="does not fit"):
        verify(rule, secret[:-4] + "AAAA", headers, BODY, 1000.0)
    with pytest.raises(SignatureRefused, match="is missing"):
        verify(rule, secret, {}, BODY, 1000.0)
    for text in ("", "sha256=", "sha256=é", "v1=,t=1", "x" * 5000):
        with pytest.raises(SignatureRefused):
            verify(rule, secret, {**headers, rule.header: text}, BODY, 1000.0)


@pytest.mark.parametrize("style", ["stripe", "slack", "standard"])
def test_an_old_or_changed_time_is_refused(style: Style) -> None:
    rule, secret = PRESETS[style], secret_of(style)
    headers = sign(rule, secret, BODY, 1000.0, "d1")
    for now in (1301.0, 699.0):
        with pytest.raises(StaleDelivery, match="300 s"):
            verify(rule, secret, headers, BODY, now)
    later = {name: value.replace("1000", "1301") for name, value in headers.items()}
    with pytest.raises(SignatureRefused):
        verify(rule, secret, later, BODY, 1301.0)


def test_a_timestamp_header_becomes_part_of_what_is_signed() -> None:
    rule = msgspec.structs.replace(PRESETS["plain"], timestamp="x-time")
    headers = sign(rule, "open sesame", BODY, 1000.0, "d1")
    verify(rule, "open sesame", headers, BODY, 1000.0)
    with pytest.raises(SignatureRefused):
        verify(rule, "open sesame", {**headers, "x-time": "1001"}, BODY, 1001.0)
    with pytest.raises(SignatureRefused):
        verify(rule, "open sesame", {"x-signature-256": headers["x-signature-256"]}, BODY, 1000.0)


def test_a_signed_delivery_without_a_readable_time_is_refused() -> None:
    rule = PRESETS["slack"]
    for said in ("", "soon", "1e9", "١٢"):
        body_signed = sign(rule, "open sesame", BODY, 0.0, "")
        with pytest.raises((SignatureRefused, StaleDelivery)):
            verify(rule, "open sesame", {**body_signed, rule.timestamp: said}, BODY, 0.0)


def test_the_boundary_between_id_and_time_cannot_be_moved() -> None:
    """Signed were id ``d1``, time ``1000`` and a body ``2000.{}``; presented as id ``d1.1000``, time ``2000``."""
    rule, secret = PRESETS["standard"], secret_of("standard")
    headers = sign(rule, secret, b"2000.{}", 1000.0, "d1")
    moved = {**headers, "webhook-id": "d1.1000", "webhook-timestamp": "2000"}
    with pytest.raises(SignatureRefused, match="without a dot"):
        verify(rule, secret, moved, b"{}", 2000.0)


@pytest.mark.parametrize("id", ["", "d.1", "d 1", "d\u00e9", "d\n1", "d" * 257])
def test_an_id_outside_the_safe_characters_is_refused(id: str) -> None:
    rule, secret = PRESETS["standard"], secret_of("standard")
    with pytest.raises(SignatureRefused, match="is not an id"):
        verify(rule, secret, sign(rule, secret, BODY, 1000.0, id), BODY, 1000.0)


@pytest.mark.parametrize("style", ["stripe", "slack", "standard"])
@pytest.mark.parametrize(
    "said", ["", "1000.5", "+1000", " 1000", "1_000", "1000:x", "\u0661\u0662", "9" * 20]
)
def test_a_time_in_anything_but_digits_is_refused_before_the_signature(style: Style, said: str) -> None:
    rule, secret = PRESETS[style], secret_of(style)
    headers = sign(rule, secret, BODY, 1000.0, "d1")
    wrong = {name: value.replace("1000", said) for name, value in headers.items() if name != "webhook-id"}
    with pytest.raises(SignatureRefused, match="digits alone"):
        verify(rule, secret, {"webhook-id": "d1", **wrong}, BODY, 1000.0)


def test_a_token_is_the_secret_itself() -> None:
    verify(PRESETS["token"], "open sesame", {"x-webhook-token": "open sesame"}, BODY, 0.0)
    with pytest.raises(SignatureRefused, match="not the secret"):
        verify(PRESETS["token"], "open sesame", {"x-webhook-token": "open"}, BODY, 0.0)

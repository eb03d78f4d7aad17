"""Signatures of webhook deliveries: they prove that the holder of the secret recently sent exactly these bytes.

The body is not parsed here. Every comparison takes constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from dalsegno.errors import InvalidInput, SignatureRefused, StaleDelivery

Style = Literal["github", "stripe", "slack", "standard", "plain", "token", "none"]
TOLERANCE = 300.0
SECRET_BYTES = 32
_STANDARD_PREFIX = "whsec_"


class Signature(Struct, frozen=True):
    """The signature scheme of a sender. Header names are lower case."""

    style: Style
    header: str = ""
    prefix: str = ""
    """Text before each signature in the header."""
    timestamp: str = ""
    """The header with the time of sending in Unix seconds; the time is part of the signed text."""
    tolerance: float = TOLERANCE
    """Seconds by which that time may differ from the server's."""


PRESETS: dict[Style, Signature] = {
    "github": Signature("github", "x-hub-signature-256", "sha256="),
    "stripe": Signature("stripe", "stripe-signature", "v1="),
    "slack": Signature("slack", "x-slack-signature", "v0=", "x-slack-request-timestamp"),
    "standard": Signature("standard", "webhook-signature", "v1,", "webhook-timestamp"),
    "plain": Signature("plain", "x-signature-256"),
    "token": Signature("token", "x-webhook-token"),
    "none": Signature("none"),
}
ID_HEADER = "webhook-id"
"""Header of the style ``standard``; the id is part of the signed text."""
_ID = re.compile(r"[A-Za-z0-9_:/+=~-]{1,256}", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,19}", re.ASCII)
"""Id, time and body are signed as one text, joined by dots or colons. To make its split unambiguous, the first two
must not contain the separator: neither has a dot, and a time consists of digits."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The properties by which a repeated genuine delivery is recognised."""

    signature: str = ""
    """Empty if all deliveries of the sender have the same signature, or none."""
    id: str = ""
    """The delivery's id, if it is signed."""


def verify(rule: Signature, secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Proof:
    """Verify a delivery. Raises SignatureRefused or StaleDelivery. ``headers`` have lower-case names."""
    if rule.style == "none":
        return Proof()
    given = headers.get(rule.header, "")
    if not given:
        raise SignatureRefused(f"the header '{rule.header}' with the signature is missing")
    if rule.style == "token":
        if not hmac.compare_digest(given.encode(errors="replace"), secret.encode()):
            raise SignatureRefused(f"'{rule.header}' is not the secret of this webhook")
        return Proof()
    elements = given.split(",") if rule.style == "stripe" else given.split()
    moment = _moment(rule, elements, headers)
    delivery = headers.get(ID_HEADER, "") if rule.style == "standard" else ""
    _check_parts(rule, moment, delivery)
    expected = _digest(rule, secret, moment, delivery, body)
    if not _is_among(expected, _signatures(elements, rule.prefix)):
        raise SignatureRefused(f"the signature in '{rule.header}' does not fit this body and the secret")
    _check_age(rule, moment, now)  # after the signature: the time of a forged delivery is not examined
    return Proof(expected, delivery)


def _check_parts(rule: Signature, moment: str, delivery: str) -> None:
    """Check the syntax of time and id before computing anything."""
    if _is_timed(rule) and _SECONDS.fullmatch(moment) is None:
        raise SignatureRefused("the delivery does not say when it was sent, in Unix seconds and digits alone")
    if rule.style == "standard" and _ID.fullmatch(delivery) is None:
        raise SignatureRefused(
            f"'{ID_HEADER}' is not an id: it must be 1 to 256 letters, digits and _ : / + = ~ -, without a dot"
        )


def _is_timed(rule: Signature) -> bool:
    """Whether the time of sending is part of the signed text."""
    return bool(rule.timestamp) or rule.style == "stripe"


def sign(rule: Signature, secret: str, body: bytes, now: float, delivery: str) -> dict[str, str]:
    """Return the headers that a sender would add; for tests of a webhook."""
    if rule.style == "none":
        return {}
    if rule.style == "token":
        return {rule.header: secret}
    moment = f"{now:.0f}" if _is_timed(rule) else ""
    signature = rule.prefix + _digest(
        rule, secret, moment, delivery if rule.style == "standard" else "", body
    )
    if rule.style == "stripe":
        return {rule.header: f"t={moment},{signature}"}
    made = {rule.header: signature}
    if rule.timestamp:
        made[rule.timestamp] = moment
    if rule.style == "standard":
        made[ID_HEADER] = delivery
    return made


def _moment(rule: Signature, elements: Iterable[str], headers: Mapping[str, str]) -> str:
    if rule.style == "stripe":
        return next((each.strip()[2:] for each in elements if each.strip().startswith("t=")), "")
    return headers.get(rule.timestamp, "") if rule.timestamp else ""


def _signatures(elements: Iterable[str], prefix: str) -> list[str]:
    """Return the signatures. A sender that rotates its secret signs with both for a while."""
    return [each.strip()[len(prefix) :] for each in elements if each.strip().startswith(prefix)]


def _is_among(expected: str, given: Iterable[str]) -> bool:
    found = False
    for each in given:
        # Hexadecimal digits may be upper case. Base64 is case-sensitive, and its length never equals that of the
        # digits.
        alike = each if len(expected) != 64 else each.lower()
        found |= hmac.compare_digest(alike.encode(errors="replace"), expected.encode())
    return found


def _digest(rule: Signature, secret: str, moment: str, delivery: str, body: bytes) -> str:
    match rule.style:
        case "slack":
            signed = b"v0:%b:%b" % (_bytes(moment), body)
        case "standard":
            signed = b"%b.%b.%b" % (_bytes(delivery), _bytes(moment), body)
        case _ if _is_timed(rule):
            signed = b"%b.%b" % (_bytes(moment), body)
        case _:
            signed = body
    if rule.style == "standard":
        return base64.b64encode(hmac.digest(standard_key(secret), signed, hashlib.sha256)).decode()
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def new_secret(style: str) -> str:
    """Return a new random secret in the format of the style."""
    made = secrets.token_bytes(SECRET_BYTES)
    return f"{_STANDARD_PREFIX}{base64.b64encode(made).decode()}" if style == "standard" else made.hex()


def standard_key(secret: str) -> bytes:
    """Decode a secret: Standard Webhooks provides its keys in base64."""
    try:
        return base64.b64decode(secret.removeprefix(_STANDARD_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(
            "the secret of a webhook in the style 'standard' is 'whsec_' and base64; copy it from the sender"
        ) from None


def _check_age(rule: Signature, moment: str, now: float) -> None:
    if _is_timed(rule) and abs(now - int(moment)) > rule.tolerance:
        raise StaleDelivery(
            f"the delivery was sent {abs(now - int(moment)):,.0f} s from now, more than {rule.tolerance:g} s; "
            "it is an old one that was repeated, or a clock is wrong"
        )

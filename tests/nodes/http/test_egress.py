"""The egress policy: which addresses are public, how hosts spell addresses, what the allow list permits."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from dalsegno.errors import BadConfiguration
from dalsegno.nodes.http.egress import (
    ALLOW_EVERYTHING,
    EgressDenied,
    EgressPolicy,
    is_public,
    literal_address,
    policy_from_environment,
)
from tests.rows import rows


@rows(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
        "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1",
        "255.255.255.255", "192.0.2.1", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1",
        "64:ff9b::169.254.169.254", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2002:a00:1::", "2001:db8::1", "3fff::1",
        "::ffff:0:127.0.0.1", "2001:0:808:808::80ff:fffe", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:10.0.0.1",
        "169.254.170.2", "192.88.99.1", "100::1", "2001:2::1",
    ],
)  # fmt: skip
def test_what_is_not_public_is_blocked(address: str) -> None:
    assert not is_public(ip_address(address))
    with pytest.raises(EgressDenied):
        EgressPolicy.blocking().check("host", ip_address(address))
    assert ALLOW_EVERYTHING.permits("host", ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "1.1.1.1",
        "2606:4700:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "172.32.0.1",
        "2606:4700::5efe:808:808",
    ],
)
def test_what_is_public_is_permitted(address: str) -> None:
    assert EgressPolicy.blocking().permits("host", ip_address(address))


@rows(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0x7f.0.0.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("[::1]", "::1"),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("１２７.０.０.１", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("127｡0｡0｡1", "127.0.0.1"),
        ("①②⑦．⓪．⓪．①", "127.0.0.1"),
        ("２１３０７０６４３３", "127.0.0.1"),
        ("０ｘ７ｆ．１", "127.0.0.1"),
    ],
)
def test_every_spelling_of_an_address_is_recognised(host: str, address: str) -> None:
    assert literal_address(host) == ip_address(address)


@pytest.mark.parametrize("host", ["example.com", "localhost", "a.1", "1.2.3.4.5", "256.256.256.256", ""])
def test_names_are_no_addresses(host: str) -> None:
    assert literal_address(host) is None


@pytest.mark.parametrize(
    ("allow", "host", "address", "permitted"),
    [
        ("10.0.0.0/8", "db", "10.2.3.4", True),
        ("10.0.0.0/8", "db", "::ffff:10.2.3.4", True),
        ("10.0.0.0/8", "db", "192.168.0.1", False),
        ("127.0.0.1, ::1", "localhost", "::1", True),
        ("[::1]", "localhost", "::1", True),
        ("localhost", "LOCALHOST.", "127.0.0.1", True),
        ("*.corp.example", "db.corp.example", "10.0.0.1", True),
        ("*.corp.example", "corp.example", "10.0.0.1", False),
        ("*.corp.example", "db.corp.example.evil.com", "10.0.0.1", False),
        ("*", "anything", "169.254.169.254", True),
        ("  ", "x", "10.0.0.1", False),
    ],
)
def test_the_allow_list(allow: str, host: str, address: str, permitted: bool) -> None:
    policy = policy_from_environment({"DALSEGNO_EGRESS_ALLOW": allow})
    assert policy.permits(host, ip_address(address)) is permitted


@pytest.mark.parametrize("entry", ["http://x", "host:80", "10.0.0.0/99", "10.0.0", "a/b"])
def test_a_bad_entry_of_the_allow_list_is_named(entry: str) -> None:
    with pytest.raises(BadConfiguration, match="DALSEGNO_EGRESS_ALLOW"):
        EgressPolicy.blocking(entry)


def test_without_the_variable_everything_private_is_blocked() -> None:
    assert not policy_from_environment({}).permits("localhost", ip_address("127.0.0.1"))

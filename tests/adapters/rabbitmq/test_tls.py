"""``amqps://``: whose certificate is accepted, what is said of one that is not, and certificates of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.amqp.errors import ConnectionLost
from dalsegno.errors import BadConfiguration
from tests.servers.certificates import Certificate, make_certificate
from tests.servers.rabbitmq import RabbitServer

SUBJECTS = "[proplists:get_value(peer_cert_subject, L) || L <- rabbit_networking:connection_info_all()]"


@pytest.fixture
def own(rabbitmq_server: RabbitServer) -> Certificate:
    """The server's certificate is for ``broker.example`` and the loopback address."""
    rabbitmq_server.start()
    assert rabbitmq_server.certificate is not None
    return rabbitmq_server.certificate


async def test_certificate_of_a_known_authority_is_accepted(
    rabbitmq_server: RabbitServer, own: Certificate
) -> None:
    connection = await Connection.open(parse_address(rabbitmq_server.tls_url(cacertfile=own.authority)))
    channel = await connection.channel()
    await channel.declare_queue("encrypted")
    assert await channel.depth("encrypted") == (0, 0)
    await connection.close()


async def test_other_certificates_are_refused_with_a_cure(
    rabbitmq_server: RabbitServer, own: Certificate, tmp_path: Path
) -> None:
    server = rabbitmq_server
    unknown = "name the file of the authority that signed it: ?cacertfile=FILE"
    for url, why in (
        (server.tls_url(), unknown),
        (server.tls_url(cacertfile=make_certificate(tmp_path).authority), unknown),
        (
            server.tls_url("localhost", cacertfile=own.authority),
            "connect by a name that the certificate holds",
        ),
        (server.url.replace("amqp:", "amqps:"), "this port does not speak TLS"),
        (server.tls_url().replace("amqps:", "amqp:").partition("?")[0], "RabbitMQ at amqp://guest@127.0.0.1"),
    ):
        with pytest.raises(ConnectionLost) as refusal:
            await Connection.open(parse_address(url))
        assert why in str(refusal.value)
        assert "guest:guest" not in str(refusal.value)


async def test_verification_is_given_up_only_on_request(
    rabbitmq_server: RabbitServer, own: Certificate
) -> None:
    connection = await Connection.open(parse_address(rabbitmq_server.tls_url(verify="verify_none")))
    await connection.close()


async def test_certificate_of_the_client_is_shown_to_the_server(
    rabbitmq_server: RabbitServer, own: Certificate, tmp_path: Path
) -> None:
    def url(shown: Certificate) -> str:
        return rabbitmq_server.tls_url(
            cacertfile=own.authority, certfile=shown.certificate, keyfile=shown.key
        )

    connection = await Connection.open(parse_address(url(own)))
    assert "CN=broker.example" in rabbitmq_server.evaluate(
        f'lists:flatten(io_lib:format("~p", [{SUBJECTS}]))'
    )
    await connection.close()
    with pytest.raises(ConnectionLost, match="RabbitMQ at amqps://"):
        await Connection.open(parse_address(url(make_certificate(tmp_path))))


def test_certificate_that_cannot_be_read_is_a_fault_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="a certificate in the URL of the broker cannot be used"):
        parse_address(f"amqps://guest:guest@localhost/?cacertfile={tmp_path}/missing.pem")


@pytest.mark.parametrize(
    ("url", "risk"),
    [
        ("amqp://guest:guest@127.0.0.1/", ""),
        ("amqp://guest:guest@localhost/", ""),
        ("amqp://guest:guest@broker.example/", "not encrypted"),
        ("amqps://guest:guest@broker.example/?verify=verify_none", "not verified"),
        ("amqps://guest:guest@broker.example/", ""),
    ],
)
def test_risk_of_a_connection_over_a_network(url: str, risk: str) -> None:
    found = parse_address(url).risk()
    assert (risk in found) if risk else found == ""

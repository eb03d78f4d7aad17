"""TLS of brokers: what is wrong with a server's certificate, and what an unprotected connection risks."""

from __future__ import annotations

import ipaddress
import ssl

OTHER_NAME = (62, 64)
"""Codes of OpenSSL: the certificate is for another host name, or another IP address."""
UNKNOWN_AUTHORITY = (18, 19, 20, 21)
"""Codes of OpenSSL: no trusted authority has signed the certificate."""


def tls_problem(error: BaseException, authority_option: str) -> str:
    """Return why TLS failed, with a cure, as a clause; an empty string if the error has another cause.

    ``authority_option``: the parameter of the URL that names the file of the authority.
    """
    found: BaseException | None = error
    while found is not None and not isinstance(found, ssl.SSLError):
        found = found.__cause__ or found.__context__
    if not isinstance(found, ssl.SSLCertVerificationError):
        return _handshake_problem(found) if found is not None else ""
    why = f"its certificate is not accepted: {found.verify_message.rstrip('.')}"
    if found.verify_code in OTHER_NAME:
        return f"{why}; connect by a name that the certificate holds"
    if found.verify_code in UNKNOWN_AUTHORITY:
        return f"{why}; name the file of the authority that signed it: ?{authority_option}=FILE"
    return why


def _handshake_problem(error: ssl.SSLError) -> str:
    if error.reason == "WRONG_VERSION_NUMBER":
        return "this port does not speak TLS"
    return f"the TLS handshake failed: {error.reason or error}"


def unprotected(host: str, scheme: str, *, encrypted: bool, verified: bool) -> str:
    """Return what can happen to a connection over a network, as a sentence, or an empty string.

    ``scheme``: that of an encrypted connection.
    """
    if is_local(host) or (encrypted and verified):
        return ""
    if not encrypted:
        return (
            f"the connection is not encrypted: the password and all data can be read on the way; use {scheme}"
        )
    return "the server's certificate is not verified: another machine can pose as it"


def is_local(host: str) -> bool:
    """Return whether a host is this machine; a path is a socket of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.startswith("/")

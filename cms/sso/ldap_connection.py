"""Connections to a directory: TLS with checked certificates, and one deadline for a whole login."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from ldap3 import ANONYMOUS, NONE, SIMPLE, SYNC, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException
from pyasn1.error import PyAsn1Error

from cms.config.providers import Provider
from cms.sso.provider_errors import ProviderError

MAX_SECONDS = 10.0
"""For all that one login asks of its directory, so that a slow one holds a thread no longer."""
_CONNECT_SECONDS = 5.0

_UNREADABLE = (PyAsn1Error, TypeError, AttributeError, LookupError, RecursionError)
"""Errors of ldap3 for an answer that is not LDAP; their texts do not help a reader."""
_FAILURES = (LDAPException, OSError, ValueError, *_UNREADABLE)


class Deadline:
    """The end of a login; connections that are still in use then are cut."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self._end = time.monotonic() + seconds

    def seconds(self) -> float:
        """Return the seconds that are left; raises `ProviderError` when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise ProviderError("it does not answer in time")
        return left

    @contextmanager
    def cutting(self, connection: Any) -> Iterator[None]:
        """Cut a connection at the deadline, and raise its errors as `ProviderError`.

        The time limits of sockets begin anew with each byte, which a slow server may send one by
        one.
        """
        timer = threading.Timer(self.seconds(), _cut, (connection,))
        timer.daemon = True
        timer.start()
        try:
            yield
        except _FAILURES as error:
            # A cut connection fails in as many ways as there are places to read from it.
            self.seconds()
            raise ProviderError(f"the connection fails ({_reason(error)})") from None
        finally:
            timer.cancel()


def _reason(error: Exception) -> str:
    if isinstance(error, _UNREADABLE):
        return "its answer is not one of LDAP"
    return str(error)


def _cut(connection: Any) -> None:
    with suppress(AttributeError, OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)


class _CheckedTls(Tls):  # type: ignore[misc]  # ldap3 has no types
    """TLS as the standard library makes it safe.

    That of ldap3 checks host names by a function that newer versions of Python lack, and does not
    tell the server which name is meant.
    """

    def __init__(self, authority: str | None) -> None:
        super().__init__(validate=ssl.CERT_REQUIRED)
        self._authority = authority

    # ldap3 calls it with the flag by position.
    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:  # noqa: FBT001
        context = ssl.create_default_context(cadata=self._authority)
        connection.socket = context.wrap_socket(
            connection.socket,
            server_hostname=connection.server.host,
            do_handshake_on_connect=True,
        )


def connect(provider: Provider, deadline: Deadline, *, user: str, password: str) -> Any:
    """Return a connection that is open and, where it has to be, encrypted, but not yet bound.

    Raises `ProviderError`.
    """
    url = urlsplit(provider.client_url)
    is_encrypted = url.scheme == "ldaps"
    default_port = 636 if is_encrypted else 389
    server = Server(
        url.hostname,
        port=url.port or default_port,
        use_ssl=is_encrypted,
        # Referrals lead to servers that nobody here has named.
        allowed_referral_hosts=[],
        tls=_CheckedTls(provider.client_ca or None),
        get_info=NONE,
        connect_timeout=min(_CONNECT_SECONDS, deadline.seconds()),
    )
    connection = Connection(
        server,
        user=user or None,
        # As bytes: ldap3 leaves some characters of a text out, by SASLprep. A password that has
        # only such characters would become empty, which servers take for a bind without a user.
        password=password.encode() or None,
        authentication=SIMPLE if user else ANONYMOUS,
        client_strategy=SYNC,
        auto_referrals=False,
        check_names=False,
        read_only=True,
        receive_timeout=int(MAX_SECONDS),
    )
    try:
        with deadline.cutting(connection):
            connection.open(read_server_info=False)
            # Outside of this machine no password goes unencrypted.
            if not is_encrypted and not provider.allows_address(provider.client_url):
                connection.start_tls(read_server_info=False)
    except ProviderError:
        close(connection)
        raise
    return connection


def close(connection: Any) -> None:
    """Close a connection, without a word to a server that may be gone."""
    with suppress(LDAPException, OSError):
        connection.strategy.close()
    # ldap3 leaves the socket of a connection open that could not be established.
    if connection.socket is not None:
        connection.socket.close()

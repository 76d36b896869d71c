"""Logins by a directory (LDAP): who somebody is, whether the password is right, and their groups."""

from __future__ import annotations

import logging
import queue
import ssl
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ldap3 import BASE, LEVEL, NONE, SUBTREE, SYNC, Connection, Server, Tls
from ldap3.core.exceptions import LDAPException
from ldap3.utils.conv import escape_filter_chars
from pyasn1.error import PyAsn1Error

from cms.emails import is_email
from cms.providers import Provider
from cms.sso.failure import ProviderError
from cms.sso.profile import MAX_NAME_LENGTH, Profile

log = logging.getLogger("cms.auth")

CONNECT_SECONDS = 5
ANSWER_SECONDS = 5
MAX_SECONDS = 10.0
"""For all that one login asks, so that a slow directory holds a thread no longer."""
MAX_IDLE_CONNECTIONS = 4
MAX_GROUP_DEPTH = 10
MAX_GROUPS = 1_000

_SCOPES = {"base": BASE, "one": LEVEL, "sub": SUBTREE}
_ACCOUNT_DISABLED = 2
"""The bit of Active Directory's userAccountControl."""
_LOCKS = ("pwdAccountLockedTime", "nsAccountLock", "loginDisabled")
"""What other directories say of accounts that are locked; an entry without them is not."""


class Entry(NamedTuple):
    """An entry of the directory, by its DN; the attributes are in small letters."""

    dn: str
    attributes: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str | None:
        """Return the first value of an attribute."""
        values = self.attributes.get(name.lower())
        return values[0].strip() or None if values else None

    @property
    def is_disabled(self) -> bool:
        control = self.text("userAccountControl") or "0"
        if control.isdecimal() and int(control) & _ACCOUNT_DISABLED:
            return True
        return any((self.text(name) or "false").lower() != "false" for name in _LOCKS)


class Authentication(NamedTuple):
    """What a directory says to a login: the DN, if there is one, and the user if all is right."""

    dn: str | None
    profile: Profile | None


class DirectoryClient:
    """Asks one directory; its connections are kept for the next logins."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._is_encrypted = provider.client_url.startswith("ldaps:")
        self._idle: queue.LifoQueue[Connection] = queue.LifoQueue(MAX_IDLE_CONNECTIONS)

    def authenticate(self, identifier: str, password: str) -> Authentication:
        """Return what the directory says to an identifier and a password; raises `ProviderError`.

        An unknown identifier takes as many requests as a wrong password.
        """
        deadline = time.monotonic() + MAX_SECONDS
        # A bind without a password succeeds as nobody (RFC 4513, section 5.1.2).
        if not password:
            return Authentication(None, None)
        with self._reading() as connection:
            entry = self._user(connection, identifier)
            dn = entry.dn if entry else f"cn={uuid.uuid4()},{self._provider.user_dn}"
            is_right = self._is_password(dn, password)
            if entry is None or not is_right or entry.is_disabled:
                return Authentication(entry.dn if entry else None, None)
            groups = self._groups(connection, entry, deadline)
        return Authentication(entry.dn, self._profile(entry, groups))

    def check(self) -> None:
        """Look at the base of the users, with the rights of the service; raises `ProviderError`."""
        with self._reading() as connection:
            if not self._search(connection, self._provider.user_dn, "base", "(objectClass=*)", []):
                raise ProviderError(f"there is no entry {self._provider.user_dn} to be seen")

    def close(self) -> None:
        """Close the connections that are kept."""
        while not self._idle.empty():
            _close(self._idle.get_nowait())

    # Connections

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Yield a connection with the rights of the service; it is kept unless something fails."""
        connection = self._idle_connection() or self._connect(
            self._provider.bind_dn, self._provider.bind_password
        )
        try:
            yield connection
        except _FAILURES as error:
            _close(connection)
            raise _failed(error) from None
        except ProviderError:
            _close(connection)
            raise
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            _close(connection)

    def _idle_connection(self) -> Connection | None:
        """Return a connection of an earlier login that still works."""
        while True:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return None
            try:
                # The server may have been started again, or have hung up.
                if connection.search("", "(objectClass=*)", BASE, attributes=["1.1"]):
                    return connection
            except _FAILURES as error:
                log.info("A connection to %s is gone: %s.", self._provider.name, error)
            _close(connection)

    def _connect(self, dn: str, password: str) -> Connection:
        """Return a connection with the rights of the service; raises `ProviderError`."""
        connection = self._open()
        try:
            if self._binds(connection, dn, password):
                return connection
        except _FAILURES as error:
            _close(connection)
            raise _failed(error) from None
        _close(connection)
        raise ProviderError("it does not accept BIND_DN with BIND_PASSWORD")

    def _open(self) -> Connection:
        """Return a connection without a user, encrypted where passwords must be."""
        connection = Connection(
            self._server(),
            client_strategy=SYNC,
            receive_timeout=ANSWER_SECONDS,
            auto_referrals=False,
            raise_exceptions=False,
        )
        try:
            connection.open(read_server_info=False)
            if not self._is_encrypted and not self._provider.allows_address(
                self._provider.client_url
            ):
                connection.start_tls(read_server_info=False)
        except _FAILURES as error:
            _close(connection)
            raise _failed(error) from None
        return connection

    def _server(self) -> Server:
        # One for each connection: the library keeps in it what it knows of addresses that fail.
        parts = urlsplit(self._provider.client_url)
        return Server(
            parts.hostname,
            port=parts.port or (636 if self._is_encrypted else 389),
            use_ssl=self._is_encrypted,
            tls=Tls(validate=ssl.CERT_REQUIRED, ca_certs_data=self._provider.client_ca or None),
            get_info=NONE,
            connect_timeout=CONNECT_SECONDS,
            # Referrals lead to servers that nobody here has named.
            allowed_referral_hosts=[],
        )

    def _binds(self, connection: Connection, dn: str, password: str) -> bool:
        connection.user = dn or None
        connection.password = password or None
        connection.authentication = "SIMPLE" if dn else "ANONYMOUS"
        return bool(connection.bind(read_server_info=False))

    def _is_password(self, dn: str, password: str) -> bool:
        """Tell whether a password is right, on a connection of its own."""
        connection = self._open()
        try:
            is_right = self._binds(connection, dn, password)
            result = int(connection.result["result"])
        finally:
            _close(connection)
        # Busy, unavailable and so on are no wrong passwords: nobody shall be locked out by them.
        if result in _TROUBLE:
            raise ProviderError(f"it answers a bind with {connection.result['description']}")
        return is_right

    # Searches

    def _user(self, connection: Connection, identifier: str) -> Entry | None:
        """Return the one entry of an identifier."""
        provider = self._provider
        condition = f"({provider.user_attribute}={escape_filter_chars(identifier)})"
        names = (
            provider.mail_attribute,
            provider.first_name_attribute,
            provider.last_name_attribute,
            "uid",
            "userAccountControl",
            *_LOCKS,
        )
        entries = self._search(connection, provider.user_dn, provider.user_scope, condition, names)
        # Of two entries nobody knows whose password it is.
        return entries[0] if len(entries) == 1 else None

    def _groups(self, connection: Connection, user: Entry, deadline: float) -> tuple[str, ...]:
        """Return the names of a user's groups, and of the groups that these are in."""
        if not self._provider.group_dn:
            return ()
        names: list[str] = []
        seen: set[str] = set()
        members = [self._member_name(user)]
        for _ in range(MAX_GROUP_DEPTH):
            if not members or len(seen) > MAX_GROUPS or time.monotonic() > deadline:
                break
            groups = self._groups_of(connection, members)
            members = []
            for group in groups:
                # Groups may be in each other.
                if group.dn.lower() not in seen:
                    seen.add(group.dn.lower())
                    names.append(group.text("cn") or group.dn)
                    members.append(group.dn)
        return tuple(names)

    def _groups_of(self, connection: Connection, members: Sequence[str]) -> Sequence[Entry]:
        provider = self._provider
        conditions = [
            f"({provider.group_attribute}={escape_filter_chars(member)})" for member in members
        ]
        condition = f"(|{''.join(conditions)})"
        return self._search(connection, provider.group_dn, provider.group_scope, condition, ["cn"])

    def _member_name(self, user: Entry) -> str:
        # Groups of the kind posixGroup hold names; all others hold DNs.
        if self._provider.group_attribute.lower() == "memberuid":
            return user.text("uid") or user.dn
        return user.dn

    def _search(
        self,
        connection: Connection,
        base: str,
        scope: str,
        condition: str,
        names: Sequence[str],
    ) -> list[Entry]:
        """Return the entries that a condition fits, without referrals."""
        connection.search(
            base,
            condition,
            _SCOPES[scope],
            attributes=list(names) or ["1.1"],
            size_limit=MAX_GROUPS,
            time_limit=ANSWER_SECONDS,
        )
        result = connection.result
        if result["result"] not in _ANSWERS:
            raise ProviderError(f"it answers a search with {result['description']}")
        entries: list[Entry] = []
        for found in connection.response or ():
            if found["type"] == "searchResEntry":
                entries.append(_entry(found))
        return entries

    def _profile(self, entry: Entry, groups: tuple[str, ...]) -> Profile:
        provider = self._provider
        email = entry.text(provider.mail_attribute)
        return Profile(
            identifier=entry.dn,
            email=email if email and is_email(email) else None,
            # The organisation vouches for what its own directory says.
            is_email_verified=True,
            first_name=_name(entry, provider.first_name_attribute),
            last_name=_name(entry, provider.last_name_attribute),
            groups=groups,
        )


# What the library raises for servers that are gone, or say what no directory says.
_FAILURES = (LDAPException, PyAsn1Error, OSError, ValueError, TypeError)

_ANSWERS = frozenset({0, 4, 32})
"""Results of searches that are answers: success, more entries than asked for, no such entry."""
_TROUBLE = frozenset({1, 2, 3, 11, 51, 52, 54, 80})
"""Results of binds that are the server's trouble, not the user's."""


def _entry(found: Mapping[str, Any]) -> Entry:
    attributes: dict[str, list[str]] = {}
    for name, values in found["raw_attributes"].items():
        attributes[name.lower()] = [value.decode("utf-8", "replace") for value in values]
    return Entry(found["dn"], attributes)


def _name(entry: Entry, attribute: str) -> str | None:
    text = entry.text(attribute)
    return text[:MAX_NAME_LENGTH] if text else None


def _failed(error: Exception) -> ProviderError:
    # The text of the library names addresses and certificates, never passwords.
    return ProviderError(f"it does not answer properly: {str(error)[:200] or type(error).__name__}")


def _close(connection: Connection) -> None:
    with suppress(*_FAILURES):  # it may be gone already
        connection.unbind()
    # The library leaves the socket of a connection open that it could not make.
    if connection.socket:
        connection.socket.close()

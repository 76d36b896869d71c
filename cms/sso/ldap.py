"""Logins by a directory (LDAP): finding users, checking their passwords, reading their groups."""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ldap3 import BASE, LEVEL, SUBTREE
from ldap3.utils.conv import escape_filter_chars

from cms.config.providers import Provider
from cms.emails import is_email
from cms.sso.ldap_connection import Deadline, close, connect
from cms.sso.profile import MAX_NAME_LENGTH, Profile
from cms.sso.provider_errors import ProviderError

log = logging.getLogger("cms.auth")

ANSWER_SECONDS = 5
MAX_IDLE_CONNECTIONS = 4
MAX_GROUP_DEPTH = 10
MAX_GROUPS = 1_000

_SCOPES = {"base": BASE, "one": LEVEL, "sub": SUBTREE}
_ACCOUNT_DISABLED = 2
"""The bit of Active Directory's userAccountControl."""
_LOCKED_FOR_EVER = "000001010000Z"
_LOCKS = ("nsAccountLock", "loginDisabled")
"""Attributes by which other directories lock accounts; an entry without them is not locked."""
_EXPIRY = "shadowExpire"
"""The day since 1970 from which an account of Unix does not count any more; -1 is none."""
_DAY_SECONDS = 86_400
_FILETIME_EXPIRY = "accountExpires"
"""The end of an account of Active Directory, in units of 100 ns since 1601; 0 is none."""
_FILETIME_SECOND = 10_000_000
_FILETIME_1970 = 11_644_473_600
_STATUS = ("userAccountControl", "pwdAccountLockedTime", _EXPIRY, _FILETIME_EXPIRY, *_LOCKS)
"""Attributes that may say that an account is disabled."""


class DirectoryEntry(NamedTuple):
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
        # The attribute stays when a lock has ended by itself. So only a lock without an end counts
        # here; for others the bind fails.
        if self.text("pwdAccountLockedTime") == _LOCKED_FOR_EVER:
            return True
        # OpenLDAP stores this attribute, but does not refuse the password because of it.
        if _is_past_day(self.text(_EXPIRY)) or _is_past_filetime(self.text(_FILETIME_EXPIRY)):
            return True
        return any((self.text(name) or "").lower() == "true" for name in _LOCKS)


class DirectoryAnswer(NamedTuple):
    """The answer to a login: the DN of a known user, and the profile if the password is right."""

    dn: str | None
    profile: Profile | None


class DirectoryClient:
    """Asks one directory; its connections are kept for the next logins."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._idle: queue.LifoQueue[Any] = queue.LifoQueue(MAX_IDLE_CONNECTIONS)

    def authenticate(self, identifier: str, password: str) -> DirectoryAnswer:
        """Return the directory's answer to an identifier and a password; raises `ProviderError`.

        An unknown identifier takes as many requests as a wrong password.
        """
        # A bind without a password succeeds as nobody (RFC 4513, section 5.1.2), and a zero byte
        # ends the password for some servers.
        if not password or "\0" in password:
            return DirectoryAnswer(None, None)
        deadline = Deadline()
        with self._reading(deadline) as connection:
            entry = self._user(connection, identifier)
            if entry is None:
                # The password is tried on an entry that does not exist.
                self._is_password(f"cn={uuid.uuid4()},{self._provider.user_dn}", password, deadline)
                return DirectoryAnswer(None, None)
            is_right = self._is_password(entry.dn, password, deadline)
            if not is_right or entry.is_disabled:
                return DirectoryAnswer(entry.dn, None)
            groups = self._groups(connection, entry)
        return DirectoryAnswer(entry.dn, self._profile(entry, groups))

    def has_user(self, dn: str) -> bool:
        """Tell whether an entry is there and not disabled; raises `ProviderError`."""
        # The empty name is the directory itself.
        if not dn:
            return False
        with self._reading(Deadline()) as connection:
            entries = self._search(connection, dn, "base", "(objectClass=*)", _STATUS)
        return bool(entries) and not entries[0].is_disabled

    def check(self) -> None:
        """Look at the base of the users, with the rights of the service; raises `ProviderError`."""
        with self._reading(Deadline()) as connection:
            if not self._search(connection, self._provider.user_dn, "base", "(objectClass=*)", []):
                raise ProviderError(f"there is no entry {self._provider.user_dn} to be seen")

    def close(self) -> None:
        """Close the connections that are kept."""
        while not self._idle.empty():
            close(self._idle.get_nowait())

    # Connections

    @contextmanager
    def _reading(self, deadline: Deadline) -> Iterator[Any]:
        """Yield a connection with the rights of the service; it is kept unless something fails."""
        connection = self._idle_connection(deadline) or self._connect(deadline)
        try:
            with deadline.cutting(connection):
                yield connection
        except ProviderError:
            close(connection)
            raise
        try:
            self._idle.put_nowait(connection)
        except queue.Full:
            close(connection)

    def _idle_connection(self, deadline: Deadline) -> Any:
        """Return a connection of an earlier login that still works, or None."""
        while True:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return None
            try:
                # The server may have been started again, or have hung up.
                with deadline.cutting(connection):
                    if connection.search("", "(objectClass=*)", BASE, attributes=["1.1"]):
                        return connection
            except ProviderError as error:
                log.info("A connection to %s is gone: %s.", self._provider.name, error)
            close(connection)

    def _connect(self, deadline: Deadline) -> Any:
        """Return a connection with the rights of the service; raises `ProviderError`."""
        provider = self._provider
        connection = connect(
            provider, deadline, user=provider.bind_dn, password=provider.bind_password
        )
        try:
            with deadline.cutting(connection):
                is_bound = connection.bind(read_server_info=False)
            if not is_bound:
                raise ProviderError("it does not accept BIND_DN with BIND_PASSWORD")
        except ProviderError:
            close(connection)
            raise
        return connection

    def _is_password(self, dn: str, password: str, deadline: Deadline) -> bool:
        """Tell whether a password is right, on a connection of its own."""
        connection = connect(self._provider, deadline, user=dn, password=password)
        try:
            with deadline.cutting(connection):
                is_right = bool(connection.bind(read_server_info=False))
        finally:
            close(connection)
        # Busy, unavailable and so on are no wrong passwords, and must lock nobody out.
        if connection.result["result"] in _TROUBLE:
            raise ProviderError(f"it answers a bind with {connection.result['description']}")
        return is_right

    # Searches

    def _user(self, connection: Any, identifier: str) -> DirectoryEntry | None:
        """Return the one entry of an identifier."""
        provider = self._provider
        condition = f"({provider.user_attribute}={escape_filter_chars(identifier)})"
        names = (
            provider.mail_attribute,
            provider.first_name_attribute,
            provider.last_name_attribute,
            "uid",
            *_STATUS,
        )
        entries = self._search(connection, provider.user_dn, provider.user_scope, condition, names)
        # With two entries it would be unknown whose password it is.
        return entries[0] if len(entries) == 1 else None

    def _groups(self, connection: Any, user: DirectoryEntry) -> tuple[str, ...]:
        """Return the names of a user's groups, and of the groups that these are in."""
        if not self._provider.group_dn:
            return ()
        names: list[str] = []
        seen: set[str] = set()
        members = [self._member_name(user)]
        for _ in range(MAX_GROUP_DEPTH):
            if not members or len(seen) > MAX_GROUPS:
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

    def _groups_of(self, connection: Any, members: Sequence[str]) -> Sequence[DirectoryEntry]:
        provider = self._provider
        attribute = provider.group_attribute
        conditions = [f"({attribute}={escape_filter_chars(member)})" for member in members]
        condition = f"(|{''.join(conditions)})"
        return self._search(connection, provider.group_dn, provider.group_scope, condition, ["cn"])

    def _member_name(self, user: DirectoryEntry) -> str:
        # Groups of the kind posixGroup hold names; all others hold DNs.
        if self._provider.group_attribute.lower() == "memberuid":
            return user.text("uid") or user.dn
        return user.dn

    def _search(
        self,
        connection: Any,
        base: str,
        scope: str,
        condition: str,
        names: Sequence[str],
    ) -> list[DirectoryEntry]:
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
        responses = connection.response or ()
        return [_entry(each) for each in responses if each["type"] == "searchResEntry"]

    def _profile(self, entry: DirectoryEntry, groups: tuple[str, ...]) -> Profile:
        provider = self._provider
        email = entry.text(provider.mail_attribute)
        if email is not None and not is_email(email):
            email = None
        return Profile(
            identifier=entry.dn,
            email=email,
            # The organisation vouches for the addresses in its own directory.
            is_email_verified=True,
            first_name=_name(entry, provider.first_name_attribute),
            last_name=_name(entry, provider.last_name_attribute),
            groups=groups,
        )


_ANSWERS = frozenset({0, 4, 32})
"""Results of searches that are answers: success, more entries than asked for, no such entry."""
_TROUBLE = frozenset({1, 2, 3, 8, 11, 13, 51, 52, 54, 80})
"""Results of binds that are the server's trouble, or that of the settings, not the user's."""


def _entry(response: Mapping[str, Any]) -> DirectoryEntry:
    attributes = {
        name.lower(): [value.decode("utf-8", "replace") for value in values]
        for name, values in response["raw_attributes"].items()
    }
    return DirectoryEntry(response["dn"], attributes)


def _is_past_day(day: str | None) -> bool:
    """Tell whether a day since 1970 has come; false for -1 and for a value that is no number."""
    return day is not None and day.isdecimal() and int(day) <= time.time() // _DAY_SECONDS


def _is_past_filetime(ticks: str | None) -> bool:
    """Tell whether a time of Active Directory has come; false for none, and for no number."""
    if ticks is None or not ticks.isdecimal() or int(ticks) == 0:
        return False
    return int(ticks) / _FILETIME_SECOND - _FILETIME_1970 <= time.time()


def _name(entry: DirectoryEntry, attribute: str) -> str | None:
    text = entry.text(attribute)
    return text[:MAX_NAME_LENGTH] if text else None

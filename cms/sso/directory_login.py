"""Logins by a directory: identifier and password of another server."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cms.auth import factors
from cms.auth.login import count_failure
from cms.auth.sessions import IssuedTokens, Issuer, LoginSource, Mode, invalid_credentials
from cms.config.providers import Provider
from cms.sso import external_login
from cms.sso.external_users import ExternalAccounts
from cms.store.identity import ClientInfo
from cms.store.store import Store

if TYPE_CHECKING:
    from cms.sso.ldap import DirectoryClient


@dataclass(frozen=True, slots=True)
class DirectoryCredentials:
    """The values of a login; `otp` is a code of the service's own second factor."""

    identifier: str
    password: str = field(repr=False)
    otp: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Directory:
    """A provider and the client that asks it."""

    provider: Provider
    client: DirectoryClient


def log_in(
    store: Store,
    issuer: Issuer,
    directory: Directory,
    credentials: DirectoryCredentials,
    *,
    mode: Mode,
    client: ClientInfo,
) -> IssuedTokens:
    """Open a session of a user of the directory.

    A failure counts like that of a login by password. Raises `Refused` INVALID_CREDENTIALS and,
    only if the password was right, USER_SUSPENDED, INVALID_OTP or INVALID_IP; `ProviderError` where
    the directory does not answer.
    """
    accounts = ExternalAccounts(store, directory.provider, client)
    answer = directory.client.authenticate(credentials.identifier, credentials.password)
    existing = accounts.find(answer.dn or "")
    if answer.profile is None or (existing and existing.is_throttled):
        # A random id is no user's: the statement takes its time and counts nothing.
        counted = str(uuid.uuid4())
        if existing and not existing.is_throttled:
            counted = existing.id
        count_failure(store, counted, client)
        raise invalid_credentials()
    account = accounts.account_of(answer.profile)
    external_login.check_status(account)
    if account.tfa_secret is not None:
        if credentials.otp is None:
            raise factors.invalid_otp()
        external_login.check_factor(store, account, credentials.otp, client=client)
    source = LoginSource(directory.provider.name)
    return external_login.log_in(store, issuer, account, source, mode=mode, client=client)

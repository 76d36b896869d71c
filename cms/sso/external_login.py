"""The end of an external login: the password at a directory, the second factor, and the session."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cms.auth import factors, login
from cms.auth.account_transactions import account_attempts
from cms.auth.sessions import (
    IssuedTokens,
    Issuer,
    LoginSource,
    Mode,
    invalid_credentials,
    open_session,
)
from cms.config.providers import Provider
from cms.database.statements import statement
from cms.sso.external_users import ExternalAccount, ExternalAccounts
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


def log_in_by_directory(
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
        login.count_failure(store, counted, client)
        raise invalid_credentials()
    account = accounts.account_of(answer.profile)
    check_status(account)
    if account.tfa_secret is not None:
        check_factor(store, account, credentials.otp, client=client)
    source = LoginSource(directory.provider.name)
    return log_in(store, issuer, account, source, mode=mode, client=client)


def check_status(account: ExternalAccount) -> None:
    """Raise `Refused` for a user who may not log in: USER_SUSPENDED or INVALID_CREDENTIALS."""
    if account.status == login.SUSPENDED:
        raise login.suspended()
    if account.status != "active":
        raise invalid_credentials()


def check_factor(
    store: Store, account: ExternalAccount, code: str | None, *, client: ClientInfo
) -> None:
    """Use up a code of the second factor; raises `Refused` INVALID_OTP, and counts a failure."""
    # While the last administrator is slowed down, no code is right and no failure counts.
    if account.is_throttled:
        raise factors.invalid_otp()
    login.check_factor(store, account.id, account.tfa_secret, code, client=client)


def log_in(
    store: Store,
    issuer: Issuer,
    account: ExternalAccount,
    source: LoginSource,
    *,
    mode: Mode,
    client: ClientInfo,
) -> IssuedTokens:
    """Open a session of a user whom a provider has confirmed; raises `Refused` INVALID_IP."""
    for attempt in account_attempts(store):
        with attempt as transaction:
            # The user may have been suspended since it was read.
            values = (account.id, source.provider)
            if not transaction.execute(statement("record_external_login"), values):
                raise invalid_credentials()
            issued = open_session(
                transaction, issuer, account.id, mode=mode, client=client, source=source
            )
    return issued

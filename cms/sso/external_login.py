"""The end of an external login: the second factor, and the session."""

from __future__ import annotations

from functools import partial

from cms.auth import factors
from cms.auth.login import count_failure, suspended
from cms.auth.sessions import (
    IssuedTokens,
    Issuer,
    LoginSource,
    Mode,
    invalid_credentials,
    open_session,
)
from cms.auth.transactions import in_transaction
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.sso.external_users import ExternalAccount
from cms.store.identity import ClientInfo
from cms.store.store import Store


def check_status(account: ExternalAccount) -> None:
    """Raise `Refused` for a user who may not log in: USER_SUSPENDED or INVALID_CREDENTIALS."""
    if account.status == "suspended":
        raise suspended()
    if account.status != "active":
        raise invalid_credentials()


def check_factor(store: Store, account: ExternalAccount, code: str, *, client: ClientInfo) -> None:
    """Use up a code of the second factor; raises `Refused` INVALID_OTP, and counts a failure."""
    # While the last administrator is slowed down, no code is right and no failure counts.
    if account.is_throttled:
        raise factors.invalid_otp()
    secret = account.tfa_secret
    fetch = store.database.fetch_primary
    if secret is not None and not factors.use_code(fetch, account.id, secret=secret, code=code):
        count_failure(store, account.id, client)
        raise factors.invalid_otp()


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
    return in_transaction(store, partial(_log_in, issuer, account, source, mode, client))


def _log_in(
    issuer: Issuer,
    account: ExternalAccount,
    source: LoginSource,
    mode: Mode,
    client: ClientInfo,
    transaction: Transaction,
) -> IssuedTokens:
    # The user may have been suspended since it was read.
    values = (account.id, source.provider)
    if not transaction.execute(statement("record_external_login"), values):
        raise invalid_credentials()
    return open_session(transaction, issuer, account.id, mode=mode, client=client, source=source)

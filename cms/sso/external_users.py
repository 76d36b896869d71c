"""The users of providers: made at their first login, and kept up to date at the next ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cms.auth.account_transactions import account_attempts, record_activity, user_recorder
from cms.auth.sessions import end_sessions
from cms.auth.user_filters import UserFilters, user_writes
from cms.config.providers import Provider
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import capitalized, invalid_provider
from cms.mappings import without_none
from cms.sso.profile import Profile
from cms.sso.provider_errors import ProviderError, login_refused
from cms.store.identity import ClientInfo
from cms.store.store import Store

log = logging.getLogger("cms.auth")

_OTHER_LOGIN = "the address belongs to an account that logs in otherwise"


class ExternalAccount(NamedTuple):
    """A user of a provider, as a login reads it."""

    id: str
    status: str
    tfa_secret: str | None
    email: str | None
    first_name: str | None
    last_name: str | None
    role: str | None
    is_throttled: bool


def pending_account(store: Store, provider: Provider, user: str) -> ExternalAccount | None:
    """Return the user of a login that waits for its second factor."""
    rows = store.database.fetch_primary(statement("find_pending_account"), (user, provider.name))
    return ExternalAccount(*rows[0]) if rows else None


def end_sessions_of(store: Store, provider: Provider, identifier: str, client: ClientInfo) -> None:
    """End all sessions of a user whom the provider has logged out; of an unknown one none."""
    values = (provider.name, identifier)
    for attempt in account_attempts(store):
        with attempt as transaction:
            for user, *_ in transaction.execute(statement("find_external_account"), values):
                end_sessions(transaction, user)
                record_activity(
                    transaction, "logout", user=user, client=client, comment=provider.name
                )


@dataclass(frozen=True, slots=True)
class ExternalAccounts:
    """The users of one provider, for the request of one client."""

    store: Store
    provider: Provider
    client: ClientInfo

    def account_of(self, profile: Profile) -> ExternalAccount:
        """Return the user of a profile, made or brought up to date as the settings say.

        The identifier alone finds a user, never the address: somebody who has an address at one
        provider need not be its owner here. Raises `Refused`: INVALID_CREDENTIALS for somebody who
        has no account and may get none, INVALID_PROVIDER where the address belongs to an account of
        another kind; and `ProviderError` for a role of the settings that does not exist.
        """
        self._require_own_address(profile)
        account = self.find(profile.identifier)
        if account is None:
            self._create(profile)
        elif account.status == "active":
            self._synchronise(profile, account)
        current = self.find(profile.identifier)
        if current is None:
            raise login_refused(self.provider, "the user was deleted meanwhile")
        return current

    def find(self, identifier: str) -> ExternalAccount | None:
        """Return the user whom the provider knows by an identifier."""
        rows = self.store.database.fetch_primary(
            statement("find_external_account"), (self.provider.name, identifier)
        )
        return ExternalAccount(*rows[0]) if rows else None

    def _require_own_address(self, profile: Profile) -> None:
        """Raise `Refused` for an address that identifies the user, and is not verified."""
        provider = self.provider
        if not provider.require_verified_email or provider.identifier_key != provider.email_key:
            return
        # Somebody who enters another's address into a profile would otherwise log in as that user.
        if not profile.is_email_verified:
            raise login_refused(provider, "the address identifies the user, and is not verified")

    # The first login

    def _create(self, profile: Profile) -> None:
        self._require_registration(profile)
        role = self._role_of(profile)
        self._require_role(role)
        for attempt in user_writes(self.store, verb="create", client=self.client):
            with attempt as transaction:
                self._insert(profile, role, transaction, attempt.filters)

    def _require_registration(self, profile: Profile) -> None:
        """Raise `Refused` for somebody who gets no account."""
        if not self.provider.allow_public_registration:
            raise login_refused(self.provider, "the user is not known, and may not register")
        is_verified = profile.email and profile.is_email_verified
        if self.provider.require_verified_email and not is_verified:
            reason = "the user is not known, and has no verified address"
            raise login_refused(self.provider, reason)
        # If another request of the same user was faster by now, the address is that user's own.
        if self._is_taken(profile.email, None) and self.find(profile.identifier) is None:
            # A person who has not proven to own the address must not learn that there is an
            # account.
            if is_verified:
                raise invalid_provider(f"{capitalized(_OTHER_LOGIN)}.")
            raise login_refused(self.provider, _OTHER_LOGIN)

    def _insert(
        self,
        profile: Profile,
        role: str | None,
        transaction: Transaction,
        filters: UserFilters,
    ) -> None:
        payload = {
            "email": profile.email,
            "first_name": profile.first_name,
            "last_name": profile.last_name,
            "role": role,
            "status": "active",
            "provider": self.provider.name,
        }
        filtered = filters.new(without_none(payload))
        values = (
            self.provider.name,
            profile.identifier,
            filtered.payload.get("email"),
            profile.first_name,
            profile.last_name,
            role,
        )
        # No row if another request of the same user was faster.
        for (user,) in transaction.execute(statement("insert_external_user"), values):
            filtered.set_profile(transaction, user)
            recorder = user_recorder(self.store, transaction, user=user, client=self.client)
            recorder.created([user])

    # The next logins

    def _synchronise(self, profile: Profile, account: ExternalAccount) -> None:
        values = self._synchronised_values(profile, account)
        changes = {name: each for name, each in values.items() if each != getattr(account, name)}
        if not changes:
            return
        if "role" in changes:
            self._require_role(changes["role"])
        for attempt in user_writes(self.store, verb="update", client=self.client):
            with attempt as transaction:
                self._update(account, changes, transaction, attempt.filters)

    def _synchronised_values(
        self, profile: Profile, account: ExternalAccount
    ) -> Mapping[str, str | None]:
        """Return the fields of an account that each login copies, as the settings say."""
        values: dict[str, str | None] = {}
        if self.provider.sync_user_info:
            # Fields that the provider does not send stay as they are.
            names = {"first_name": profile.first_name, "last_name": profile.last_name}
            values.update(without_none(names))
            is_trusted = profile.is_email_verified or not self.provider.require_verified_email
            if profile.email and is_trusted and not self._is_taken(profile.email, account.id):
                values["email"] = profile.email
        # Where groups decide nothing, the role is that of this service.
        if self.provider.role_mapping or self.provider.group_dn:
            values["role"] = self._role_of(profile)
        return values

    def _update(
        self,
        account: ExternalAccount,
        changes: Mapping[str, str | None],
        transaction: Transaction,
        filters: UserFilters,
    ) -> None:
        filtered = filters.changed(account.id, changes)
        users = user_recorder(self.store, transaction, user=account.id, client=self.client)
        # Of two changes at once, only one may take the last administrator's role away.
        transaction.execute(statement("lock_accounts"))
        before = users.before([account.id])
        # Read again, as the row is locked now: other fields may have changed meanwhile.
        values = (account.id, self.provider.name)
        for row in transaction.execute(statement("find_pending_account"), values):
            _change(transaction, ExternalAccount(*row), filtered.payload)
        filtered.set_profile(transaction, account.id)
        users.changed(before)
        filters.queue_runs(account.id, filtered)

    def _role_of(self, profile: Profile) -> str | None:
        """Return the role that the settings give to a user: by mapping, by name, or the default."""
        groups = set(profile.groups)
        for group, role in self.provider.role_mapping.items():
            if group in groups:
                return role
        # Groups of a directory may have the names of roles.
        if self.provider.group_dn and groups:
            rows = self.store.database.fetch_primary(
                statement("find_role_of_groups"), (list(profile.groups),)
            )
            if rows:
                return str(rows[0][0])
        return self.provider.default_role_id

    def _is_taken(self, email: str | None, user: str | None) -> bool:
        """Tell whether an address belongs to another user than this one."""
        rows = self.store.database.fetch_primary(statement("is_email_taken"), (email, user))
        return bool(rows[0][0])

    def _require_role(self, role: str | None) -> None:
        if role is None:
            return
        if not self.store.database.fetch_primary(statement("role_exists"), (role,))[0][0]:
            raise ProviderError(f"its settings name the role {role}, which does not exist")


def _change(
    transaction: Transaction, account: ExternalAccount, changes: Mapping[str, object]
) -> None:
    """Write changes of an account; the last administrator keeps the role."""
    new = ExternalAccount(**{**account._asdict(), **changes})
    _write(transaction, new)
    if not transaction.execute(statement("find_admin"), (None, True)):
        log.warning(
            "User %s is the last administrator and keeps the role, whatever the groups say.",
            account.id,
        )
        _write(transaction, new._replace(role=account.role))


def _write(transaction: Transaction, account: ExternalAccount) -> None:
    values = (account.id, account.email, account.first_name, account.last_name, account.role)
    transaction.execute(statement("update_external_user"), values)

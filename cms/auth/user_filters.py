"""Filter flows of users, before the service itself writes accounts on behalf of a caller.

Fixed statements write registrations and invitations, and the changes by their links. Flows see the
values that these statements are about to write, without secrets. They may refuse them or change the
profile, but not the rights and the address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from cms import jsontext
from cms.access.app_access import OWN_PROFILE_FIELDS
from cms.access.problem_redaction import redacted_problems
from cms.auth.account_transactions import AccountAttempt
from cms.database.connections import Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Problem, Refused, unavailable
from cms.items.write.calls import item_parser_of
from cms.items.write.item_filters import ItemFilter
from cms.items.write.transaction.event_runs import queue_event_runs
from cms.items.write.transaction.executor import Executor
from cms.schema.auto_fields import missing
from cms.schema.model import Collection
from cms.schema.system import USERS
from cms.schema.types.field_type import Trait
from cms.store.attempts import ATTEMPTS
from cms.store.context import RequestContext
from cms.store.current_version import current_version
from cms.store.idempotency import Idempotency, find_stored_answer, lock_key, store_answer
from cms.store.identity import ANONYMOUS, ClientInfo
from cms.store.snapshot import Snapshot
from cms.store.store import Store

PROFILE_FIELDS = frozenset(OWN_PROFILE_FIELDS) - {"password", "avatar"}
"""The fields of an account that flows may set when the service writes it."""

_NO_CHANGES: Mapping[str, object] = {}


class UserFilters(NamedTuple):
    """The flows that wait for a write of users, in its transaction; without `executor` none do."""

    executor: Executor | None = None

    def new(self, payload: Mapping[str, object]) -> FilteredUser:
        """Return a new user as flows change it; raises `Refused` if a flow refuses it."""
        return self._filtered(payload, (), verb="create")

    def changed(self, user: str, payload: Mapping[str, object]) -> FilteredUser:
        """Return the change of a user as flows change it."""
        return self._filtered(payload, [user], verb="update")

    def queue_runs(self, user: str, change: FilteredUser) -> None:
        """Queue the runs of action flows that wait for the change of a user."""
        executor = self.executor
        if executor:
            users = executor.context.snapshot.catalogue.collections[USERS]
            data = {"payload": {**change.payload, **change.profile}, "keys": [user]}
            queue_event_runs(executor, users, verb="update", data=data)

    def _filtered(
        self, payload: Mapping[str, object], keys: Sequence[str], *, verb: str
    ) -> FilteredUser:
        if self.executor is None:
            return FilteredUser(payload)
        context = self.executor.context
        users = context.snapshot.catalogue.collections[USERS]
        events = context.snapshot.events.of(USERS)
        # No rights are checked: the client is not logged in, and the service writes the row for it.
        filters = ItemFilter(self.executor, users, events, checks_rights=False)
        item = filters.item(payload, verb=verb, keys=keys)
        profile = {
            name: value
            for name, value in item.items()
            if name not in payload or value != payload[name]
        }
        # Values that a flow leaves out are not written; values that flows cannot decide stay. -
        # binds closer than &: profile fields that were sent and that the flow has removed.
        left_out = PROFILE_FIELDS & payload.keys() - item.keys()
        profile.update(dict.fromkeys(left_out))
        email = _same_email(payload, profile)
        _require_profile(profile)
        return FilteredUser({**payload, **email}, _stored_values(context, profile))


class FilteredUser(NamedTuple):
    """The payload of a user as it is to be written, and the changes of the profile by flows."""

    payload: Mapping[str, object]
    profile: Mapping[str, object] = _NO_CHANGES

    def set_profile(self, transaction: Transaction, user: str) -> None:
        """Write the changes of the profile; nothing happens for a user who does not exist."""
        if self.profile:
            profile = jsontext.dumps(self.profile).decode()
            transaction.execute(statement("set_profile"), (user, profile))


def user_writes(
    store: Store, *, verb: str, client: ClientInfo, idempotency: Idempotency | None = None
) -> Iterator[UserWrite]:
    """Yield attempts at a write of users for a client who is not logged in.

        for attempt in user_writes(store, verb="create", client=client):
            with attempt as transaction:
                user = attempt.filters.new(payload)

    `verb` says whether the write creates or updates a user. There is no attempt where the call was
    answered before.
    """
    # Without flows neither structure nor rights are loaded. Each registration moves their counter,
    # so that they would have to be loaded anew every time.
    for attempts_left in reversed(range(ATTEMPTS)):
        flows = current_version(store.database.fetch_primary).flows
        context = None
        if _has_flows(store.primary_snapshot(flows), verb):
            for read in store.primary_reads(ANONYMOUS.with_client(client)):
                with read as context:
                    pass
        attempt = UserWrite(store, client, idempotency, context, is_last=attempts_left == 0)
        if attempt.begin():
            yield attempt
        if attempt.is_done:
            return
    raise unavailable("database", "The flows of users keep changing")


class UserWrite(AccountAttempt):
    """An attempt at a write of users, with the flows that wait for it; `context` is there for them.

    Once it is done, another call with the same Idempotency-Key writes nothing.
    """

    def __init__(
        self,
        store: Store,
        client: ClientInfo,
        idempotency: Idempotency | None,
        context: RequestContext | None,
        *,
        is_last: bool,
    ) -> None:
        if context is None:
            super().__init__(store, is_last=is_last)
        else:
            # Flows that have changed meanwhile are loaded again.
            super().__init__(store, is_last=False, retriable=Stale)
        self.filters = UserFilters()
        self._client = client
        self._idempotency = idempotency
        self._context = context

    def _prepare(self, stack: ExitStack, transaction: Transaction) -> bool:
        if self._context:
            stack.enter_context(redacted_problems(self._context.actor.policy))
        if self._idempotency:
            # Nobody is logged in, so the key belongs to the client's address.
            caller = ANONYMOUS.with_client(self._client).name
            lock_key(transaction, caller, self._idempotency)
            if find_stored_answer(transaction, caller, self._idempotency):
                return False
            stack.enter_context(_stored_when_done(transaction, caller, self._idempotency))
        if self._context:
            # Not the counter of rights: many registrations at once would keep each other from being
            # done. Operations of flows compare it themselves.
            if current_version(transaction.execute).flows != self._context.snapshot.version.flows:
                raise Stale("flows have changed")
            self.filters = user_filters(self.store, self._client, transaction, self._context)
        return True


@contextmanager
def _stored_when_done(
    transaction: Transaction, caller: str, idempotency: Idempotency
) -> Iterator[None]:
    yield
    store_answer(transaction.execute, caller, idempotency, None)


def _has_flows(snapshot: Snapshot, verb: str) -> bool:
    events = snapshot.events.of(USERS)
    # `Recorder.created` finds the action flows of new users itself.
    return bool(events.filters(verb) or (verb == "update" and events.actions(verb)))


def user_filters(
    store: Store, client: ClientInfo, transaction: Transaction, context: RequestContext
) -> UserFilters:
    """Return the flows that wait for users, as of the context of a transaction."""
    in_transaction = context._replace(fetch=transaction.execute)
    return UserFilters(Executor(store, in_transaction, transaction, client))


def _same_email(payload: Mapping[str, object], changes: dict[str, object]) -> Mapping[str, object]:
    """Remove the address from the changes and return it, if only its case is not the sent one's."""
    sent = payload.get("email")
    email = changes.get("email")
    if isinstance(sent, str) and isinstance(email, str) and email.lower() == sent.lower():
        return {"email": changes.pop("email")}
    return {}


def _require_profile(changes: Mapping[str, object]) -> None:
    for name in changes:
        if name not in PROFILE_FIELDS:
            reason = f'A flow may not set "{name}" here'
            raise Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))


def _stored_values(context: RequestContext, profile: Mapping[str, object]) -> dict[str, object]:
    """Return values of a profile as the statement `set_profile` takes them, checked."""
    catalogue = context.snapshot.catalogue
    users = catalogue.collections[USERS]
    parser = item_parser_of(catalogue, users, PROFILE_FIELDS, knows=lambda name: False)
    parsed = parser.read(profile)
    # The database must refuse nothing: it is asked for addresses without an account only.
    nulls = [users.fields[name] for name, value in parsed.values.items() if value is None]
    problems = [*parsed.problems, *(missing(field) for field in nulls if not field.takes_null)]
    if problems:
        raise Refused(problems)
    return {name: _json_value(users, name, value) for name, value in parsed.values.items()}


def _json_value(users: Collection, name: str, value: str | None) -> object:
    if value is not None and Trait.JSON in users.fields[name].type.traits:
        return jsontext.loads_stored(value)
    return value

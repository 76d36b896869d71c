"""Filter flows of users, before the service itself writes accounts on behalf of a caller.

Fixed statements write registrations and invitations, and the changes by their links. Flows see the
values that these statements are about to write, without secrets. They may refuse them or change the
profile, but not the rights and the address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from cms import jsontext
from cms.access.app_access import OWN_PROFILE_FIELDS
from cms.access.problem_redaction import redacted_problems
from cms.auth.transactions import in_idempotent_transaction
from cms.database.connections import Transaction
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Problem, Refused, unavailable
from cms.items.write.item_filters import ItemFilter
from cms.items.write.parse.item_parsers import item_parser_of
from cms.items.write.transaction.event_runs import queue_event_runs
from cms.items.write.transaction.executor import Executor
from cms.schema.auto_fields import missing, takes_null
from cms.schema.model import Collection
from cms.schema.system import USERS
from cms.schema.types.field_type import Trait
from cms.store.attempts import ATTEMPTS
from cms.store.context import RequestContext
from cms.store.current_version import current_version
from cms.store.idempotency import Idempotency
from cms.store.identity import ANONYMOUS, ClientInfo
from cms.store.snapshot import Snapshot
from cms.store.store import Store

T = TypeVar("T")

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
        profile: dict[str, object] = {}
        for name, value in item.items():
            if name not in payload or value != payload[name]:
                profile[name] = value
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


UserWork = Callable[[Transaction, UserFilters], None]
"""The work of a call on accounts in its transaction."""


def write_user(
    store: Store,
    work: UserWork,
    *,
    verb: str,
    client: ClientInfo,
    idempotency: Idempotency | None = None,
) -> None:
    """Do the work of a client who is not logged in, with the flows of users in its transaction.

    `verb` says whether the work is a create or an update of a user.
    """
    # Without flows neither structure nor rights are loaded. Each registration moves their counter,
    # so that they would have to be loaded anew every time.
    in_transaction = partial(
        in_idempotent_transaction, store, client=client, idempotency=idempotency
    )
    for _ in range(ATTEMPTS):
        flows = current_version(store.database.fetch_primary).flows
        if not _has_flows(store.primary_snapshot(flows), verb):
            in_transaction(lambda transaction: work(transaction, UserFilters()))
            return
        identity = ANONYMOUS.with_client(client)
        for attempt in store.primary_reads(identity):
            with attempt as context:
                pass
        try:
            with redacted_problems(context.actor.policy):
                in_transaction(partial(_run_with_flows, store, client, work, context))
            return
        except Stale:
            continue
    raise unavailable("database", "The flows of users keep changing")


def _has_flows(snapshot: Snapshot, verb: str) -> bool:
    events = snapshot.events.of(USERS)
    # `Recorder.created` finds the action flows of new users itself.
    return bool(events.filters(verb) or (verb == "update" and events.actions(verb)))


def _run_with_flows(
    store: Store,
    client: ClientInfo,
    work: UserWork,
    context: RequestContext,
    transaction: Transaction,
) -> None:
    # Not the counter of rights: many registrations at once would keep each other from being done.
    # Operations of flows compare it themselves.
    if current_version(transaction.execute).flows != context.snapshot.version.flows:
        raise Stale("flows have changed")
    work(transaction, user_filters(store, client, transaction, context))


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
    problems: list[Problem] = []
    for name, value in parsed.values.items():
        if value is None and not takes_null(users.fields[name]):
            problems.append(missing(users.fields[name]))
    if parsed.problems or problems:
        raise Refused([*parsed.problems, *problems])
    return {name: _json_value(users, name, value) for name, value in parsed.values.items()}


def _json_value(users: Collection, name: str, value: str | None) -> object:
    if value is not None and Trait.JSON in users.fields[name].type.traits:
        return jsontext.loads_stored(value)
    return value

"""Transactions of calls on accounts, and what the history keeps of them.

Most of these calls come from clients who are not logged in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from cms.database.connections import Transaction
from cms.database.error_mapping import Deadlock, Stale
from cms.database.statements import statement
from cms.items.history.recording import Recorder, recorder
from cms.schema.system import USERS
from cms.store.identity import ClientInfo
from cms.store.store import Store

DEADLOCK_ATTEMPTS = 3


def account_attempts(store: Store) -> Iterator[AccountAttempt]:
    """Yield attempts at work in a transaction, until one ends without a deadlock.

    Not by `Store.write`: these calls have no caller whose rights and snapshot would be compared.
    """
    for attempts_left in reversed(range(DEADLOCK_ATTEMPTS)):
        attempt = AccountAttempt(store, is_last=attempts_left == 0)
        if attempt.begin():
            yield attempt
        if attempt.is_done:
            return


class AccountAttempt:
    """An attempt at the work of a call on accounts: the value of its block is the transaction.

    An error that another attempt may not meet ends its block only, except in the last attempt.
    """

    def __init__(self, store: Store, *, is_last: bool, retriable: type[Stale] = Deadlock) -> None:
        self.store = store
        self.is_done = False
        """Whether its work is committed, or was done by a call before."""
        self._is_last = is_last
        self._retriable = retriable

    def begin(self) -> bool:
        """Begin the transaction; tell whether the block is to run."""
        with ExitStack() as stack:
            stack.enter_context(self._without_retriable_errors())
            self._transaction = stack.enter_context(self.store.database.transaction())
            if self._prepare(stack, self._transaction):
                self._stack = stack.pop_all()
                return True
        return False

    def _prepare(self, stack: ExitStack, transaction: Transaction) -> bool:
        """Do what comes before the block; false where there is nothing left to do."""
        return True

    @contextmanager
    def _without_retriable_errors(self) -> Iterator[None]:
        try:
            yield
        except self._retriable:
            if self._is_last:
                raise
        else:
            self.is_done = True

    def __enter__(self) -> Transaction:
        return self._transaction

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return bool(self._stack.__exit__(kind, error, trace))


def record_activity(
    transaction: Transaction,
    action: str,
    *,
    user: str,
    client: ClientInfo,
    comment: str | None = None,
) -> None:
    """Record an action of a user on their own account as activity; a login is an event of flows."""
    # The user is the author, and the item as well.
    values = (action, *client.author(user), user, comment)
    transaction.execute(statement("record_account_activity"), values)
    if action == "login":
        transaction.execute(statement("queue_login_runs"), (user, client.ip))


def user_recorder(
    store: Store, transaction: Transaction, *, client: ClientInfo, user: str | None = None
) -> Recorder:
    """Return a recorder of changes of users, for clients who are not logged in.

    `user` is the author of the changes: None where nobody has proven to be that user.
    """
    # Such calls have no context with a catalogue; that of the process has all system tables.
    catalogue = store.snapshots.current().catalogue
    return recorder(transaction, catalogue, USERS, user=user, client=client)

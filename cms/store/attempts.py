"""Attempts at the work of a request, which is done again when structure or rights have changed.

The caller iterates over the attempts, and does the work in the block of each:

    for attempt in store.reads(identity):
        with attempt as context:
            answer = answer_list(store, context, request)
    return answer

An error that another attempt may not meet ends its block only, and the loop goes round again. The
block must not return: what ends an attempt, such as a commit, can still fail.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple

from cms.database.connections import Database, Fetch
from cms.database.error_mapping import Deadlock, Stale, UndefinedName, UnexpectedError
from cms.database.reader import Reader
from cms.errors import Refused, unavailable
from cms.schema.model import Version
from cms.store.actors import find_actor
from cms.store.context import RequestContext
from cms.store.counters import check_version, lock_version
from cms.store.current_version import current_version
from cms.store.identity import Identity
from cms.store.refusals import with_inquiry
from cms.store.snapshot import Snapshot, Snapshots

ATTEMPTS = 5
"""Attempts at work before it is refused because structure or rights keep changing."""

RETRIABLE = (Stale, Refused, UnexpectedError)
"""Errors that may be those of old structure or rights."""


class _StaleRefusal(NamedTuple):
    """The counters under which a statement was refused, and PostgreSQL's message."""

    version: Version
    message: str


@dataclass(slots=True)
class Retries:
    """The retries of one piece of work: which errors another attempt may not meet.

    A refusal, by the service or by PostgreSQL, counts only if the counters are still those of the
    snapshot. They only grow: if they are the same after the work was undone, they have been the
    same all the time.
    """

    database: Database
    snapshots: Snapshots
    _fetch: Fetch
    deadlocked: bool = False
    """Whether an attempt ended in a deadlock; the next ones take turns with others."""
    _last_error: _StaleRefusal | None = None

    def retry_after(self, error: Exception, snapshot: Snapshot, *, locked: bool) -> None:
        """Return if another attempt may help, with newer structure and rights; else raise.

        `locked` tells that the counters were locked, so that structure and rights were current.
        """
        if isinstance(error, Deadlock):
            # A deadlock says nothing of the snapshot, which stays.
            self.deadlocked = True
            return
        if isinstance(error, Stale):
            # Raised by the statement itself, so that there is no need to ask for the counters.
            self._refuse_repeated(error, snapshot)
        elif self.is_final(error, snapshot, locked=locked):
            if isinstance(error, Refused) and error.inquiry:
                error = with_inquiry(error, self.database.run_primary)
            raise error
        self.snapshots.refresh(snapshot)

    def _refuse_repeated(self, stale: Stale, snapshot: Snapshot) -> None:
        """Raise `Refused` for an error that is the same after the structure was loaded again."""
        # Other counters, or a plan that became invalid, are different with the next snapshot.
        if not isinstance(stale, UndefinedName):
            self._last_error = None
            return
        error = _StaleRefusal(snapshot.version, str(stale))
        # The same name is missing under the same structure, so that no attempt would help.
        if error == self._last_error:
            raise unavailable("database", f"It refuses the statement: {stale}") from stale
        self._last_error = error

    def is_final(self, error: Exception, snapshot: Snapshot, *, locked: bool) -> bool:
        """Tell whether an error counts, because structure and rights were current."""
        # The counters are asked last: under a lock they are known, and a database that does not
        # answer must not be asked.
        if locked or is_unavailable(error):
            return True
        return current_version(self._fetch) == snapshot.version


def is_unavailable(refusal: Exception) -> bool:
    """Tell whether the work cannot be done now, whatever the structure is."""
    return isinstance(refusal, Refused) and refusal.is_unavailable


class Attempt:
    """One attempt at the work of a request: the value of its block is the context of the request.

    `is_done` tells that the block has ended well, and that what ends the attempt has too.
    """

    __slots__ = ("_locked", "_retries", "_snapshot", "_stack", "context", "identity", "is_done")

    def __init__(
        self, retries: Retries, identity: Identity, snapshot: Snapshot, *, locked: bool
    ) -> None:
        self._retries = retries
        self.identity = identity
        self._snapshot = snapshot
        self._locked = locked
        self._stack = ExitStack()
        self.context: RequestContext | None = None
        self.is_done = False

    def begin(self) -> bool:
        """Find the caller, under the locks of this attempt; tell whether its block is to run."""
        try:
            self.context = self._open()
        except BaseException as error:
            if self.__exit__(type(error), error, error.__traceback__):
                return False
            raise
        if self.context is None:
            self.__exit__(None, None, None)
            return False
        return True

    def __enter__(self) -> RequestContext:
        assert self.context, "an attempt that did not begin"
        return self.context

    def __exit__(
        self, kind: object, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            self._end(error)
        except BaseException as raised:
            if raised is not error:
                raise raised.with_traceback(None)  # noqa: B904 - its cause is known already
            return False
        finally:
            # Frames of `_end` refer to the error: in its traceback they would keep each other, and
            # the request, until the garbage collector comes by.
            if error is not None:
                error.__traceback__ = trace
        return True

    def _end(self, error: BaseException | None) -> None:
        """End what the attempt has begun; raise its error, unless another attempt may help."""
        try:
            # A transaction is committed at the end of this block, and rolled back by an error.
            with self._stack:
                if error is not None:
                    raise error
                self._finish()
        except RETRIABLE as failure:
            self._retry_after(failure)
        else:
            self.is_done = True

    def _open(self) -> RequestContext | None:
        """Return the context of the work; None where there is nothing left to do."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Do what belongs to the work, after its block."""

    def _retry_after(self, failure: Exception) -> None:
        """Return where another attempt may help, else raise."""
        self._retries.retry_after(failure, self._snapshot, locked=self._locked)


class ReadAttempt(Attempt):
    """An attempt at a read.

    Statements of reads select the counters; `compares_version` is for those that do not.
    """

    __slots__ = ("compares_version", "reader")

    reader: Reader
    compares_version: bool

    def _open(self) -> RequestContext:
        fetch: Fetch = self.reader.fetch
        if self._locked:
            database = self._retries.database
            transaction = self._stack.enter_context(database.transaction())
            self._snapshot = lock_version(transaction, self._snapshot, "share_version")
            # Else the transaction is there for its lock only. From its own pool a second connection
            # might never come.
            if self.reader is database.primary:
                fetch = transaction.execute
        actor = find_actor(self._snapshot, self.identity, fetch)
        return RequestContext(self._snapshot, actor, fetch, self.reader, self.identity)

    def _finish(self) -> None:
        if self.compares_version and self.context:
            check_version(self._snapshot, current_version(self.context.fetch))

"""A run under way, as its operations see it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from cms.config import Config
from cms.database.connections import Fetch, Transaction
from cms.flows.definition.options import Options
from cms.flows.redaction import Secrets
from cms.flows.scripts.script_pool import ScriptPool
from cms.processes.slots import WaitSlots
from cms.store.context import RequestContext
from cms.store.current_version import current_version
from cms.store.identity import ANONYMOUS, Identity
from cms.store.snapshot import Snapshot, load_snapshot
from cms.store.store import Store

MAX_LOG_LINES = 200
"""Lines that one step may add to the log of its run; what follows is left out."""
MAX_INNER_RUNS = 1_000
"""Runs of other flows that one run may cause by its operations, at any depth."""

INNER_RUNS_SPENT = f"A run runs other flows {MAX_INNER_RUNS} times at most"


class Rejected(Exception):
    """An operation was not successful; `result` is the result of the rejection.

    A failure that may pass (`is_transient`) is worth another attempt of the whole run. `reason` is
    the reason for caller and log if something other than the operation has caused the failure.
    """

    def __init__(
        self, result: object, *, is_transient: bool = False, reason: str | None = None
    ) -> None:
        super().__init__(reason or str(result))
        self.result = result
        self.is_transient = is_transient
        self.reason = reason

    @classmethod
    def because(cls, reason: str) -> Rejected:
        """Return the rejection of a run that cannot go on."""
        return cls({"message": reason}, reason=reason)


class Unmet(Rejected):
    """A condition that does not hold."""


class ProcessBusy(Rejected):
    """Too many operations of the process wait already: the run ends, in spite of any `reject`."""

    def __init__(self) -> None:
        reason = "Too many runs are waiting; try again later"
        super().__init__({"message": f"{reason}."}, is_transient=True, reason=reason)


@dataclass(slots=True)
class RunLimits:
    """The limits of one run, which it shares with the runs inside it.

    `max_seconds` counts from now, without the `seconds_spent` before; it is infinite for a run that
    nobody waits for. `subject` begins the message about the exceeded time.
    """

    max_seconds: float = math.inf
    inner_runs_left: int = MAX_INNER_RUNS
    seconds_spent: float = 0.0
    subject: str = "The flow takes"
    _deadline: float = math.inf

    def __post_init__(self) -> None:
        self._deadline = time.monotonic() + self.max_seconds - self.seconds_spent

    @classmethod
    def for_caller(cls, max_duration: timedelta) -> RunLimits:
        """Return the limits of a run that a caller waits for."""
        return cls(max_duration.total_seconds())

    @classmethod
    def for_write(cls, max_duration: timedelta, seconds_spent: float) -> RunLimits:
        """Return the limits of a filter flow, less the time that others of its write have taken."""
        subject = "The filter flows of the write take"
        return cls(max_duration.total_seconds(), seconds_spent=seconds_spent, subject=subject)

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    @property
    def is_over(self) -> bool:
        return self.seconds_left <= 0

    @property
    def reason(self) -> str:
        """The reason for the end of a run that has reached its deadline."""
        return f"{self.subject} longer than {self.max_seconds:g} seconds."


@dataclass(frozen=True, slots=True)
class OperationType:
    """A type of operations: its options, and the function that does one of them.

    One that `may_wait` for long takes a slot of its process, if a caller waits for the run. One
    that `sees_run` looks at the values of the run without templates.
    """

    options: Options
    run: OperationFunction
    may_wait: bool = False
    sees_run: bool = True


@dataclass(frozen=True, slots=True)
class Services:
    """The collaborators that operations share in a process, and their types.

    `wait_slots` are those of a process whose callers wait for runs; a worker has none.
    """

    store: Store
    config: Config
    operations: Mapping[str, OperationType]
    wait_slots: WaitSlots | None = None
    scripts: ScriptPool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scripts", ScriptPool(self.config))


class OpenTransaction(NamedTuple):
    """The transaction that a filter flow runs in, and the context of the write."""

    transaction: Transaction
    context: RequestContext

    def current_snapshot(self) -> Snapshot:
        """Return the snapshot of the write, or a newer one with the changes of the transaction.

        Without it a flow that changes rights or flows would find the write out of date, at every
        attempt. Other requests must not see such a snapshot: nothing in it is committed.
        """
        snapshot = self.context.snapshot
        if current_version(self.transaction.execute) == snapshot.version:
            return snapshot
        return load_snapshot(self.transaction)


class RunContext(NamedTuple):
    """The context of a run, and of the runs inside it.

    Flows that operations run are those of the snapshot. `transaction` is that of a filter flow.
    `may_stop` is that of the run which this one is a part of, if any. `run` is the id of a run that
    may have several attempts, which are counted from 1.
    """

    snapshot: Snapshot
    limits: RunLimits
    transaction: OpenTransaction | None = None
    secrets: Secrets | None = None
    may_stop: bool | None = None
    attempt: int = 1
    run: str | None = None


@dataclass(slots=True)
class Run:
    """One run of a flow.

    `values` are what templates look up. `identity` is who caused the run: a user, nobody, or the
    service itself. `transaction` is set in filter flows: everything that an operation reads or
    writes then happens inside it. `attempt` counts from 1, `depth` from 0 for a run that no other
    run has caused.
    """

    services: Services
    flow: str
    identity: Identity
    values: dict[str, object]
    attempt: int = 1
    depth: int = 0
    id: str | None = None
    """The same at every attempt; None for a run that has only one."""
    transaction: OpenTransaction | None = None
    operation: str | None = None
    """The id of the operation that runs."""
    lines: list[str] = field(default_factory=list)
    snapshot: Snapshot | None = None
    """The snapshot in which the flow was found; None for a run that runs no other flow."""
    limits: RunLimits = field(default_factory=RunLimits)
    secrets: Secrets = field(default_factory=Secrets)
    """The secrets that the logs of the run, and of the runs inside it, mask."""
    may_stop: bool = False
    """Whether a condition that does not hold ends the run without a rejection."""

    def log(self, line: str) -> None:
        """Add a line to the log of the step that runs."""
        if len(self.lines) < MAX_LOG_LINES:
            self.lines.append(line)

    @property
    def user(self) -> str | None:
        """The user who caused the run, None for nobody and for the service itself."""
        return self._accountability("user")

    @property
    def role(self) -> str | None:
        return self._accountability("role")

    def _accountability(self, name: str) -> str | None:
        accountability = self.values.get("$accountability")
        if not isinstance(accountability, Mapping):
            return None
        return accountability.get(name)

    @property
    def fetch(self) -> Fetch:
        """Runs statements: in a filter flow in the transaction of the write.

        A second connection could wait for ever for those who wait for this transaction.
        """
        if self.transaction:
            return self.transaction.transaction.execute
        return self.services.store.database.fetch_primary

    @contextmanager
    def open_transaction(self) -> Iterator[Transaction]:
        """Yield a transaction of one operation: its own, or a part of the filter flow's."""
        if self.transaction is None:
            with self.services.store.database.transaction() as transaction:
                yield transaction
            return
        transaction = self.transaction.transaction
        # If an operation rejects, its writes are undone, and the flow may go on.
        with transaction.savepoint():
            yield transaction

    def identity_for(self, permissions: object, *, emits_events: bool = True) -> Identity:
        """Return whose rights an operation uses, by its option `permissions`; None is `$trigger`.

        Writes under it cause runs one level deeper, or none without `emits_events`.
        """
        depth = self.depth + 1 if emits_events else None
        # The depth travels with the client, to the write and to the runs that its events cause.
        client = self.identity.client._replace(depth=depth)
        match permissions:
            case None | "$trigger":
                return self.identity._replace(client=client)
            case "$public":
                return ANONYMOUS.with_client(client)
            case "$full":
                return Identity(is_service=True, client=client)
            # The rights of a role, without a user: `$CURRENT_USER` is nobody.
            case role:
                return Identity(role=str(role), client=client)


RenderedOptions = Mapping[str, Any]
"""The options of an operation by name, with values in the place of templates."""

OperationFunction = Callable[[RenderedOptions, Run], object]
"""Does one operation with its rendered options; returns its result, or raises `Rejected`."""

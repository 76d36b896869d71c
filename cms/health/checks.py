"""The checks of health: each with the function that asks a part, and how fast that should be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import NamedTuple
from uuid import uuid4

from cms.config import Config
from cms.config.providers import LDAP, OPENID, Provider
from cms.config.secret_file import secret_of
from cms.database.connections import Database
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import UNEXPECTED_ERROR, Refused
from cms.files.storage import Storage, Storages
from cms.jobs.housekeeping import queue_depth, queue_state
from cms.jobs.task import JobError
from cms.mail.smtp import probe
from cms.rate_limits.counters import RedisLost
from cms.sso.provider_clients import reach_provider
from cms.sso.provider_errors import ProviderError
from cms.store.refusals import refusal_of_stale
from cms.store.store import Store

log = logging.getLogger("cms")

OK = "ok"
WARN = "warn"
ERROR = "error"

Report = dict[str, object]
"""The status of a part, the time of its answer in milliseconds, and further details."""

DATABASE_MS = 150
QUEUE_MS = 150
STORAGE_MS = 750
MAIL_MS = 750
PROVIDER_MS = 1500
REDIS_MS = 50

_PROBE = b"a health check"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check; a part with a `warning` answers, but not as it should."""

    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one part; a part that takes longer than `threshold_ms` is reported as slow.

    `run` raises the error of the part's module when the part does not answer; None means that there
    is nothing to add.
    """

    run: Callable[[], CheckResult | None]
    threshold_ms: int


class Part(NamedTuple):
    """A check, the name of its part, and which one it is where there are several."""

    name: str
    which: str | None
    check: Check


def report_of(check: Check) -> Report:
    """Run a check, and return its report."""
    began = time.perf_counter()
    result = CheckResult()
    status = ERROR
    try:
        result = check.run() or result
    except Exception as error:
        reason: str | None = _reason(error)
    else:
        status = OK
        reason = result.warning
        if reason:
            status = WARN
    milliseconds = round((time.perf_counter() - began) * 1000, 1)
    if status == OK and milliseconds > check.threshold_ms:
        status = WARN
        reason = "It answers slowly"
    report: Report = {"status": status, "ms": milliseconds, "threshold_ms": check.threshold_ms}
    report.update(result.facts)
    if reason:
        report["reason"] = reason
    return report


def _reason(error: Exception) -> str:
    """Return why a part does not answer, in words without a secret."""
    match error:
        case Refused():
            return error.problems[0].message
        case Stale():
            return refusal_of_stale(error).problems[0].message
        case JobError() | ProviderError() | RedisLost():
            return str(error)
        case _:
            log.error("unexpected fault in a health check", exc_info=error)
            return UNEXPECTED_ERROR


def database_check(store: Store) -> Check:
    """Return the check of the database, without which nothing else can be served."""
    return Check(partial(_check_database, store.database), DATABASE_MS)


def other_parts(config: Config, store: Store, storages: Storages) -> Iterator[Part]:
    """Yield the other parts that the settings name."""
    yield Part("queue", None, Check(partial(_check_queue, store.database), QUEUE_MS))
    for storage in storages.values():
        yield Part("storage", storage.name, Check(partial(check_storage, storage), STORAGE_MS))
    if config.email_transport == "smtp":
        yield Part("mail", None, Check(partial(probe, config), MAIL_MS))
    # Redis counts requests, and with a replica it knows who has written.
    if config.redis and (config.rate_limiter_enabled or config.database_read_url):
        yield Part("redis", None, Check(partial(_check_redis, config.redis), REDIS_MS))
    for provider in config.providers:
        # The others have nothing that could be asked without a login.
        if provider.driver in (OPENID, LDAP):
            check = Check(partial(_check_provider, provider, config, store), PROVIDER_MS)
            yield Part("providers", provider.name, check)


def _check_database(database: Database) -> None:
    # The smallest statement that needs the tables of the service: it fails without migrations.
    database.fetch(statement("find_version"))
    if database.has_replica:
        # The statement before asked the replica, and each read needs the primary as well.
        database.fetch_primary(statement("find_version"))


def _check_queue(database: Database) -> CheckResult:
    with database.transaction() as transaction:
        state = queue_state(transaction)
    depth = queue_depth(database)
    facts = {
        "jobs": depth.jobs,
        "oldest_seconds": round(depth.oldest_seconds, 1),
        "failed": state.failed,
        "workers": state.workers,
    }
    warning = "Jobs wait and no worker runs" if depth.jobs and not state.workers else None
    return CheckResult(facts, warning)


def check_storage(storage: Storage) -> CheckResult:
    # A name like those of contents: `cms maintain` removes it if this process is killed.
    path = f"{uuid4()}.tmp"
    storage.put(path, [_PROBE])
    try:
        content = b"".join(storage.get(path))
    finally:
        storage.delete([path])
    if content != _PROBE:
        return CheckResult(warning="It returns other bytes than it was sent")
    return CheckResult()


def _check_redis(address: str) -> None:
    # Only here: its library is an extra.
    from cms.rate_limits.redis_counters import RedisCounters

    RedisCounters(address).ping()


def _check_provider(provider: Provider, config: Config, store: Store) -> None:
    reach_provider(provider, config, store, secret_of(config))

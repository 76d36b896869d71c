"""A check of one part of the service, and its report."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cms.database.error_mapping import Stale
from cms.errors import UNEXPECTED_ERROR, Refused
from cms.jobs.task import JobError
from cms.rate_limits.counters import RedisLost
from cms.sso.provider_errors import ProviderError
from cms.store.refusals import refusal_of_stale

log = logging.getLogger("cms")

OK = "ok"
WARN = "warn"
ERROR = "error"

Report = dict[str, object]
"""The status of a part, the time of its answer in milliseconds, and further details."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check; a part with a `warning` answers, but not as it should."""

    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one part; a part that takes longer than `threshold_ms` is reported as slow.

    `run` raises the error of the part's module when the part does not answer.
    """

    run: Callable[[], CheckResult]
    threshold_ms: int


def report_of(check: Check) -> Report:
    """Run a check, and return its report."""
    began = time.perf_counter()
    result = CheckResult()
    status = ERROR
    try:
        result = check.run()
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

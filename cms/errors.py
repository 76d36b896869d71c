"""Every way in which the service says no: a code, a status and a sentence (decisions, section 2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

STATUS: Mapping[str, int] = MappingProxyType(
    {
        "INVALID_QUERY": 400,
        "INVALID_PAYLOAD": 400,
        "INVALID_FOREIGN_KEY": 400,
        "RECORD_NOT_UNIQUE": 400,
        "NOT_NULL_VIOLATION": 400,
        "VALUE_TOO_LONG": 400,
        "VALUE_OUT_OF_RANGE": 400,
        "CONTAINS_NULL_VALUES": 400,
        "ILLEGAL_ASSET_TRANSFORMATION": 400,
        "INVALID_CREDENTIALS": 401,
        "INVALID_TOKEN": 401,
        "INVALID_OTP": 401,
        "USER_SUSPENDED": 401,
        "INVALID_IP": 401,
        "INVALID_PROVIDER": 403,
        "FORBIDDEN": 403,
        "ROUTE_NOT_FOUND": 404,
        "NOT_FOUND": 404,
        "METHOD_NOT_ALLOWED": 405,
        "REQUEST_TIMEOUT": 408,
        "PRECONDITION_FAILED": 412,
        "CONTENT_TOO_LARGE": 413,
        "UNSUPPORTED_MEDIA_TYPE": 415,
        "RANGE_NOT_SATISFIABLE": 416,
        "FAILED_VALIDATION": 422,
        "UNPROCESSABLE_CONTENT": 422,
        "HEAD_TOO_LARGE": 431,
        "INTERNAL_SERVER_ERROR": 500,
        "SERVICE_UNAVAILABLE": 503,
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: a code of `STATUS`, a sentence, and the extensions that place it."""

    code: str
    message: str
    extensions: Mapping[str, object] = field(default_factory=dict)


Inquiry = Callable[[Any], list[Problem]]
"""Asks the database what else it minds of a payload that was refused (cms/items/write/inquiry.py)."""


class Refused(Exception):
    """A request that is answered with an error; holds one `Problem` for each fault found.

    `total` is the number of faults, where there are more than problems. What is told only after the transaction is
    over comes by `inquiry`.
    """

    def __init__(
        self,
        problems: Problem | Iterable[Problem],
        *,
        total: int = 0,
        inquiry: Inquiry | None = None,
    ) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        self.total = max(total, len(self.problems))
        self.inquiry = inquiry
        super().__init__("; ".join(problem.message for problem in self.problems))

    @property
    def status(self) -> int:
        """The status of the whole answer: that of the first problem."""
        return STATUS[self.problems[0].code]

    def map_problems(self, change: Callable[[Problem], Problem]) -> Refused:
        """Return the refusal with its problems changed, those that the inquiry brings too."""
        inquiry = self.inquiry
        later = inquiry and (lambda ask: [change(problem) for problem in inquiry(ask)])
        return Refused(map(change, self.problems), total=self.total, inquiry=later)


MAX_PROBLEMS = 100
"""How many problems of one query or body an answer holds: each may repeat what a field takes, however long that is."""


def combined(problems: Iterable[Problem]) -> Refused:
    """Return one refusal with each of the problems once, the first of many."""
    different: list[Problem] = []
    for problem in problems:
        if problem not in different:
            different.append(problem)
        if len(different) == MAX_PROBLEMS:
            break
    return Refused(different)


def at_index(problems: Iterable[Problem], index: int, *, count: int) -> list[Problem]:
    """Return problems with the place of the record that they are of, where there are several records."""
    if count == 1:
        return list(problems)
    return [
        replace(problem, extensions={**problem.extensions, "index": index}) for problem in problems
    ]


T = TypeVar("T")


def collect_problems(problems: list[Problem], work: Callable[[], T]) -> T | None:
    """Return what the work does, or None once what is wrong with the request has been added to `problems`.

    That the caller may not do it, or that there is nothing to do it to, ends the request at once.
    """
    try:
        return work()
    except Refused as refused:
        if refused.status not in (STATUS["INVALID_PAYLOAD"], STATUS["UNPROCESSABLE_CONTENT"]):
            raise
        problems.extend(refused.problems)
        return None


def invalid_query(reason: str, **place: object) -> Refused:
    return Refused(
        Problem("INVALID_QUERY", f"Invalid query. {reason}.", {"reason": reason, **place})
    )


def invalid_payload(reason: str, **place: object) -> Refused:
    return Refused(
        Problem("INVALID_PAYLOAD", f"Invalid payload. {reason}.", {"reason": reason, **place})
    )


def answer_too_large(max_bytes: int) -> Refused:
    reason = f"The answer would be larger than {max_bytes} bytes: ask for fewer items or fields, or for an export"
    return Refused(
        Problem(
            "INVALID_QUERY", f"Invalid query. {reason}.", {"reason": reason, "limit": max_bytes}
        )
    )


def forbidden() -> Refused:
    """One text for everything that is hidden or missing, so that neither can be told from the other."""
    return Refused(Problem("FORBIDDEN", "You don't have permission to access this."))


def fixed_structure(collection: str) -> Refused:
    """Return the refusal to change a system collection; nobody but administrators comes that far."""
    reason = "The structure of system collections is fixed: only the service itself changes it"
    return Refused(Problem("FORBIDDEN", f"{reason}.", {"reason": reason, "collection": collection}))


def not_found(what: str = "item") -> Refused:
    return Refused(Problem("NOT_FOUND", f"There is no such {what}."))


def unavailable(service: str, reason: str) -> Refused:
    """Something that the service needs does not answer; the caller may try again."""
    extensions = {"service": service, "reason": reason}
    return Refused(
        Problem("SERVICE_UNAVAILABLE", f"The {service} is not available. {reason}.", extensions)
    )


MAX_VALUE_LENGTH = 200


def abbreviated(value: object) -> object:
    """Return a value that a client sent as an error repeats it: what is long loses its end, and is a text then."""
    text = value
    if isinstance(value, dict | list):
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except RecursionError:
            text = "…"
    if isinstance(text, str) and len(text) > MAX_VALUE_LENGTH:
        return text[:MAX_VALUE_LENGTH] + "…"
    return text if text == "…" else value

"""Errors of the service: each is a code, a status and a sentence (docs/errors.md)."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

# Every code with its status; docs/errors.md says what each means.
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
        "NOT_WRITTEN": 422,
        "REQUESTS_EXCEEDED": 429,
        "HEAD_TOO_LARGE": 431,
        "INTERNAL_SERVER_ERROR": 500,
        "DATABASE_RIGHTS": 500,
        "SERVICE_UNAVAILABLE": 503,
        "INSUFFICIENT_STORAGE": 507,
    }
)

FULL_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of the system where a disk, a quota or a limit on the size of files leaves no room."""

SHORTAGE_ERRORS = frozenset({errno.ENOMEM, errno.ENOBUFS, errno.EMFILE, errno.ENFILE})
"""Errors of the system where there is no memory, or no file descriptor, left for the process."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: a code of `STATUS`, a message, and extensions with the details.

    `own_status` is the status of a code that a flow has made up. `is_undone` says, for a failure of
    the database, that nothing of the transaction is stored; otherwise that is unknown.
    """

    code: str
    message: str
    extensions: Mapping[str, object] = field(default_factory=dict)
    own_status: int | None = None
    is_undone: bool = False

    @property
    def status(self) -> int:
        return self.own_status or STATUS[self.code]

    def as_json(self) -> dict[str, object]:
        """Return the entry of the problem in the `errors` of an answer."""
        # The code comes last, so that no extension can replace it.
        return {"message": self.message, "extensions": {**self.extensions, "code": self.code}}


PayloadPath = tuple[str | int, ...]
"""The keys and indices that lead to a part of a payload."""

Inquiry = Callable[[Any], list[Problem]]
"""Asks the database what else is wrong with a refused payload.

cms/items/write/run/refusal_diagnosis.py has it.
"""


def _changed_inquiry(inquiry: Inquiry, change: Callable[[Problem], Problem]) -> Inquiry:
    """Return an inquiry that changes each problem that it finds."""

    def inquire(run_question: Any) -> list[Problem]:
        return [change(problem) for problem in inquiry(run_question)]

    return inquire


class Refused(Exception):
    """A request that is answered with an error: one `Problem` for each thing that is wrong.

    `total` counts the problems, also those that are left out. `inquiry` finds further problems once
    the transaction is over.
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
        # For logs and tracebacks: answers are made of the problems.
        super().__init__("; ".join(problem.message for problem in self.problems))

    @property
    def status(self) -> int:
        """The status of the answer: that of the first problem."""
        return self.problems[0].status

    @property
    def is_unavailable(self) -> bool:
        """Whether a service behind this one fails, and the request itself may be valid."""
        return self.status in (STATUS["SERVICE_UNAVAILABLE"], STATUS["INSUFFICIENT_STORAGE"])

    def map_problems(self, change: Callable[[Problem], Problem]) -> Refused:
        """Return the refusal with each problem changed, also those that the inquiry will find."""
        changed_inquiry = None
        if self.inquiry:
            changed_inquiry = _changed_inquiry(self.inquiry, change)
        return Refused(map(change, self.problems), total=self.total, inquiry=changed_inquiry)


UNEXPECTED_ERROR = "An unexpected error occurred; it has been logged."
"""The message of a fault of the service, without details, which may hold values of rows."""

BODY_BREAKS_OFF = "The body breaks off, or is not in chunks as it should be"

MAX_PROBLEMS = 100
"""How many problems of one query or body an answer holds: each may repeat a long value."""


def capitalized(reason: str) -> str:
    """Return a reason as the beginning of a sentence; names in it stay as they are."""
    return reason[0].upper() + reason[1:]


def combined(problems: Iterable[Problem]) -> Refused:
    """Return one refusal with each different problem once, up to `MAX_PROBLEMS`."""
    distinct: list[Problem] = []
    for problem in problems:
        # Compared one by one: a problem holds dictionaries, and so fits in no set.
        if problem not in distinct:
            distinct.append(problem)
        if len(distinct) == MAX_PROBLEMS:
            break
    return Refused(distinct)


def at_index(problems: Iterable[Problem], index: int, *, count: int) -> list[Problem]:
    """Return the problems of one of `count` records, with its index where there are several."""
    if count == 1:
        return list(problems)
    return [
        replace(problem, extensions={**problem.extensions, "index": index}) for problem in problems
    ]


T = TypeVar("T")


def collect_problems(problems: list[Problem], work: Callable[[], T]) -> T | None:
    """Return the result of `work`, or None after adding its problems to `problems`.

    A refusal for want of rights, or because a record is missing, is raised at once.
    """
    try:
        return work()
    except Refused as refused:
        # After a 403 or 404 the caller may not learn anything more.
        if refused.status not in (STATUS["INVALID_PAYLOAD"], STATUS["UNPROCESSABLE_CONTENT"]):
            raise
        problems.extend(refused.problems)
        return None


def invalid_query(reason: str, **extensions: object) -> Refused:
    return Refused(
        Problem("INVALID_QUERY", f"Invalid query. {reason}.", {"reason": reason, **extensions})
    )


def invalid_payload(reason: str, **extensions: object) -> Refused:
    return Refused(
        Problem("INVALID_PAYLOAD", f"Invalid payload. {reason}.", {"reason": reason, **extensions})
    )


def no_object() -> Refused:
    """Return the refusal of a body that is anything else than an object."""
    return invalid_payload("The body must be an object")


def refuse_unknown_members(payload: Mapping[str, object], known: Iterable[str]) -> None:
    """Raise `Refused` INVALID_PAYLOAD that names each member of a body that is not `known`.

    A member that is ignored is a wish that is not done: a misspelt filter would select every item.
    """
    names = tuple(known)
    problems: list[Problem] = []
    for name in payload:
        if name not in names and len(problems) < MAX_PROBLEMS:
            there_are = ", ".join(names) or "none"
            reason = f'The body does not take "{abbreviated(name)}"; there are {there_are}'
            problems += invalid_payload(reason, field=abbreviated(name)).problems
    if problems:
        raise Refused(problems)


def answer_too_large(max_bytes: int) -> Refused:
    reason = (
        f"The answer would be larger than {max_bytes} bytes: "
        "ask for fewer items or fields, or for an export"
    )
    return invalid_query(reason, limit=max_bytes)


def invalid_token() -> Refused:
    return Refused(Problem("INVALID_TOKEN", "The access token is not valid."))


def forbidden() -> Refused:
    """Return the refusal for everything hidden or missing.

    Its text is always the same, so that a caller cannot distinguish the two.
    """
    return Refused(Problem("FORBIDDEN", "You don't have permission to access this."))


def fixed_structure(collection: str) -> Refused:
    """Return the refusal to change a system collection, which only administrators reach."""
    reason = "The structure of system collections is fixed: only the service itself changes it"
    return Refused(Problem("FORBIDDEN", f"{reason}.", {"reason": reason, "collection": collection}))


def not_found(what: str = "item") -> Refused:
    return Refused(Problem("NOT_FOUND", f"There is no such {what}."))


def invalid_provider(message: str) -> Refused:
    return Refused(Problem("INVALID_PROVIDER", message))


def unavailable(service: str, reason: str, *, is_undone: bool = False) -> Refused:
    """Return the refusal where something that the service needs does not answer."""
    extensions = {"service": service, "reason": reason}
    message = f"The {service} is not available. {reason}."
    return Refused(Problem("SERVICE_UNAVAILABLE", message, extensions, is_undone=is_undone))


def insufficient_storage(service: str) -> Refused:
    """Return the refusal where a disk is full; nothing of the request is stored."""
    reason = "It has no room left"
    message = f"The {service} cannot store this. {reason}."
    extensions = {"service": service, "reason": reason}
    return Refused(Problem("INSUFFICIENT_STORAGE", message, extensions, is_undone=True))


MAX_VALUE_LENGTH = 200


def abbreviated(value: object) -> object:
    """Return a client's value as an error repeats it: a long one is cut off, as a text."""
    text = value
    if isinstance(value, dict | list):
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except RecursionError:  # brackets in brackets in brackets
            return "…"
    if isinstance(text, str) and len(text) > MAX_VALUE_LENGTH:
        return text[:MAX_VALUE_LENGTH] + "…"
    return value

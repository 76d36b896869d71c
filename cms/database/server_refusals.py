"""Refusals by the database of a statement that it cannot do, whatever the values."""

from __future__ import annotations

import re

import psycopg

from cms.errors import Problem, Refused, insufficient_storage, unavailable


def primary_message(error: psycopg.Error) -> str:
    """Return PostgreSQL's message alone: detail and context may quote a row or the statement."""
    return error.diag.message_primary or type(error).__name__


def reason_of(error: BaseException) -> str:
    """Return why something failed, without what may quote a row."""
    # A lost connection has no message of PostgreSQL, but says why.
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return primary_message(error)
    return str(error)


class Canceled(Refused):
    """PostgreSQL ended a statement, which took too long, or which another session canceled."""


class LockTimeout(Canceled):
    """PostgreSQL ended a statement that waited for others longer than its session allows."""


def too_slow(error: psycopg.Error) -> Refused:
    reason = "The statement took longer than DB_STATEMENT_TIMEOUT"
    return Canceled(unavailable("database", reason, is_undone=True).problems)


def locked_too_long(error: psycopg.Error) -> Refused:
    reason = "Others hold a lock on what the statement needs for longer than lock_timeout"
    return LockTimeout(unavailable("database", reason, is_undone=True).problems)


def not_permitted(error: psycopg.Error) -> Refused:
    return lacking_right(primary_message(error))


def lacking_right(reason: str) -> Refused:
    """Return the refusal where the service's account lacks a right; only administrators read why.

    It is not right again by itself, as SERVICE_UNAVAILABLE would say.
    """
    sentence = "The service's account lacks a right in the database."
    return Refused(Problem("DATABASE_RIGHTS", sentence, {"reason": reason}))


def read_only(error: psycopg.Error) -> Refused:
    return unavailable("database", "It takes no writes at the moment", is_undone=True)


def full(error: psycopg.Error) -> Refused:
    # With any higher severity the server ends, and a running commit may have been stored.
    if error.diag.severity_nonlocalized != "ERROR":
        return unreachable(error)
    return insufficient_storage("database")


def short_of_resources(error: psycopg.Error) -> Refused:
    # Statements that need more memory, temporary files, locks or connections than there are.
    reason = f"It lacks the means for this: {primary_message(error)}"
    return unavailable("database", reason, is_undone=error.diag.severity_nonlocalized == "ERROR")


def no_connection(error: psycopg.Error) -> Refused:
    # A pool does not say which: the server does not answer, or all connections are lent.
    reason = "It does not answer, or all connections to it are in use"
    return unavailable("database", reason, is_undone=True)


def unreachable(error: psycopg.Error) -> Refused:
    return unavailable("database", "It does not answer")


_FUNCTION = re.compile(r"\b(PL/|SQL )")
_OWN_FUNCTION = re.compile(r"\bsystem_")


def is_within_function(error: psycopg.Error) -> bool:
    """Tell whether a trigger or function of the project was running."""
    context = error.diag.context or ""
    return bool(_FUNCTION.search(context)) and not _OWN_FUNCTION.search(context)

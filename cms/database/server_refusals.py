"""Refusals by the database: for a statement that it cannot do, whatever the values, and by what the
project itself has put into it, triggers, functions, views and row policies.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors as pg

from cms.errors import STATUS, Problem, Refused, insufficient_storage, unavailable


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


# Refusals by what the project itself has put into the database

_PROJECT_CLASSES = frozenset(
    {
        "09",  # a trigger
        "20",  # CASE in a function, without an ELSE
        "21",  # a sub-select in a view or function that has more than one row
        "27",  # a trigger that changes the row of its own statement
        "2F",  # a function, such as one that ends without RETURN
        "38",  # a function in another language
        "39",
        "44",  # WITH CHECK OPTION of a view
        "45",  # what whoever writes triggers raises
    }
)
"""Classes of errors by triggers, functions and views that the project itself has written."""

_PASSING_CLASSES = frozenset({"08", "40", "53", "55", "57", "58", "XX"})
"""Classes of what may be right again by itself, whoever raises it, and of what is broken."""

_WITH_STATUS = re.compile(r"PT(4[0-9]{2})")
"""Codes that name the status of the answer, as PostgREST takes them."""

_FUNCTION = re.compile(r"\b(PL/|SQL )")
_OWN_FUNCTION = re.compile(r"\bsystem_")


def refusal_of_function(error: psycopg.Error) -> Refused | None:
    """Return the refusal by a trigger or function in its own words, None for any other error.

    These are what RAISE raises, and errors of values within a function.
    """
    code = error.sqlstate or ""
    # A name of PostgreSQL's source, the same in every language of its messages.
    is_raised = error.diag.source_function == "exec_stmt_raise"
    if is_raised and code == "42501":
        return _in_own_words(error, "FORBIDDEN", STATUS["FORBIDDEN"])
    is_of_value = code[:2] == "22" and is_within_function(error)
    if code[:2] == "P0" or is_of_value or (is_raised and code[:2] not in _PASSING_CLASSES):
        status = _WITH_STATUS.fullmatch(code)
        return _in_own_words(error, "UNPROCESSABLE_CONTENT", int(status[1]) if status else 400)
    return None


def _in_own_words(error: psycopg.Error, code: str, status: int) -> Refused:
    sentence = error.diag.message_primary or code
    return Refused(Problem(code, sentence, {"reason": sentence}, own_status=status))


def is_within_function(error: psycopg.Error) -> bool:
    """Tell whether a trigger or function of the project was running."""
    context = error.diag.context or ""
    return bool(_FUNCTION.search(context)) and not _OWN_FUNCTION.search(context)


def is_of_project(error: psycopg.Error) -> bool:
    """Tell whether a trigger, function, view or row policy of the project refused the statement."""
    code = error.sqlstate or ""
    # psycopg has no class for codes that PostgreSQL itself never raises.
    is_unknown = type(error) is psycopg.DatabaseError
    # Violated constraints of tables have been mapped before: other such errors are of triggers.
    is_constraint = isinstance(error, psycopg.IntegrityError)
    if code[:2] in _PROJECT_CLASSES or is_unknown or is_constraint:
        return True
    # Of the errors of rights only this one is about a value: the row that is written. Its message
    # may be in any language.
    return (
        isinstance(error, pg.InsufficientPrivilege)
        and error.diag.source_function == "ExecWithCheckOptions"
    )

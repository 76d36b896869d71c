"""PostgreSQL's errors as errors of the service (docs/errors.md); no other module maps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from cms.database.project_refusals import is_of_project, is_within_function, refusal_of_function
from cms.database.server_refusals import (
    full,
    locked_too_long,
    no_connection,
    not_permitted,
    primary_message,
    read_only,
    short_of_resources,
    too_slow,
    unreachable,
)
from cms.errors import Problem, Refused, forbidden, invalid_payload


class Stale(Exception):
    """A statement met a table, column or type that has changed since it was planned."""


class Deadlock(Stale):
    """Two transactions waited for each other, and PostgreSQL ended this one: it can be repeated."""


class UnexpectedError(Exception):
    """PostgreSQL refused a statement for a reason that nobody foresaw: the answer has no detail."""


class Conflict(Refused):
    """A value that the database refuses.

    `value` is the value of a violated key; `server_text` is PostgreSQL's own message, which may
    quote a value. Either may belong to another row, so no answer shows them. They help to find the
    row of the request that has the value.
    """

    def __init__(
        self, problem: Problem, value: str | None = None, *, server_text: str = ""
    ) -> None:
        super().__init__(problem)
        self.value = value
        self.server_text = server_text


class RowsMissing(Refused):
    """A trigger has turned away some of the rows of an insertion."""


class UndefinedName(Stale):
    """PostgreSQL does not know a name in a statement; loading the structure again may help."""


class _MappedError(NamedTuple):
    """The mapping of an error: a code of `STATUS`, and a message without its full stop."""

    code: str
    sentence: str


RULE_BROKEN = "A value breaks a rule of the table"

_OUTCOMES: Mapping[type[psycopg.Error], _MappedError] = MappingProxyType(
    {
        pg.UniqueViolation: _MappedError(
            "RECORD_NOT_UNIQUE", "A value that must be unique is already there"
        ),
        pg.ExclusionViolation: _MappedError(
            "RECORD_NOT_UNIQUE", "A value is in conflict with one that is already there"
        ),
        pg.ForeignKeyViolation: _MappedError(
            "INVALID_FOREIGN_KEY", "A key points to an item that is not there, or is still in use"
        ),
        pg.RestrictViolation: _MappedError("INVALID_FOREIGN_KEY", "The item is still in use"),
        pg.NotNullViolation: _MappedError("NOT_NULL_VIOLATION", "A value is required"),
        pg.StringDataRightTruncation: _MappedError(
            "VALUE_TOO_LONG", "A value is too long for its field"
        ),
        pg.NumericValueOutOfRange: _MappedError(
            "VALUE_OUT_OF_RANGE", "A value is out of its field's range"
        ),
        pg.DatetimeFieldOverflow: _MappedError(
            "VALUE_OUT_OF_RANGE", "A date or time is out of its field's range"
        ),
        pg.IntervalFieldOverflow: _MappedError("VALUE_OUT_OF_RANGE", "An interval is out of range"),
        pg.CheckViolation: _MappedError("INVALID_PAYLOAD", RULE_BROKEN),
        pg.StringDataLengthMismatch: _MappedError(  # of bit(3)
            "INVALID_PAYLOAD", "A value has another length than its field"
        ),
        pg.SequenceGeneratorLimitExceeded: _MappedError(
            "VALUE_OUT_OF_RANGE", "The table's keys are used up"
        ),
    }
)

# Reversed, so that each code has the first of its sentences, which is the general one.
_SENTENCES = dict(reversed(list(_OUTCOMES.values())))

RULE_VIOLATED = "CM403"
"""The SQLSTATE that `system_require_rule` raises."""

ROWS_MISSING = "CM400"
"""The SQLSTATE that `system_refuse_missing_rows` raises."""

_TOO_MUCH = "invalid memory alloc request size"
"""How PostgreSQL refuses, in any language, a value that takes a gigabyte of its memory."""

_NAME = r'"(?:[^"]|"")+"|[^"(),: ]+'
"""A name as PostgreSQL quotes it in the detail of an error."""

_KEY = re.compile(rf"\(({_NAME})\)=\(")
"""A key of one column: `(title)=(…)`."""

_KEYS = re.compile(rf"\(((?:{_NAME})(?:, (?:{_NAME}))+)\)=\(")
"""A key of several columns: `(site, title)=(…)`."""

_FOLDED_KEY = re.compile(rf"\(lower\(\(?({_NAME})\)?(?:::[a-z ]+)?\)\)=\(")
"""A key that ignores case, like that of e-mail addresses: `(lower((email)::text))=(…)`."""

_CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)

_UNDEFINED_ERRORS = (
    pg.UndefinedTable,
    pg.UndefinedColumn,
    pg.UndefinedFunction,
    pg.UndefinedObject,
    pg.DatatypeMismatch,
    pg.WrongObjectType,
    pg.ObjectNotInPrerequisiteState,  # a write to a view that has taken the place of a table
)
"""Errors of a statement whose names or types are no longer those of the database."""

_EMPTY_VIEW = "A materialized view holds nothing before its first REFRESH MATERIALIZED VIEW"

_AMBIGUOUS_ERRORS = (
    pg.SyntaxError,  # of a tsvector or jsonpath, too
    pg.UndefinedTable,  # of a regclass, and so on
    pg.UndefinedFunction,
    pg.UndefinedObject,
    pg.InvalidSchemaName,
)
"""Errors of a statement, or of a value for one of PostgreSQL's own types: see `_is_bad_value`."""


@contextmanager
def mapped_errors(*, with_values: bool = True) -> Iterator[None]:
    """Turn errors of psycopg in the block into those that `map_error` returns."""
    try:
        yield
    except psycopg.Error as error:
        raise map_error(error, with_values=with_values) from cause_of(error)


def cause_of(error: psycopg.Error) -> psycopg.Error | None:
    """Return what may be the cause of a mapped error: only an error of a connection.

    Others may quote a row, which no log may show.
    """
    return error if isinstance(error, _CONNECTION_ERRORS) else None


def map_error(error: psycopg.Error, *, with_values: bool = True) -> Exception:
    """Return the error to raise instead: `Refused`, or `Stale` if the structure has changed.

    An unforeseen one becomes a 500. DDL runs `with_values=False`: its errors are never about a
    value that a client has sent. The order counts: an error of a value may be of the same class as
    one of the structure.
    """
    if error.sqlstate == RULE_VIOLATED:
        return forbidden()
    if error.sqlstate == ROWS_MISSING:
        return RowsMissing(invalid_payload("A trigger has turned rows away").problems)
    if refusal := refusal_of_function(error):
        return refusal
    for error_type, (code, sentence) in _OUTCOMES.items():
        if isinstance(error, error_type):
            problem = Problem(code, f"{sentence}.", _location(error))
            return Conflict(problem, _key_value(error), server_text=_all_messages(error))
    if isinstance(error, pg.DeadlockDetected | pg.SerializationFailure):
        return Deadlock(primary_message(error))
    # Before the errors of names: the name may be a client's value, and then stays unknown.
    if with_values and _is_bad_value(error):
        return _bad_value(error)
    if _is_empty_view(error):
        return Refused(Problem("UNPROCESSABLE_CONTENT", f"{_EMPTY_VIEW}.", {"reason": _EMPTY_VIEW}))
    is_undefined = isinstance(error, _UNDEFINED_ERRORS)
    if is_undefined and is_within_function(error):
        return UnexpectedError(f"A trigger or function is broken: {primary_message(error)}")
    if is_undefined:
        return UndefinedName(primary_message(error))
    if _is_changed_plan(error):
        return Stale(primary_message(error))
    if type(error) is psycopg.DatabaseError and error.sqlstate is None:
        # The connection ended in the middle of the answer, which therefore has no code.
        return unreachable(error)
    if is_of_project(error):
        return _refused_by_database(error)
    if isinstance(error, pg.InternalError_) and primary_message(error).startswith(_TOO_MUCH):
        return _too_large(error)
    for error_types, make_refusal in _OTHER_ERRORS:
        if isinstance(error, error_types):
            return make_refusal(error)
    return UnexpectedError(f"{type(error).__name__}: {primary_message(error)}")


def database_problem(code: str, extensions: Mapping[str, object]) -> Problem:
    """Return a problem like that of an error of PostgreSQL, for checks by the service itself."""
    return Problem(code, f"{_SENTENCES[code]}.", extensions)


def _is_bad_value(error: psycopg.Error) -> bool:
    """Tell whether a type refuses a value.

    The input function of the type then raises the error, which has neither a position in the
    statement nor a context.
    """
    diagnostic = error.diag
    is_of_statement = (
        diagnostic.statement_position or diagnostic.internal_position or diagnostic.context
    )
    return isinstance(error, _AMBIGUOUS_ERRORS) and not is_of_statement


def _is_empty_view(error: psycopg.Error) -> bool:
    """Tell whether a statement reads a materialized view that was made WITH NO DATA."""
    # Only the function of PostgreSQL tells it from a write to a view, in any language.
    is_reading = error.diag.source_function == "ExecOpenScanRelation"
    return is_reading and isinstance(error, pg.ObjectNotInPrerequisiteState)


@contextmanager
def reporting_nulls(collection: str, field: str) -> Iterator[None]:
    """Turn NOT_NULL_VIOLATION of DDL into CONTAINS_NULL_VALUES: stored rows have the nulls."""
    try:
        yield
    except Refused as refused:
        if refused.problems[0].code != "NOT_NULL_VIOLATION":
            raise
        # "A value is required" would send the client looking for one in its own request.
        sentence = f'Items of "{collection}" would hold null in "{field}", which is not to take it.'
        extensions = {"collection": collection, "field": field}
        raise Refused(Problem("CONTAINS_NULL_VALUES", sentence, extensions)) from refused


def _all_messages(error: psycopg.Error) -> str:
    """Return PostgreSQL's message with its detail, which may quote values."""
    return "\n".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))


def _is_changed_plan(error: psycopg.Error) -> bool:
    """Tell whether a prepared statement failed because a column changed its type."""
    # The code alone does not show it: all errors about unsupported features have this code.
    return isinstance(error, pg.FeatureNotSupported) and "cached plan" in str(error)


def _location(error: psycopg.Error) -> Mapping[str, object]:
    """Return the table and columns, never a value: the detail may quote another row."""
    location = {
        "collection": error.diag.table_name,
        "field": error.diag.column_name or _key_column(error),
        "fields": _key_columns(error),
        "constraint": error.diag.constraint_name,
    }
    return {key: value for key, value in location.items() if value}


def _key_column(error: psycopg.Error) -> str | None:
    """Return the column of a violated key of one column: "Key (title)=(…)" in any language."""
    detail = _key_detail(error)
    match = _KEY.search(detail) or _FOLDED_KEY.search(detail)
    if match is None:
        return None
    return _unquote(match[1])


def _key_columns(error: psycopg.Error) -> list[str]:
    """Return the columns of a violated key of several columns, none for any other error."""
    match = _KEYS.search(_key_detail(error))
    if match is None:
        return []
    return list(map(_unquote, re.findall(_NAME, match[1])))


def _key_detail(error: psycopg.Error) -> str:
    """Return the detail of an error if it quotes a key of the table that the error names.

    For a row that others still point to, PostgreSQL quotes the row's own key, whose columns belong
    to another table.
    """
    if not error.diag.constraint_name:
        return ""
    detail = error.diag.message_detail or ""
    # Only the text tells the two cases apart. If the server's messages are in another language, the
    # answer lacks the field of either.
    if isinstance(error, pg.ForeignKeyViolation) and "is not present" not in detail:
        return ""
    return detail


def _unquote(name: str) -> str:
    if name.startswith('"'):
        return name[1:-1].replace('""', '"')
    return name


def _key_value(error: psycopg.Error) -> str | None:
    """Return the value of a violated key of one column.

    For an exclusion constraint it is None: the detail quotes the value of another row as well.
    """
    detail = error.diag.message_detail or ""
    if _key_column(error) is None or isinstance(error, pg.ExclusionViolation):
        return None
    # `Key (title)=(a (b)) already exists.`: the value may hold parentheses itself.
    return detail[detail.index(")=(") + 3 : detail.rindex(")")]


def _bad_value(error: psycopg.Error) -> Refused:
    refused = invalid_payload("A value does not fit its field's type", **_location(error))
    (problem,) = refused.problems
    # PostgreSQL names no column here: the conflict finds the value in the request by the message.
    return Conflict(problem, server_text=_all_messages(error))


# Refusals of errors that name no value


def _too_large(error: psycopg.Error) -> Refused:
    return invalid_payload(f"The database refuses its size or depth: {primary_message(error)}")


def _refused_by_database(error: psycopg.Error) -> Refused:
    return invalid_payload(f"The database refuses it: {primary_message(error)}")


class _Refusal(NamedTuple):
    error_types: tuple[type[psycopg.Error], ...]
    make_refusal: Callable[[psycopg.Error], Refused]


_OTHER_ERRORS = (
    _Refusal((pg.QueryCanceled,), too_slow),
    _Refusal((pg.LockNotAvailable,), locked_too_long),
    _Refusal(
        (pg.ProgramLimitExceeded, pg.StatementTooComplex, pg.TooManyColumns, pg.TooManyArguments),
        _too_large,
    ),
    _Refusal(
        (
            pg.DuplicateTable,
            pg.DuplicateColumn,
            pg.DuplicateObject,
            pg.DependentObjectsStillExist,
            pg.CannotCoerce,
            pg.InvalidTableDefinition,
            pg.InvalidColumnDefinition,
            pg.InvalidForeignKey,
            pg.ObjectInUse,
            pg.FeatureNotSupported,
        ),
        _refused_by_database,
    ),
    _Refusal((pg.InsufficientPrivilege,), not_permitted),
    _Refusal((pg.ReadOnlySqlTransaction,), read_only),
    _Refusal(
        (
            pg.InvalidTextRepresentation,
            pg.InvalidDatetimeFormat,
            pg.CharacterNotInRepertoire,
            pg.UntranslatableCharacter,
            pg.InvalidParameterValue,
            pg.GeneratedAlways,
            psycopg.DataError,
        ),
        _bad_value,
    ),
    _Refusal((PoolTimeout,), no_connection),
    _Refusal((pg.DiskFull,), full),
    _Refusal(
        (pg.OutOfMemory, pg.ConfigurationLimitExceeded, pg.InsufficientResources),
        short_of_resources,
    ),
    _Refusal(_CONNECTION_ERRORS, unreachable),
)
"""Tried in this order: `OperationalError`, in the last entry, is the base of many above it."""

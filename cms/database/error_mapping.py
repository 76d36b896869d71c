"""The one border where PostgreSQL's errors become the service's (decisions, section 2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from cms.errors import Problem, Refused, forbidden, invalid_payload, unavailable


class Stale(Exception):
    """A statement met a table, column or type that is no longer what its plan took it for."""


class Deadlock(Stale):
    """Two transactions waited for each other, and this one was given up: all of it can be done again."""


class UnexpectedError(Exception):
    """PostgreSQL refused in a way that is nobody's fault but the service's; told without a detail."""


class Conflict(Refused):
    """A value that the database refuses. What it tells may be of another row, and only shows who has sent it.

    `value` is what a key already holds; `server_text` is PostgreSQL's own text, in which a value that was sent may
    stand.
    """

    def __init__(
        self, problem: Problem, value: str | None = None, *, server_text: str = ""
    ) -> None:
        super().__init__(problem)
        self.value = value
        self.server_text = server_text


class UndefinedName(Stale):
    """PostgreSQL does not find what a statement names, in its own words; a new look may help, or may not."""


_CODES_BY_ERROR: Mapping[type[psycopg.Error], tuple[str, str]] = MappingProxyType(
    {
        pg.UniqueViolation: ("RECORD_NOT_UNIQUE", "A value that must be unique is already there"),
        pg.ExclusionViolation: (
            "RECORD_NOT_UNIQUE",
            "A value is in conflict with one that is already there",
        ),
        pg.ForeignKeyViolation: (
            "INVALID_FOREIGN_KEY",
            "A key points to an item that is not there, or is still in use",
        ),
        pg.RestrictViolation: ("INVALID_FOREIGN_KEY", "The item is still in use"),
        pg.NotNullViolation: ("NOT_NULL_VIOLATION", "A value is required"),
        pg.StringDataRightTruncation: ("VALUE_TOO_LONG", "A value is too long for its field"),
        pg.NumericValueOutOfRange: ("VALUE_OUT_OF_RANGE", "A value is out of its field's range"),
        pg.DatetimeFieldOverflow: (
            "VALUE_OUT_OF_RANGE",
            "A date or time is out of its field's range",
        ),
        pg.IntervalFieldOverflow: ("VALUE_OUT_OF_RANGE", "An interval is out of range"),
        pg.CheckViolation: ("INVALID_PAYLOAD", "A value breaks a rule of the table"),
        pg.SequenceGeneratorLimitExceeded: ("VALUE_OUT_OF_RANGE", "The table's keys are used up"),
    }
)

_SENTENCES = dict(reversed(list(_CODES_BY_ERROR.values())))

RULE_VIOLATED = "CM403"
"""What `system_require` raises."""

_NAME = r'"(?:[^"]|"")+"|[^"(),: ]+'
_KEYS = re.compile(rf"\(((?:{_NAME})(?:, (?:{_NAME}))+)\)=\(")
"""A key of several columns."""
_KEY = re.compile(r'\((?:"((?:[^"]|"")+)"|([^"(),: ]+))\)=\(')
_FOLDED_KEY = re.compile(r'\(lower\(\(?(?:"((?:[^"]|"")+)"|([^"(),: ]+))\)?(?:::[a-z ]+)?\)\)=\(')
"""A key that takes capitals and small letters for the same, as that of addresses does."""

_CONNECTION_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)

_UNDEFINED_ERRORS = (
    pg.UndefinedTable,
    pg.UndefinedColumn,
    pg.UndefinedFunction,
    pg.UndefinedObject,
    pg.DatatypeMismatch,
    pg.WrongObjectType,
)


_AMBIGUOUS_ERRORS = (
    pg.SyntaxError,  # of a tsvector or jsonpath, too
    pg.UndefinedTable,  # of a regclass, and so on
    pg.UndefinedFunction,
    pg.UndefinedObject,
    pg.InvalidSchemaName,
)


class mapped_errors:
    """Turn what psycopg raises inside into `Refused`, or `Stale` when the structure has moved.

    A definition goes `with_values=False`: what it lacks is never the fault of a value that a client has sent. The
    cause is kept only of what befalls a connection: any other may hold a row's data, which no log is to show.
    """

    __slots__ = ("_with_values",)

    def __init__(self, *, with_values: bool = True) -> None:
        self._with_values = with_values

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, psycopg.Error):
            cause = error if isinstance(error, _CONNECTION_ERRORS) else None
            raise map_error(error, with_values=self._with_values) from cause


def map_error(error: psycopg.Error, *, with_values: bool = True) -> Exception:
    """Return the error to raise instead; an unforeseen one becomes a 500."""
    for kind, (code, sentence) in _CODES_BY_ERROR.items():
        if isinstance(error, kind):
            return Conflict(
                Problem(code, f"{sentence}.", _location(error)),
                _key_value(error),
                server_text=_all_messages(error),
            )
    if isinstance(error, pg.DeadlockDetected | pg.SerializationFailure):
        return Deadlock(_primary_message(error))
    if with_values and _is_bad_value(error):
        return _bad_value(error)
    if isinstance(error, _UNDEFINED_ERRORS):
        return UndefinedName(_primary_message(error))
    if _is_changed_plan(error):
        return Stale(_primary_message(error))
    if type(error) is psycopg.DatabaseError and error.sqlstate is None:
        return _unreachable(
            error
        )  # the server went in the middle of its answer, which therefore has no code
    if error.sqlstate == RULE_VIOLATED:
        return forbidden()
    if _is_raised_by_trigger(error):
        return _refused_by_database(error)
    unforeseen = UnexpectedError(f"{type(error).__name__}: {_primary_message(error)}")
    return next(
        (make(error) for kinds, make in _OTHER_ERRORS if isinstance(error, kinds)), unforeseen
    )


def database_problem(code: str, extensions: Mapping[str, object]) -> Problem:
    """Return the problem as it is told where PostgreSQL itself refuses something."""
    return Problem(code, f"{_SENTENCES[code]}.", extensions)


def _is_bad_value(error: psycopg.Error) -> bool:
    """Tell whether a type minds what stands in a value: of statements PostgreSQL tells a position or context."""
    own = error.diag.statement_position or error.diag.internal_position or error.diag.context
    return isinstance(error, _AMBIGUOUS_ERRORS) and not own


def _is_raised_by_trigger(error: psycopg.Error) -> bool:
    """A trigger may refuse with a code of its own, which psycopg has no class for or a general one."""
    code = error.sqlstate or ""
    unknown = type(error) is psycopg.DatabaseError
    return code[:2] in ("44", "45") or unknown or isinstance(error, psycopg.IntegrityError)


@contextmanager
def reporting_nulls(collection: str, field: str) -> Iterator[None]:
    """Tell the nulls that a definition meets in rows as CONTAINS_NULL_VALUES: nobody has sent them."""
    try:
        yield
    except Refused as refused:
        if refused.problems[0].code != "NOT_NULL_VIOLATION":
            raise
        sentence = f'Items of "{collection}" would hold null in "{field}", which is not to take it.'
        place = {"collection": collection, "field": field}
        raise Refused(Problem("CONTAINS_NULL_VALUES", sentence, place)) from refused


def _primary_message(error: psycopg.Error) -> str:
    """Return the first line of what PostgreSQL said: the others may hold the statement, or another row's data."""
    return error.diag.message_primary or type(error).__name__


def _all_messages(error: psycopg.Error) -> str:
    """Return all that PostgreSQL said of the values."""
    return "\n".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))


def _is_changed_plan(error: psycopg.Error) -> bool:
    """A prepared statement whose columns changed type fails with a message of its own."""
    return isinstance(error, pg.FeatureNotSupported) and "cached plan" in str(error)


def _location(error: psycopg.Error) -> Mapping[str, object]:
    """Name the table and column, never a value: the detail could hold another row's data."""
    known = {
        "collection": error.diag.table_name,
        "field": error.diag.column_name or _key_column(error),
        "fields": _key_columns(error),
        "constraint": error.diag.constraint_name,
    }
    return {key: value for key, value in known.items() if value}


def _key_column(error: psycopg.Error) -> str | None:
    """Return the one column of a violated key: "Key (title)=(…)" in any language, before any value.

    A row that is still pointed to is told with its own key, which is no field of the table that the error names.
    """
    detail = error.diag.message_detail or ""
    if isinstance(error, pg.ForeignKeyViolation) and "is not present" not in detail:
        return None
    named = (
        (_KEY.search(detail) or _FOLDED_KEY.search(detail)) if error.diag.constraint_name else None
    )
    return (named[1] or named[2]).replace('""', '"') if named else None


def _key_columns(error: psycopg.Error) -> list[str]:
    """Return the columns of a violated key of several; none where it is a key that something else points to."""
    detail = error.diag.message_detail or ""
    of_others = isinstance(error, pg.ForeignKeyViolation) and "is not present" not in detail
    named = _KEYS.search(detail) if error.diag.constraint_name and not of_others else None
    return [_unquoted(found) for found in re.findall(_NAME, named[1])] if named else []


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _key_value(error: psycopg.Error) -> str | None:
    """Return what stands behind the name of the one column of a violated key.

    What is in conflict with a value is told with that of another row behind it, and so not taken apart.
    """
    detail = error.diag.message_detail or ""
    if _key_column(error) is None or isinstance(error, pg.ExclusionViolation):
        return None
    return detail[detail.index(")=(") + 3 : detail.rindex(")")]


def _bad_value(error: psycopg.Error) -> Refused:
    (problem,) = invalid_payload(
        "A value does not fit its field's type", **_location(error)
    ).problems
    return Conflict(problem, server_text=_all_messages(error))


def _too_slow(error: psycopg.Error) -> Refused:
    return unavailable("database", "The statement took longer than DB_STATEMENT_TIMEOUT")


def _too_large(error: psycopg.Error) -> Refused:
    return invalid_payload(f"The database refuses its size or depth: {_primary_message(error)}")


def _refused_by_database(error: psycopg.Error) -> Refused:
    return invalid_payload(f"The database refuses it: {_primary_message(error)}")


def _not_permitted(error: psycopg.Error) -> Refused:
    return unavailable("database", "The service's account lacks a right there")


def _read_only(error: psycopg.Error) -> Refused:
    return unavailable("database", "It takes no writes at the moment")


def _unreachable(error: psycopg.Error) -> Refused:
    return unavailable("database", "It does not answer")


_OTHER_ERRORS: tuple[
    tuple[tuple[type[psycopg.Error], ...], Callable[[psycopg.Error], Refused]], ...
] = (
    ((pg.QueryCanceled,), _too_slow),
    (
        (pg.ProgramLimitExceeded, pg.StatementTooComplex, pg.TooManyColumns, pg.TooManyArguments),
        _too_large,
    ),
    (
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
            pg.RaiseException,  # a trigger's own refusal, in the words of whoever wrote it
        ),
        _refused_by_database,
    ),
    ((pg.InsufficientPrivilege,), _not_permitted),
    ((pg.ReadOnlySqlTransaction,), _read_only),
    (
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
    (_CONNECTION_ERRORS, _unreachable),
)

"""PostgreSQL's errors as errors of the service (docs/errors.md); no other module maps them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from cms.database import server_refusals
from cms.database.server_refusals import primary_message
from cms.database.sqlstates import SENTENCES, Origin, Reaction, SqlstateAnswer, answer_to
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

_EMPTY_VIEW = "A materialized view holds nothing before its first REFRESH MATERIALIZED VIEW"


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
    value that a client has sent.
    """
    if error.sqlstate is None:
        return _without_state(error)
    answer = answer_to(error.sqlstate, origin_of(error, with_values=with_values))
    return _outcome(error, answer)


def origin_of(error: psycopg.Error, *, with_values: bool = True) -> Origin:
    """Return what an error comes from, as far as it counts for the answer."""
    # Names of functions of PostgreSQL are the same in every language of its messages.
    function = error.diag.source_function
    if function in _ORIGIN_OF_FUNCTION:
        return _ORIGIN_OF_FUNCTION[function]
    if primary_message(error).startswith(_TOO_MUCH):
        return Origin.SIZE
    # Only the message tells it: all errors about unsupported features have this code.
    if error.sqlstate == "0A000" and "cached plan" in str(error):
        return Origin.CACHED_PLAN
    if server_refusals.is_within_function(error):
        return Origin.FUNCTION
    if with_values and _is_of_value(error):
        return Origin.VALUE
    return Origin.STATEMENT


_ORIGIN_OF_FUNCTION: Mapping[str | None, Origin] = MappingProxyType(
    {
        "exec_stmt_raise": Origin.RAISED,
        "ExecOpenScanRelation": Origin.READ,
        "ExecWithCheckOptions": Origin.CHECKED_ROW,
    }
)


def _is_of_value(error: psycopg.Error) -> bool:
    """Tell whether the input function of a type refuses a value.

    Its errors have neither a position in the statement nor a context.
    """
    diagnostic = error.diag
    is_of_statement = (
        diagnostic.statement_position or diagnostic.internal_position or diagnostic.context
    )
    return not is_of_statement


def _without_state(error: psycopg.Error) -> Exception:
    """Return what becomes of an error that psycopg raises itself."""
    if isinstance(error, PoolTimeout):
        return server_refusals.no_connection(error)
    # The connection ended, perhaps in the middle of the answer, which therefore has no code.
    if isinstance(error, _CONNECTION_ERRORS) or type(error) is psycopg.DatabaseError:
        return server_refusals.unreachable(error)
    if isinstance(error, psycopg.DataError):
        return _bad_value(error)
    return _unexpected(error)


def database_problem(code: str, extensions: Mapping[str, object]) -> Problem:
    """Return a problem like that of an error of PostgreSQL, for checks by the service itself."""
    return Problem(code, f"{SENTENCES[code]}.", extensions)


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


# What becomes of errors


def _conflict(error: psycopg.Error, answer: SqlstateAnswer) -> Conflict:
    problem = Problem(answer.code, f"{answer.sentence}.", _location(error))
    return Conflict(problem, _key_value(error), server_text=_all_messages(error))


def _in_own_words(error: psycopg.Error, answer: SqlstateAnswer) -> Refused:
    state = error.sqlstate or ""
    sentence = error.diag.message_primary or state
    extensions = {"reason": sentence}
    return Refused(Problem(answer.code, sentence, extensions, own_status=answer.status(state)))


def _rows_missing(error: psycopg.Error) -> RowsMissing:
    return RowsMissing(Problem("NOT_WRITTEN", "A trigger has kept rows back."))


def _empty_view(error: psycopg.Error) -> Refused:
    return Refused(Problem("UNPROCESSABLE_CONTENT", f"{_EMPTY_VIEW}.", {"reason": _EMPTY_VIEW}))


def _too_large(error: psycopg.Error) -> Refused:
    return invalid_payload(f"The database refuses its size or depth: {primary_message(error)}")


def _refused_by_database(error: psycopg.Error) -> Refused:
    return invalid_payload(f"The database refuses it: {primary_message(error)}")


def _broken(error: psycopg.Error) -> UnexpectedError:
    return UnexpectedError(f"A trigger or function is broken: {primary_message(error)}")


def _unexpected(error: psycopg.Error) -> UnexpectedError:
    return UnexpectedError(f"{type(error).__name__}: {primary_message(error)}")


def _outcome(error: psycopg.Error, answer: SqlstateAnswer) -> Exception:
    """Return what becomes of an error."""
    match answer.reaction:
        case Reaction.CONFLICT:
            return _conflict(error, answer)
        case Reaction.OWN_WORDS:
            return _in_own_words(error, answer)
        case Reaction.RULE_VIOLATED:
            return forbidden()
        case Reaction.DEADLOCK:
            return Deadlock(primary_message(error))
        case Reaction.UNKNOWN_NAME:
            return UndefinedName(primary_message(error))
        case Reaction.STALE:
            return Stale(primary_message(error))
        case reaction:
            return _MAKERS[reaction](error)


_MAKERS: Mapping[Reaction, Callable[[psycopg.Error], Exception]] = MappingProxyType(
    {
        Reaction.ROWS_MISSING: _rows_missing,
        Reaction.BAD_VALUE: _bad_value,
        Reaction.EMPTY_VIEW: _empty_view,
        Reaction.BROKEN: _broken,
        Reaction.REFUSED: _refused_by_database,
        Reaction.TOO_LARGE: _too_large,
        Reaction.UNEXPECTED: _unexpected,
        Reaction.TOO_SLOW: server_refusals.too_slow,
        Reaction.LOCKED: server_refusals.locked_too_long,
        Reaction.FULL: server_refusals.full,
        Reaction.SHORT_OF_RESOURCES: server_refusals.short_of_resources,
        Reaction.UNREACHABLE: server_refusals.unreachable,
        Reaction.NO_RIGHT: server_refusals.not_permitted,
        Reaction.READ_ONLY: server_refusals.read_only,
    }
)

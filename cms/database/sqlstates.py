"""What the service answers for each SQLSTATE: one table, which docs/errors.md has too."""

from __future__ import annotations

import re
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from cms.errors import STATUS

RULE_BROKEN = "A value breaks a rule of the table"

RULE_VIOLATED = "CM403"
"""The SQLSTATE that `system_require_rule` raises."""

ROWS_MISSING = "CM400"
"""The SQLSTATE that `system_refuse_missing_rows` raises."""


class Origin(Enum):
    """What an error comes from; the values are those of the documentation."""

    RAISED = "`RAISE`"
    FUNCTION = "a statement in a function"
    VALUE = "a value"
    READ = "a read"
    CHECKED_ROW = "a row policy, or WITH CHECK OPTION"
    CACHED_PLAN = "a prepared statement"
    SIZE = "a value of a gigabyte"
    STATEMENT = "a statement of the service"


class Reaction(Enum):
    """What becomes of an error; the values are the messages, as the documentation tells them."""

    RULE_VIOLATED = "that of a missing permission"
    ROWS_MISSING = "that of a row that a trigger keeps back"
    DEADLOCK = "none, as the call is repeated; if that fails: it is busy with other changes"
    TOO_SLOW = "the statement took too long"
    LOCKED = "others hold a lock for too long"
    FULL = "the disk is full"
    SHORT_OF_RESOURCES = "it lacks the means"
    UNREACHABLE = "the database does not answer"
    OWN_WORDS = "its own"
    CONFLICT = "a sentence of the service"
    BAD_VALUE = "it is a value that its field cannot hold"
    EMPTY_VIEW = "the materialized view holds nothing yet"
    BROKEN = "none: the log has it"
    UNKNOWN_NAME = "none, as the call is repeated; if that fails: the statement is refused"
    STALE = "none, as the call is repeated"
    REFUSED = "the database refuses it: its own"
    TOO_LARGE = "the database refuses its size or depth: its own"
    NO_RIGHT = "the service's role lacks a right"
    READ_ONLY = "no writes at the moment"
    UNEXPECTED = "none: nobody foresaw it, and the log has it"


class SqlstateAnswer(NamedTuple):
    """A row of the table: SQLSTATEs, or the beginnings of some; without `origin` of any origin.

    `sentence` is that of a CONFLICT, without its full stop.
    """

    states: tuple[str, ...]
    origin: Origin | None
    reaction: Reaction
    code: str
    sentence: str = ""

    def status(self, state: str) -> int:
        """Return the status of the answer: what a function says is 400, or the status it names."""
        if self.code != "UNPROCESSABLE_CONTENT" or self.reaction is not Reaction.OWN_WORDS:
            return STATUS[self.code]
        named = _WITH_STATUS.fullmatch(state)
        return int(named[1]) if named else 400


_WITH_STATUS = re.compile(r"PT(4[0-9]{2})")
"""Codes that name the status of the answer, as PostgREST takes them."""


def _row(
    states: str,
    reaction: Reaction,
    code: str,
    sentence: str = "",
    *,
    origin: Origin | None = None,
) -> SqlstateAnswer:
    return SqlstateAnswer(tuple(states.split()), origin, reaction, code, sentence)


def _conflict(states: str, code: str, sentence: str) -> SqlstateAnswer:
    return _row(states, Reaction.CONFLICT, code, sentence)


SQLSTATES: tuple[SqlstateAnswer, ...] = (
    # The service's own functions
    _row(RULE_VIOLATED, Reaction.RULE_VIOLATED, "FORBIDDEN"),
    _row(ROWS_MISSING, Reaction.ROWS_MISSING, "NOT_WRITTEN"),
    # What may be right again by itself, whoever raises it
    _row("40001 40P01", Reaction.DEADLOCK, "SERVICE_UNAVAILABLE"),
    _row("57014", Reaction.TOO_SLOW, "SERVICE_UNAVAILABLE"),
    _row("55P03", Reaction.LOCKED, "SERVICE_UNAVAILABLE"),
    _row("53100", Reaction.FULL, "INSUFFICIENT_STORAGE"),
    _row("53000 53200 53400", Reaction.SHORT_OF_RESOURCES, "SERVICE_UNAVAILABLE"),
    _row("08 40 53 57 58", Reaction.UNREACHABLE, "SERVICE_UNAVAILABLE"),
    _row("XX000", Reaction.TOO_LARGE, "INVALID_PAYLOAD", origin=Origin.SIZE),
    _row("XX", Reaction.UNEXPECTED, "INTERNAL_SERVER_ERROR"),
    # What functions and triggers of the project say
    _row("42501", Reaction.OWN_WORDS, "FORBIDDEN", origin=Origin.RAISED),
    _row("P0", Reaction.OWN_WORDS, "UNPROCESSABLE_CONTENT"),
    SqlstateAnswer(("",), Origin.RAISED, Reaction.OWN_WORDS, "UNPROCESSABLE_CONTENT"),
    _row("22", Reaction.OWN_WORDS, "UNPROCESSABLE_CONTENT", origin=Origin.FUNCTION),
    # Constraints, and the limits of columns
    _conflict("23505", "RECORD_NOT_UNIQUE", "A value that must be unique is already there"),
    _conflict(
        "23P01", "RECORD_NOT_UNIQUE", "A value is in conflict with one that is already there"
    ),
    _conflict(
        "23503",
        "INVALID_FOREIGN_KEY",
        "A key points to an item that is not there, or is still in use",
    ),
    _conflict("23001", "INVALID_FOREIGN_KEY", "The item is still in use"),
    _conflict("23502", "NOT_NULL_VIOLATION", "A value is required"),
    _conflict("22001", "VALUE_TOO_LONG", "A value is too long for its field"),
    _conflict("22003", "VALUE_OUT_OF_RANGE", "A value is out of its field's range"),
    _conflict("22008", "VALUE_OUT_OF_RANGE", "A date or time is out of its field's range"),
    _conflict("22015", "VALUE_OUT_OF_RANGE", "An interval is out of range"),
    _conflict("23514", "INVALID_PAYLOAD", RULE_BROKEN),
    _conflict("22026", "INVALID_PAYLOAD", "A value has another length than its field"),  # bit(3)
    _conflict("2200H", "VALUE_OUT_OF_RANGE", "The table's keys are used up"),
    # Before the names of statements: the name may be a client's value, and then stays unknown.
    _row(
        "42601 42P01 42883 42704 3F000", Reaction.BAD_VALUE, "INVALID_PAYLOAD", origin=Origin.VALUE
    ),
    _row("55000", Reaction.EMPTY_VIEW, "UNPROCESSABLE_CONTENT", origin=Origin.READ),
    _row("0A000", Reaction.STALE, "SERVICE_UNAVAILABLE", origin=Origin.CACHED_PLAN),
    # Rights; the message of a row that is refused may be in any language
    _row("42501", Reaction.REFUSED, "INVALID_PAYLOAD", origin=Origin.CHECKED_ROW),
    _row("42501", Reaction.NO_RIGHT, "DATABASE_RIGHTS"),
    # Broken functions and triggers
    _row(
        "0A 24 26 2F 34 3F 42 55000",
        Reaction.BROKEN,
        "INTERNAL_SERVER_ERROR",
        origin=Origin.FUNCTION,
    ),
    # Names or types that are no longer those of the database; 55000 is a write to a view that has
    # taken the place of a table
    _row("42P01 42703 42883 42704 42804 42809 55000", Reaction.UNKNOWN_NAME, "SERVICE_UNAVAILABLE"),
    # What triggers, functions in any language and views refuse: a CASE without ELSE, a sub-select
    # of several rows, a row that its own trigger has changed, WITH CHECK OPTION
    _row("09 20 21 23 27 2F 38 39 44", Reaction.REFUSED, "INVALID_PAYLOAD"),
    _row("54000 54001 54011 54023", Reaction.TOO_LARGE, "INVALID_PAYLOAD"),
    # Changes of the structure that stored rows or other objects do not allow
    _row(
        "0A000 2BP01 42611 42701 42710 42830 42846 42P07 42P16 55006",
        Reaction.REFUSED,
        "INVALID_PAYLOAD",
    ),
    _row("25006", Reaction.READ_ONLY, "SERVICE_UNAVAILABLE"),
    _row("22 428C9", Reaction.BAD_VALUE, "INVALID_PAYLOAD"),
    # All else that PostgreSQL has
    _row("26 28 34 54 55 72 HV", Reaction.UNREACHABLE, "SERVICE_UNAVAILABLE"),
    _row(
        "01 02 03 0A 0B 0F 0L 0P 0Z 10 24 25 2B 2D 3B 3D 3F 42 F0",
        Reaction.UNEXPECTED,
        "INTERNAL_SERVER_ERROR",
    ),
    # Classes that PostgreSQL does not have
    SqlstateAnswer(("",), None, Reaction.REFUSED, "INVALID_PAYLOAD"),
)
"""The first row of the SQLSTATE and the origin of an error counts."""

SENTENCES = MappingProxyType(
    # Reversed, so that each code has the first of its sentences, which is the general one.
    {row.code: row.sentence for row in reversed(SQLSTATES) if row.reaction is Reaction.CONFLICT}
)
"""The sentences of conflicts by their codes."""


def answer_to(state: str, origin: Origin) -> SqlstateAnswer:
    """Return the row of an error."""
    for row in SQLSTATES:
        if row.origin in (None, origin) and state.startswith(row.states):
            return row
    raise AssertionError(state)  # the last row takes every state

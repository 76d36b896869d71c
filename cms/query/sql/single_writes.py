"""The printers of a write in one statement, beside the rows: its conditions, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cms.fragment import EMPTY, Fragment, fill, optional, param
from cms.query.language.ast import Slot
from cms.query.sql.arguments import VERSION_SLOTS
from cms.query.sql.columns import output_columns


class StoredRowTests(NamedTuple):
    """Conditions on a row before the write: the caller sees it, and may write it."""

    seen: Fragment
    writable: Fragment


@dataclass(frozen=True, slots=True)
class SingleStatement:
    """A write in one statement: counters, columns of the answer, and rules.

    The statement writes only while the counters are those of three literals, of which `version` is
    the first slot: it may outlive the version that it was printed for, and its caller always names
    the present one.

    Rules are conditions on a row (t0); None is no rule. `before` are tried on the row as it was.
    `after` must hold for the row as it then is, or nothing is written. `readable` says whether the
    caller may read that row. The answer has `rows.row_exists`, and behind it the results of
    `readable` and of `before.seen`.
    """

    version: int
    sent: Fragment | None = None
    """The number of rows of an insertion; None if it is one."""
    outputs: tuple[Fragment, ...] = ()
    before: StoredRowTests | None = None
    after: Fragment | None = None
    readable: Fragment | None = None


def single_answer(single_statement: SingleStatement) -> Fragment:
    """Print the answer: the counters, and beside them the written row, if there is one."""
    columns = output_columns("rows", len(single_statement.outputs))
    readable = optional(", rows.readable", when=single_statement.readable)
    seen = optional(", (SELECT old.seen FROM old)", when=single_statement.before)
    # The counters come in any case, and so there is a row even where none was written.
    shape = (
        "SELECT {0}, v.structure, v.access, v.flows, rows.row_exists{1}{2} "
        "FROM v LEFT JOIN rows ON TRUE{3}"
    )
    return fill(shape, columns, readable, seen, _whole(single_statement.sent))


def _whole(sent: Fragment | None) -> Fragment:
    """Print, behind the answer, that an insertion is given up if a trigger turns rows away."""
    if sent is None:
        return EMPTY
    # No row at all is that of a statement planned for another structure, which has left nothing.
    return fill(
        " WHERE (SELECT CASE WHEN count(*) IN (0, {0}) THEN TRUE "
        "ELSE system_refuse_missing_rows() END FROM rows)",
        sent,
    )


def rule_results(single_statement: SingleStatement | None) -> Fragment:
    """Print the results of the rules on a row as it was before the write."""
    if single_statement is None or single_statement.before is None:
        return EMPTY
    # A rule that compares with NULL is neither true nor false, and counts as not fulfilled.
    return fill(
        ", coalesce({0}, FALSE) AS seen, coalesce({1}, FALSE) AS writable",
        single_statement.before.seen,
        single_statement.before.writable,
    )


def write_allowed(single_statement: SingleStatement | None) -> Fragment:
    """Print, behind other conditions, that the caller may write the row."""
    if single_statement is None:
        return EMPTY
    return optional(" AND old.writable", when=single_statement.before)


def version_conditions(single_statement: SingleStatement | None) -> list[Fragment]:
    """Print the condition that the counters are still those under which the plan was made."""
    if single_statement is None:
        return []
    counters: list[Fragment] = []
    for number in range(VERSION_SLOTS):
        counters.append(param(Slot(single_statement.version + number), "bigint"))
    return [fill("(SELECT (v.structure, v.access, v.flows) = ({0}, {1}, {2}) FROM v)", *counters)]

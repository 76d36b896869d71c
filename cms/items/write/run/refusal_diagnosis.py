"""Diagnosis of a refused payload: the database is asked what else is wrong with it.

PostgreSQL stops at the first value that it refuses, while an answer lists everything that is wrong.
So after a refusal, by PostgreSQL or by the service, the transaction is undone, and PostgreSQL is
asked about all values, with one question for each column or check. A write without problems costs
no question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cms.database.connections import Row, single_values
from cms.database.error_mapping import Conflict, Stale, UnexpectedError, database_problem
from cms.errors import MAX_PROBLEMS, Problem, Refused
from cms.fragment import Fragment
from cms.items.write.run.conflicts import describe_check, with_field
from cms.items.write.stages.parsed import PendingKey
from cms.items.write.stages.problems import Problems, with_position
from cms.items.write.stages.resolved_rows import ResolvedRow
from cms.items.write.transaction.row_indexes import at_indexes
from cms.query.sql import diagnostic_queries
from cms.schema.model import Catalogue, CheckConstraint, Collection, Field, ForeignKey
from cms.schema.system import system_table
from cms.store.refusals import RunQuestion

MAX_QUESTIONS = 300
"""How many statements one inquiry runs at most: a refused call must not cost without limit."""


class _LimitReached(Exception):
    """No more questions are to be asked."""


class InquirySet(NamedTuple):
    """Rows of one collection whose values are asked about."""

    collection: Collection
    rows: Sequence[ResolvedRow]


class _UnfitValue(NamedTuple):
    """A value that the type of a column does not take, and PostgreSQL's message about it."""

    value: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class PayloadInquiry:
    """The inquiry about the rows of a payload.

    `is_permitted` says that the caller is known to be permitted to write the rows. Questions about
    other rows are asked only then, or if all rows are new. Otherwise the answers would reveal
    values of hidden rows: a unique value that is taken is reported, unless the changed row itself
    holds it.
    """

    catalogue: Catalogue
    sets: Sequence[InquirySet]
    is_permitted: bool = False

    def __call__(self, run_question: RunQuestion) -> list[Problem]:
        """Return the problems that the database finds in the payload, at most `MAX_PROBLEMS`."""
        run = _InquiryRun(
            self.catalogue,
            self.sets,
            run_question,
            may_check_rows=self.is_permitted or all(map(_is_all_new, self.sets)),
        )
        # The problems found until the limit are answered: more of them would not help the client.
        try:
            for row_set in self.sets:
                run.check_set(row_set)
        except _LimitReached:
            pass
        return run.problems[:MAX_PROBLEMS]


def refuse(
    problems: Problems, catalogue: Catalogue, sets: Iterable[InquirySet], *, is_permitted: bool
) -> None:
    """Raise `Refused` with the problems of a payload, if any, and an inquiry for more of them."""
    if problems.entries:
        problems.refuse(PayloadInquiry(catalogue, tuple(sets), is_permitted))


def inquire_on_conflict(
    conflict: Conflict, catalogue: Catalogue, sets: Sequence[InquirySet]
) -> None:
    """Let a conflict of a write ask about all rows of the write.

    The database reaches values only after the caller was found to be permitted to write them.
    """
    conflict.inquiry = PayloadInquiry(catalogue, sets, is_permitted=True)


def _is_all_new(row_set: InquirySet) -> bool:
    return all(row.is_new for row in row_set.rows)


@dataclass(slots=True)
class _InquiryRun:
    """An inquiry under way."""

    catalogue: Catalogue
    sets: Sequence[InquirySet]
    run_question: RunQuestion
    may_check_rows: bool
    problems: list[Problem] = field(default_factory=list)
    question_count: int = 0

    def check_set(self, row_set: InquirySet) -> None:
        """Ask about the rows of a set, first whether the types of columns take their values."""
        collection = row_set.collection
        columns: dict[str, _Values] = {}
        for column in collection.columns:
            columns[column.name] = _values_of(row_set, column)
        for column in collection.columns:
            if _has_own_rules(column):
                self._check_type(row_set, column, columns[column.name])
        for name, check in collection.checks.items():
            # Values of columns that were not sent are not known here.
            has_values = check.columns and all(columns.get(column) for column in check.columns)
            if check.expression and has_values:
                self._check_rule(row_set, name, check, columns)
        # Last, as values that do not fit their types have been left out by now.
        if self.may_check_rows:
            self._check_rows(row_set, columns)

    # Values

    def _check_type(self, row_set: InquirySet, column: Field, values: _Values) -> None:
        """Add problems for values that a type does not take, and remove them from `values`."""
        numbers_by_value: dict[str, list[int]] = {}
        for number, value in values.items():
            numbers_by_value.setdefault(value, []).append(number)
        for value, type_problem in self._unfit_values(column, list(numbers_by_value)):
            problem = describe_check(type_problem, row_set.collection)
            extensions = dict(problem.extensions)
            extensions.pop("fields", None)  # with_field names the one field
            problem = replace(problem, extensions=extensions)
            numbers = numbers_by_value[value]
            for number in numbers:
                del values[number]
            self._add_field_problems(problem, row_set, numbers[:MAX_PROBLEMS], column.name)

    def _unfit_values(self, column: Field, values: Sequence[str]) -> Iterator[_UnfitValue]:
        """Yield the values that a type does not take.

        PostgreSQL does not say which value of a list it refuses, so the list is halved.
        """
        try:
            if values:
                self._run_limited(diagnostic_queries.cast_all(column, values))
        except Conflict as conflict:
            if len(values) == 1:
                yield _UnfitValue(values[0], conflict.problems[0])
            else:
                # Of a thousand values a single bad one takes twenty questions.
                middle = len(values) // 2
                yield from self._unfit_values(column, values[:middle])
                yield from self._unfit_values(column, values[middle:])
        except (Refused, Stale, UnexpectedError):
            # The question itself failed, which says nothing about the values.
            return

    def _check_rule(
        self, row_set: InquirySet, name: str, check: CheckConstraint, columns: Mapping[str, _Values]
    ) -> None:
        """Add problems for rows that break a check, where they hold a value in all its columns."""
        collection = row_set.collection
        checked = [columns[column] for column in check.columns]
        numbers = _numbers_in_all(checked)
        values: list[list[str]] = []
        for column in checked:
            values.append(at_indexes(column, numbers))
        extensions = {"collection": collection.name, "constraint": name}
        problem = describe_check(database_problem("INVALID_PAYLOAD", extensions), collection)
        question = diagnostic_queries.rows_breaking(collection, check, values)
        breaking = self._answered_numbers(numbers, question)
        if len(check.columns) == 1:
            self._add_field_problems(problem, row_set, breaking, check.columns[0])
            return
        for number in breaking:
            self.problems.append(with_position(problem, row_set.rows[number].position))

    # Other rows

    def _check_rows(self, row_set: InquirySet, columns: Mapping[str, _Values]) -> None:
        collection = row_set.collection
        for column in collection.columns:
            values = columns[column.name]
            if not values:
                continue
            relation = self.catalogue.by_many.get((collection.name, column.name))
            if relation and relation.constraint and relation.key:
                self._check_foreign_key(row_set, column, relation.constraint, values)
            if _is_unique(column) and collection.primary_key:
                self._check_unique(row_set, column, values)

    def _check_foreign_key(
        self, row_set: InquirySet, column: Field, constraint: ForeignKey, values: _Values
    ) -> None:
        """Add problems for references to rows that neither exist nor are part of the call."""
        # The rows of the call do not exist yet, or not any more: its transaction was undone.
        written = self._written_values(constraint.foreign_table, constraint.foreign_columns[0])
        references: _Values = {}
        for number, value in values.items():
            if value not in written:
                references[number] = value
        question = diagnostic_queries.rows_dangling(column, constraint, list(references.values()))
        extensions = {
            "collection": row_set.collection.name,
            "field": column.name,
            "constraint": constraint.name,
        }
        problem = database_problem("INVALID_FOREIGN_KEY", extensions)
        dangling = self._answered_numbers(list(references), question)
        self._add_field_problems(problem, row_set, dangling, column.name)

    def _check_unique(self, row_set: InquirySet, column: Field, values: _Values) -> None:
        """Add problems for values that another row holds, unless the call changes that row too."""
        collection = row_set.collection
        row_numbers = list(values)
        texts = list(values.values())
        # A row of the call may give up its value in the same call.
        changed_keys = self._changed_keys(collection.name)
        # Positions in `texts`, which PostgreSQL counts from 1.
        taken: set[int] = set()
        question = diagnostic_queries.rows_holding(collection, column, texts)
        for position, key in self._answers(question):
            if key not in changed_keys:
                taken.add(position)
        # A row may repeat the value of a row before it in the call.
        repeated = self._answers(diagnostic_queries.rows_repeating(column, texts))
        taken.update(single_values(repeated))
        extensions = {"collection": collection.name, "field": column.name}
        problem = database_problem("RECORD_NOT_UNIQUE", extensions)
        first_taken = sorted(taken)[:MAX_PROBLEMS]
        numbers = _at_positions(row_numbers, first_taken)
        self._add_field_problems(problem, row_set, numbers, column.name)

    def _written_values(self, collection: str, column: str) -> set[str | None]:
        """Return the keys and the values in a column of the rows that the call writes."""
        values: set[str | None] = set()
        for row_set in self._sets_of(collection):
            for row in row_set.rows:
                values.add(row.values.get(column))
                # A changed row has its key beside its values.
                values.add(row.key)
        return values

    def _changed_keys(self, collection: str) -> set[str | None]:
        """Return the keys of the stored rows that the call changes."""
        keys: set[str | None] = set()
        for row_set in self._sets_of(collection):
            for row in row_set.rows:
                if not row.is_new:
                    keys.add(row.key)
        return keys

    def _sets_of(self, collection: str) -> list[InquirySet]:
        return [row_set for row_set in self.sets if row_set.collection.name == collection]

    def _add_field_problems(
        self, problem: Problem, row_set: InquirySet, numbers: Iterable[int], name: str
    ) -> None:
        """Add a problem of a field for each row of these numbers."""
        for number in numbers:
            row = row_set.rows[number]
            self.problems.append(with_field(problem, row, row_set.collection, name))

    # Questions

    def _answered_numbers(self, numbers: Sequence[int], question: Fragment) -> list[int]:
        """Return the numbers of the rows that a question answers by their position, from 1."""
        if not numbers:
            return []
        positions = single_values(self._answers(question)[:MAX_PROBLEMS])
        return _at_positions(numbers, positions)

    def _answers(self, question: Fragment) -> list[Row]:
        """Return the answers to a question; none where the database cannot answer it."""
        try:
            return self._run_limited(question)
        except (Refused, Stale, UnexpectedError):
            return []

    def _run_limited(self, question: Fragment) -> list[Row]:
        if self.question_count == MAX_QUESTIONS or len(self.problems) >= MAX_PROBLEMS:
            raise _LimitReached
        self.question_count += 1
        try:
            return self.run_question(question)
        except Refused as refused:
            # Without a connection, or after a timeout, further questions would only wait again.
            if refused.is_unavailable:
                raise _LimitReached from None
            raise


_Values = dict[int, str]
"""What rows hold in a column, by their numbers.

Rows that hold nothing are left out, and those whose value is not known yet.
"""


def _values_of(row_set: InquirySet, column: Field) -> _Values:
    values: _Values = {}
    for number, row in enumerate(row_set.rows):
        value = row.values.get(column.name)
        if value is not None and not isinstance(value, PendingKey):
            values[number] = value
    return values


def _numbers_in_all(columns: Sequence[_Values]) -> list[int]:
    """Return the numbers of the rows that hold a value in all columns."""
    first, *others = columns
    numbers: list[int] = []
    for number in first:
        if all(number in column for column in others):
            numbers.append(number)
    return numbers


def _at_positions(numbers: Sequence[int], positions: Iterable[int]) -> list[int]:
    """Return the numbers at positions, which PostgreSQL counts from 1."""
    return [numbers[position - 1] for position in positions]


def _is_unique(column: Field) -> bool:
    if column.column is not None and column.column.is_unique:
        return True
    return column.name in system_table(column.collection).unique_in_any_case


def _has_own_rules(field: Field) -> bool:
    """Tell whether the type of a column may refuse values that the service takes."""
    column = field.column
    if column is None:
        return False
    # Values of all other types, and choices, the service has checked itself.
    return (
        column.is_domain
        or column.element is not None
        or (field.type.is_text_form and not field.choices)
    )

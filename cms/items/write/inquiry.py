"""Asks the database what else is wrong with a payload that was refused.

PostgreSQL stops at the first value that it refuses. Once it has refused a row, or the service has
refused a payload, it is asked about all other values, with one question for each column or check.
A good write never comes here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cms.database.connections import Row
from cms.database.error_mapping import Conflict, Stale, UnexpectedError, database_problem
from cms.errors import MAX_PROBLEMS, STATUS, Problem, Refused
from cms.fragment import Fragment
from cms.items.write.changes import ChangeSet, RowChange, walk_change_sets
from cms.items.write.conflicts import describe_check, with_field, with_path
from cms.query.sql import questions
from cms.schema.auto_fields import PENDING_KEY
from cms.schema.model import Catalogue, Check, Collection, Field, ForeignKey
from cms.schema.system import system_table
from cms.store.refusals import RunQuestion

MAX_QUESTIONS = 300
"""How many statements one inquiry runs at most."""


class _LimitReached(Exception):
    """No more questions are to be asked."""


@dataclass(frozen=True, slots=True)
class PayloadInquiry:
    """The inquiry about the tree of a payload.

    What other rows hold is asked only where all rows are new, or the caller `is_permitted` to write
    them. Otherwise the answer could tell what a row holds that the caller may not even read: a
    unique value that is taken, and taken by that row itself.
    """

    catalogue: Catalogue
    root: ChangeSet
    is_permitted: bool = False

    def __call__(self, run_question: RunQuestion) -> list[Problem]:
        """Return the problems that the database has with the payload, as far as it can be asked."""
        change_sets = list(walk_change_sets(self.root))
        run = _InquiryRun(
            self.catalogue,
            change_sets,
            run_question,
            may_ask_about_rows=self.is_permitted or all(map(_is_all_new, change_sets)),
        )
        try:
            for change_set in change_sets:
                run.check_change_set(change_set)
        except _LimitReached:
            pass
        return run.problems[:MAX_PROBLEMS]


def _is_all_new(change_set: ChangeSet) -> bool:
    return all(change.is_new for change in change_set.changes)


@dataclass(slots=True)
class _InquiryRun:
    """An inquiry under way."""

    catalogue: Catalogue
    change_sets: Sequence[ChangeSet]
    run_question: RunQuestion
    may_ask_about_rows: bool
    problems: list[Problem] = field(default_factory=list)
    question_count: int = 0

    def check_change_set(self, change_set: ChangeSet) -> None:
        """Ask about the rows of a change set; values of no fitting type are asked about once."""
        collection = change_set.collection
        columns = {column.name: _values_of(change_set, column) for column in collection.columns}
        for column in collection.columns:
            if _has_own_rules(column):
                self._check_type(collection, column, columns[column.name])
        for name, check in collection.checks.items():
            has_values = check.columns and all(columns.get(column) for column in check.columns)
            if check.expression and has_values:
                self._check_rule(collection, name, check, columns)
        # Last, as values that do not fit their types have been left out by now.
        if self.may_ask_about_rows:
            self._check_rows(collection, columns)

    # Values

    def _check_type(self, collection: Collection, column: Field, values: _Values) -> None:
        """Add problems for values that a type does not take, and remove them from `values`."""
        changes_by_value: dict[str, list[RowChange]] = {}
        for change, value in values.items():
            changes_by_value.setdefault(value, []).append(change)
        for value, type_problem in self._unfit_values(column, list(changes_by_value)):
            problem = describe_check(type_problem, collection)
            extensions = dict(problem.extensions)
            extensions.pop("fields", None)  # with_field names the one field
            problem = replace(problem, extensions=extensions)
            changes = changes_by_value[value]
            for change in changes:
                del values[change]
            for change in changes[:MAX_PROBLEMS]:
                self.problems.append(with_field(problem, change, collection, column.name))

    def _unfit_values(self, column: Field, values: Sequence[str]) -> Iterator[tuple[str, Problem]]:
        """Yield the values that a type does not take; a list with such values is halved."""
        try:
            if values:
                self._ask(questions.cast_all(column, values))
        except Conflict as conflict:
            if len(values) == 1:
                yield values[0], conflict.problems[0]
            else:
                middle = len(values) // 2
                yield from self._unfit_values(column, values[:middle])
                yield from self._unfit_values(column, values[middle:])
        except (Refused, Stale, UnexpectedError):
            return

    def _check_rule(
        self, collection: Collection, name: str, check: Check, columns: Mapping[str, _Values]
    ) -> None:
        """Add problems for rows that break a check, where they hold a value in all its columns."""
        changes = [
            change
            for change in columns[check.columns[0]]
            if all(change in columns[column] for column in check.columns)
        ]
        rows = [[columns[column][change] for change in changes] for column in check.columns]
        extensions = {"collection": collection.name, "constraint": name}
        problem = describe_check(database_problem("INVALID_PAYLOAD", extensions), collection)
        question = questions.rows_breaking(collection, check, rows)
        for change in self._matching_changes(changes, question):
            if len(check.columns) == 1:
                column = check.columns[0]
                self.problems.append(with_field(problem, change, collection, column))
            else:
                self.problems.append(with_path(problem, change))

    # Other rows

    def _check_rows(self, collection: Collection, columns: Mapping[str, _Values]) -> None:
        for column in collection.columns:
            values = columns[column.name]
            if not values:
                continue
            relation = self.catalogue.by_many.get((collection.name, column.name))
            if relation and relation.constraint:
                self._check_foreign_key(collection, column, relation.constraint, values)
            if _is_unique(column) and collection.primary_key:
                self._check_unique(collection, column, values)

    def _check_foreign_key(
        self, collection: Collection, column: Field, constraint: ForeignKey, values: _Values
    ) -> None:
        """Add problems for references to rows that neither exist nor are part of the call."""
        # The rows of the call do not exist yet, or not any more: its transaction was undone.
        written = self._written_values(constraint.foreign_table, constraint.foreign_column)
        changes = [change for change, value in values.items() if value not in written]
        references = [values[change] for change in changes]
        question = questions.rows_dangling(column, constraint, references)
        extensions = {
            "collection": collection.name,
            "field": column.name,
            "constraint": constraint.name,
        }
        problem = database_problem("INVALID_FOREIGN_KEY", extensions)
        for change in self._matching_changes(changes, question):
            self.problems.append(with_field(problem, change, collection, column.name))

    def _check_unique(self, collection: Collection, column: Field, values: _Values) -> None:
        """Add problems for values that another row holds, unless the call changes that row too."""
        changes = list(values)
        rows = list(values.values())
        changed_keys = {
            change.key
            for change_set in self._change_sets_of(collection.name)
            for change in change_set.changes
            if not change.is_new
        }
        owners = self._answers(questions.rows_holding(collection, column, rows))
        numbers = {number for number, key in owners if key not in changed_keys}
        repeated = self._answers(questions.rows_repeating(column, rows))
        numbers.update(number for (number,) in repeated)
        extensions = {"collection": collection.name, "field": column.name}
        problem = database_problem("RECORD_NOT_UNIQUE", extensions)
        for number in sorted(numbers)[:MAX_PROBLEMS]:
            change = changes[number - 1]  # PostgreSQL counts from 1
            self.problems.append(with_field(problem, change, collection, column.name))

    def _written_values(self, collection: str, column: str) -> set[str | None]:
        """Return the keys and the values in a column of the rows that the call writes."""
        values: set[str | None] = set()
        for change_set in self._change_sets_of(collection):
            for change in change_set.changes:
                values.add(change.values.get(column))
                values.add(change.key)
        return values

    def _change_sets_of(self, collection: str) -> list[ChangeSet]:
        return [
            change_set
            for change_set in self.change_sets
            if change_set.collection.name == collection
        ]

    # Questions

    def _matching_changes(
        self, changes: Sequence[RowChange], question: Fragment
    ) -> list[RowChange]:
        """Return the first changes whose numbers are the answer to a question."""
        rows = self._answers(question) if changes else []
        return [changes[number - 1] for (number,) in rows[:MAX_PROBLEMS]]

    def _answers(self, question: Fragment) -> list[Row]:
        """Return the answers to a question; none where the database cannot answer it."""
        try:
            return self._ask(question)
        except (Refused, Stale, UnexpectedError):
            return []

    def _ask(self, question: Fragment) -> list[Row]:
        if self.question_count == MAX_QUESTIONS or len(self.problems) >= MAX_PROBLEMS:
            raise _LimitReached
        self.question_count += 1
        try:
            return self.run_question(question)
        except Refused as refused:
            if refused.status == STATUS["SERVICE_UNAVAILABLE"]:
                raise _LimitReached from None
            raise


_Values = dict[RowChange, str]
"""What rows hold in a column, without those that hold nothing, or what is not known yet."""


def _values_of(change_set: ChangeSet, column: Field) -> _Values:
    is_to_one = any(name == column.name for name, _ in change_set.to_one_fields)
    values: _Values = {}
    for change in change_set.changes:
        value = change.values.get(column.name)
        is_reference = is_to_one or change.parent_field == column.name
        if value is None or (value == PENDING_KEY and is_reference):
            continue
        values[change] = value
    return values


def _is_unique(column: Field) -> bool:
    if column.column is not None and column.column.is_unique:
        return True
    return column.name in system_table(column.collection).unique_in_any_case


def _has_own_rules(field: Field) -> bool:
    """Tell whether the type of a column may refuse values that the service takes."""
    column = field.column
    if column is None:
        return False
    return (
        column.is_domain
        or column.element is not None
        or (field.type.is_text_form and not field.choices)
    )

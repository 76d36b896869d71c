"""What else the database minds of a payload that was refused (decisions, section 2).

PostgreSQL stops at the first thing that it minds. Once it has refused a row, or the service has refused a payload, it
is asked about all the other values, a question for each column or check: a good write never comes here.
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
from cms.schema.system import UNIQUE_IN_ANY_CASE
from cms.store.refusals import RunQuestion

MAX_QUESTIONS = 300
"""How many statements an inquiry comes to."""


class _LimitReached(Exception):
    """Nothing more is to be asked."""


@dataclass(frozen=True, slots=True)
class PayloadInquiry:
    """The inquiry about a tree of drafts.

    What other rows hold is asked about only where all rows are new or the caller is known to be `is_permitted` to write
    them: of a row that somebody may not change it would tell that it holds a value that is taken itself.
    """

    catalogue: Catalogue
    root: ChangeSet
    is_permitted: bool = False

    def __call__(self, run_question: RunQuestion) -> list[Problem]:
        """Return what the database minds, as far as it can be asked."""
        change_sets = list(walk_change_sets(self.root))
        may_ask_about_rows = self.is_permitted or all(
            change.is_new for change_set in change_sets for change in change_set.changes
        )
        asking = _InquiryRun(
            self.catalogue, change_sets, run_question, may_ask_about_rows=may_ask_about_rows
        )
        try:
            for change_set in change_sets:
                asking.check_batch(change_set)
        except _LimitReached:
            pass
        return asking.problems[:MAX_PROBLEMS]


@dataclass(slots=True)
class _InquiryRun:
    """An inquiry under way."""

    catalogue: Catalogue
    change_sets: Sequence[ChangeSet]
    run_question: RunQuestion
    may_ask_about_rows: bool
    problems: list[Problem] = field(default_factory=list)
    questions: int = 0

    def check_batch(self, change_set: ChangeSet) -> None:
        """Ask about the rows of a batch; a value that its type does not take is asked about no further."""
        columns = {
            found.name: _values_of(change_set, found) for found in change_set.collection.columns
        }
        for found in change_set.collection.columns:
            if _has_own_rules(found):
                self._check_type(change_set.collection, found, columns[found.name])
        for name, check in change_set.collection.checks.items():
            if (
                check.expression
                and check.columns
                and all(columns.get(column) for column in check.columns)
            ):
                self._check_rule(change_set.collection, name, check, columns)
        if self.may_ask_about_rows:
            self._check_rows(change_set.collection, columns)

    def _check_type(self, collection: Collection, found: Field, values: _Values) -> None:
        changes: dict[str, list[RowChange]] = {}
        for change, value in values.items():
            changes.setdefault(value, []).append(change)
        for value, minded in self._unfit_values(found, list(changes)):
            problem = describe_check(minded, collection)
            extensions = {key: said for key, said in problem.extensions.items() if key != "fields"}
            problem = replace(problem, extensions=extensions)
            for change in changes[value]:
                del values[change]
            minding = changes[value][:MAX_PROBLEMS]
            self.problems += [
                with_field(problem, change, collection, found.name) for change in minding
            ]

    def _unfit_values(self, found: Field, values: Sequence[str]) -> Iterator[tuple[str, Problem]]:
        """Yield the values that a type does not take, by halves of those among which there is one."""
        try:
            if values:
                self._ask(questions.cast_all(found, values))
        except Conflict as conflict:
            if len(values) == 1:
                yield values[0], conflict.problems[0]
            else:
                yield from self._unfit_values(found, values[: len(values) // 2])
                yield from self._unfit_values(found, values[len(values) // 2 :])
        except (Refused, Stale, UnexpectedError):
            return

    def _check_rule(
        self, collection: Collection, name: str, check: Check, columns: Mapping[str, _Values]
    ) -> None:
        changes = [
            change
            for change in columns[check.columns[0]]
            if all(change in columns[name] for name in check.columns)
        ]
        rows = [[columns[name][change] for change in changes] for name in check.columns]
        plain = database_problem(
            "INVALID_PAYLOAD", {"collection": collection.name, "constraint": name}
        )
        problem = describe_check(plain, collection)
        for change in self._matching_drafts(
            changes, questions.rows_breaking(collection, check, rows)
        ):
            if len(check.columns) == 1:
                self.problems.append(with_field(problem, change, collection, check.columns[0]))
            else:
                self.problems.append(with_path(problem, change))

    def _check_rows(self, collection: Collection, columns: Mapping[str, _Values]) -> None:
        for found in collection.columns:
            values = columns[found.name]
            relation = self.catalogue.by_many.get((collection.name, found.name))
            if values and relation and relation.constraint:
                self._check_foreign_key(collection, found, relation.constraint, values)
            if values and _is_unique(found) and collection.primary_key:
                self._check_unique(collection, found, values)

    def _check_foreign_key(
        self, collection: Collection, found: Field, constraint: ForeignKey, values: _Values
    ) -> None:
        """Ask what points to nothing, but for what points to rows of the call itself."""
        own = self._written(constraint.foreign_table, constraint.foreign_column)
        changes = [change for change, value in values.items() if value not in own]
        question = questions.rows_dangling(
            found, constraint, [values[change] for change in changes]
        )
        extensions = {
            "collection": collection.name,
            "field": found.name,
            "constraint": constraint.name,
        }
        for change in self._matching_drafts(changes, question):
            self.problems.append(
                with_field(
                    database_problem("INVALID_FOREIGN_KEY", extensions),
                    change,
                    collection,
                    found.name,
                )
            )

    def _check_unique(self, collection: Collection, found: Field, values: _Values) -> None:
        """Ask what another row has; those of the call may give theirs up with it."""
        changes, rows = list(values), list(values.values())
        own = {
            change.key
            for change_set in self._batches(collection.name)
            for change in change_set.changes
            if not change.is_new
        }
        held = self._answers(questions.rows_holding(collection, found, rows))
        numbers = {number for number, key in held if key not in own}
        numbers.update(number for (number,) in self._answers(questions.rows_repeating(found, rows)))
        extensions = {"collection": collection.name, "field": found.name}
        for number in sorted(numbers)[:MAX_PROBLEMS]:
            problem = database_problem("RECORD_NOT_UNIQUE", extensions)
            self.problems.append(with_field(problem, changes[number - 1], collection, found.name))

    def _written(self, collection: str, column: str) -> set[str | None]:
        changes = [
            change for change_set in self._batches(collection) for change in change_set.changes
        ]
        return {change.values.get(column) for change in changes} | {
            change.key for change in changes
        }

    def _batches(self, collection: str) -> list[ChangeSet]:
        return [
            change_set
            for change_set in self.change_sets
            if change_set.collection.name == collection
        ]

    def _matching_drafts(self, changes: Sequence[RowChange], question: Fragment) -> list[RowChange]:
        """Return the first drafts whose numbers answer a question."""
        rows = self._answers(question) if changes else []
        return [changes[number - 1] for (number,) in rows[:MAX_PROBLEMS]]

    def _answers(self, question: Fragment) -> list[Row]:
        """Return the answers to a question; none where it cannot be answered."""
        try:
            return self._ask(question)
        except (Refused, Stale, UnexpectedError):
            return []

    def _ask(self, question: Fragment) -> list[Row]:
        if self.questions == MAX_QUESTIONS or len(self.problems) >= MAX_PROBLEMS:
            raise _LimitReached
        self.questions += 1
        try:
            return self.run_question(question)
        except Refused as refused:
            if refused.status == STATUS["SERVICE_UNAVAILABLE"]:
                raise _LimitReached from None
            raise


_Values = dict[RowChange, str]
"""What rows hold in a column, those left out that hold nothing, or what is not known yet."""


def _values_of(change_set: ChangeSet, found: Field) -> _Values:
    waits = any(name == found.name for name, _ in change_set.to_one_fields)
    values: _Values = {}
    for change in change_set.changes:
        value = change.values.get(found.name)
        if value is not None and not (
            value == PENDING_KEY and (waits or change.parent_field == found.name)
        ):
            values[change] = value
    return values


def _is_unique(found: Field) -> bool:
    return (
        bool(found.column and found.column.is_unique)
        or (found.collection, found.name) in UNIQUE_IN_ANY_CASE
    )


def _has_own_rules(found: Field) -> bool:
    """Tell whether there may be values that the service takes and the column's type does not."""
    column = found.column
    return column is not None and (
        column.is_domain or found.is_list or (found.is_text_form and not found.choices)
    )

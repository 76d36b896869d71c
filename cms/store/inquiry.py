"""What else the database minds of a payload that was refused (decisions, section 2).

PostgreSQL stops at the first thing that it minds. Once it has refused a row, or the service has refused a payload, it
is asked about all the other values, a question for each column or check: a good write never comes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cms.errors import MAX_TOLD, STATUS, Problem, Refused
from cms.fragment import Fragment
from cms.query import questions
from cms.query.drafts import Batch, Draft, batches_of
from cms.schema.model import Catalogue, Check, Collection, Constraint, Field
from cms.schema.specials import AWAITED
from cms.schema.system import UNIQUE_IN_ANY_CASE
from cms.store.border import Clash, Stale, Unforeseen, problem_of
from cms.store.clashes import of_check, placed, with_place
from cms.store.database import Row

MAX_QUESTIONS = 300
"""How many statements an inquiry comes to."""

Ask = Callable[[Fragment], list[Row]]
"""Runs a statement by itself, so that one that fails leaves nothing behind."""

_TELLABLE = {STATUS["INVALID_PAYLOAD"], STATUS["FAILED_VALIDATION"]}
_NAMED = ("operation", "field", "constraint")
_PLACE = ("operation", "index", "path", "field", "fields")


class _Enough(Exception):
    """Nothing more is to be asked."""


@dataclass(frozen=True, slots=True)
class PayloadInquiry:
    """The inquiry about a tree of drafts.

    What other rows hold is asked about only where all rows are new or the caller is known to be `permitted` to write
    them: of a row that somebody may not change it would tell that it holds a value that is taken itself.
    """

    catalogue: Catalogue
    root: Batch
    permitted: bool = False

    def __call__(self, ask: Ask) -> list[Problem]:
        """Return what the database minds, as far as it can be asked."""
        batches = list(batches_of(self.root))
        of_rows = self.permitted or all(draft.new for batch in batches for draft in batch.drafts)
        asking = _Asking(self.catalogue, batches, ask, of_rows=of_rows)
        try:
            for batch in batches:
                asking.look_at(batch)
        except _Enough:
            pass
        return asking.problems[:MAX_TOLD]


def completed(refused: Refused, ask: Ask) -> Refused:
    """Return a refusal with what its inquiry brings."""
    if refused.inquiry is None or len(refused.problems) >= MAX_TOLD or not _tells_of_values(refused):
        return refused
    later = refused.inquiry(ask)
    kept = [problem for problem in refused.problems if not any(_is_sharper(other, problem) for other in later)]
    more = [problem for problem in later if not any(_is_known(problem, known) for known in kept)]
    different = list({repr(problem): problem for problem in more}.values())  # many items may be one body's
    problems = sorted([*kept, *different], key=_index)
    return Refused(problems[:MAX_TOLD], total=refused.total + len(different))


def _tells_of_values(refused: Refused) -> bool:
    return all(STATUS[problem.code] in _TELLABLE for problem in refused.problems)


def _is_known(other: Problem, known: Problem) -> bool:
    """Tell whether a value that is told already is meant, or the same check of several."""
    if any(known.extensions.get(name) != other.extensions.get(name) for name in _PLACE):
        return False
    return "field" in known.extensions or (known.code, known.message) == (other.code, other.message)


def _is_sharper(other: Problem, known: Problem) -> bool:
    """Tell whether a problem names the value that PostgreSQL told the other of without naming it."""
    vague = "path" not in known.extensions and known.message == other.message and known.code == other.code
    return vague and all(known.extensions.get(name) in (None, other.extensions.get(name)) for name in _NAMED)


def _index(problem: Problem) -> int:
    index = problem.extensions.get("index")
    return index if isinstance(index, int) else 0


@dataclass(slots=True)
class _Asking:
    """An inquiry under way."""

    catalogue: Catalogue
    batches: Sequence[Batch]
    ask: Ask
    of_rows: bool
    problems: list[Problem] = field(default_factory=list)
    questions: int = 0

    def look_at(self, batch: Batch) -> None:
        """Ask about the rows of a batch; a value that its type does not take is asked about no further."""
        columns = {found.name: _values_of(batch, found) for found in batch.collection.columns}
        for found in batch.collection.columns:
            if _has_own_rules(found):
                self._look_at_type(batch.collection, found, columns[found.name])
        for name, check in batch.collection.checks.items():
            if check.expression and check.columns and all(columns.get(column) for column in check.columns):
                self._look_at_check(batch.collection, name, check, columns)
        if self.of_rows:
            self._look_at_rows(batch.collection, columns)

    def _look_at_type(self, collection: Collection, found: Field, values: _Values) -> None:
        drafts: dict[str, list[Draft]] = {}
        for draft, value in values.items():
            drafts.setdefault(value, []).append(draft)
        for value, minded in self._misfits(found, list(drafts)):
            problem = of_check(minded, collection)
            extensions = {key: said for key, said in problem.extensions.items() if key != "fields"}
            problem = replace(problem, extensions=extensions)
            for draft in drafts[value]:
                del values[draft]
            minding = drafts[value][:MAX_TOLD]
            self.problems += [placed(problem, draft, collection, found.name) for draft in minding]

    def _misfits(self, found: Field, values: Sequence[str]) -> Iterator[tuple[str, Problem]]:
        """Yield the values that a type does not take, by halves of those among which there is one."""
        try:
            if values:
                self._asked(questions.taking(found, values))
        except Clash as clash:
            if len(values) == 1:
                yield values[0], clash.problems[0]
            else:
                yield from self._misfits(found, values[: len(values) // 2])
                yield from self._misfits(found, values[len(values) // 2 :])
        except (Refused, Stale, Unforeseen):
            return

    def _look_at_check(self, collection: Collection, name: str, check: Check, columns: Mapping[str, _Values]) -> None:
        drafts = [draft for draft in columns[check.columns[0]] if all(draft in columns[name] for name in check.columns)]
        rows = [[columns[name][draft] for draft in drafts] for name in check.columns]
        plain = problem_of("INVALID_PAYLOAD", {"collection": collection.name, "constraint": name})
        problem = of_check(plain, collection)
        for draft in self._those(drafts, questions.breaking(collection, check, rows)):
            if len(check.columns) == 1:
                self.problems.append(placed(problem, draft, collection, check.columns[0]))
            else:
                self.problems.append(with_place(problem, draft))

    def _look_at_rows(self, collection: Collection, columns: Mapping[str, _Values]) -> None:
        for found in collection.columns:
            values = columns[found.name]
            relation = self.catalogue.by_many.get((collection.name, found.name))
            if values and relation and relation.constraint:
                self._look_at_key(collection, found, relation.constraint, values)
            if values and _is_unique(found) and collection.primary_key:
                self._look_at_others(collection, found, values)

    def _look_at_key(self, collection: Collection, found: Field, constraint: Constraint, values: _Values) -> None:
        """Ask what points to nothing, but for what points to rows of the call itself."""
        own = self._written(constraint.foreign_table, constraint.foreign_column)
        drafts = [draft for draft, value in values.items() if value not in own]
        question = questions.dangling(found, constraint, [values[draft] for draft in drafts])
        extensions = {"collection": collection.name, "field": found.name, "constraint": constraint.name}
        for draft in self._those(drafts, question):
            self.problems.append(placed(problem_of("INVALID_FOREIGN_KEY", extensions), draft, collection, found.name))

    def _look_at_others(self, collection: Collection, found: Field, values: _Values) -> None:
        """Ask what another row has; those of the call may give theirs up with it."""
        drafts, rows = list(values), list(values.values())
        own = {draft.key for batch in self._batches(collection.name) for draft in batch.drafts if not draft.new}
        held = self._answers(questions.holders(collection, found, rows))
        numbers = {number for number, key in held if key not in own}
        numbers.update(number for (number,) in self._answers(questions.repeated(found, rows)))
        extensions = {"collection": collection.name, "field": found.name}
        for number in sorted(numbers)[:MAX_TOLD]:
            problem = problem_of("RECORD_NOT_UNIQUE", extensions)
            self.problems.append(placed(problem, drafts[number - 1], collection, found.name))

    def _written(self, collection: str, column: str) -> set[str | None]:
        drafts = [draft for batch in self._batches(collection) for draft in batch.drafts]
        return {draft.values.get(column) for draft in drafts} | {draft.key for draft in drafts}

    def _batches(self, collection: str) -> list[Batch]:
        return [batch for batch in self.batches if batch.collection.name == collection]

    def _those(self, drafts: Sequence[Draft], question: Fragment) -> list[Draft]:
        """Return the first drafts whose numbers answer a question."""
        rows = self._answers(question) if drafts else []
        return [drafts[number - 1] for (number,) in rows[:MAX_TOLD]]

    def _answers(self, question: Fragment) -> list[Row]:
        """Return the answers to a question; none where it cannot be answered."""
        try:
            return self._asked(question)
        except (Refused, Stale, Unforeseen):
            return []

    def _asked(self, question: Fragment) -> list[Row]:
        if self.questions == MAX_QUESTIONS or len(self.problems) >= MAX_TOLD:
            raise _Enough
        self.questions += 1
        try:
            return self.ask(question)
        except Refused as refused:
            if refused.status == STATUS["SERVICE_UNAVAILABLE"]:
                raise _Enough from None
            raise


_Values = dict[Draft, str]
"""What rows hold in a column, those left out that hold nothing, or what is not known yet."""


def _values_of(batch: Batch, found: Field) -> _Values:
    waits = any(name == found.name for name, _ in batch.ones)
    values: _Values = {}
    for draft in batch.drafts:
        value = draft.values.get(found.name)
        if value is not None and not (value == AWAITED and (waits or draft.tied == found.name)):
            values[draft] = value
    return values


def _is_unique(found: Field) -> bool:
    return bool(found.column and found.column.unique) or (found.collection, found.name) in UNIQUE_IN_ANY_CASE


def _has_own_rules(found: Field) -> bool:
    """Tell whether there may be values that the service takes and the column's type does not."""
    column = found.column
    return column is not None and (column.is_domain or found.is_list or (found.is_text_form and not found.choices))

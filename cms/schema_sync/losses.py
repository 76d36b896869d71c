"""The deletions of a change of structure, and the data that is lost by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cms.errors import Problem, Refused, combined
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.records import Record
from cms.schema_sync.comparison import RecordDiff, of_section
from cms.schema_sync.content import TABLES
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, RecordName
from cms.structure.alterations import is_change_possible

_LOST_CONTENT = ("roles", "flows", "dashboards")


@dataclass(frozen=True, slots=True)
class Deletions:
    """The names of records to delete; those that cannot be changed are then created again."""

    collections: tuple[RecordName, ...]
    fields: tuple[RecordName, ...]
    relations: tuple[RecordName, ...]

    def __bool__(self) -> bool:
        return bool(self.collections or self.fields or self.relations)


def deletions_of(diffs: Sequence[RecordDiff], catalogue: Catalogue) -> Deletions:
    """Return the records that have to be deleted before anything else changes."""
    removed_fields = list(_fields(of_section(diffs, FIELDS), catalogue))
    removed_collections = list(_collections(of_section(diffs, COLLECTIONS)))
    # A table keeps its primary key as long as it is there.
    for collection, field in removed_fields:
        if field == catalogue.collections[collection].primary_key:
            removed_collections.append((collection,))
    collections = tuple(dict.fromkeys(removed_collections))
    fields = [name for name in removed_fields if name[:1] not in collections]
    relations = []
    for diff in of_section(diffs, RELATIONS):
        # The relation of a deleted table is deleted with the table.
        if _is_other_relation(diff) and diff.name[:1] not in collections:
            relations.append(diff.name)
    return Deletions(collections, tuple(fields), tuple(relations))


def _fields(diffs: Sequence[RecordDiff], catalogue: Catalogue) -> Iterator[RecordName]:
    for diff in diffs:
        if diff.before is None:
            continue
        collection, field = diff.name
        present = catalogue.collections[collection].fields[field]
        if diff.after is None or not is_change_possible(present, diff.after):
            yield diff.name


def _collections(diffs: Sequence[RecordDiff]) -> Iterator[RecordName]:
    for diff in diffs:
        if diff.before is None:
            continue
        # A folder has no table: to become one, or to lose it, a collection is created again.
        if diff.after is None or _is_folder(diff.before) != _is_folder(diff.after):
            yield diff.name


def _is_folder(record: Record) -> bool:
    return record["schema"] is None


def _is_other_relation(diff: RecordDiff) -> bool:
    if diff.before is None:
        return False
    if diff.after is None:
        return True
    return diff.before["related_collection"] != diff.after["related_collection"]


def require_no_loss(deletions: Deletions, collections: Mapping[str, Collection]) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT with each table and column that would be deleted."""
    problems = []
    for (name,) in deletions.collections:
        # Folders hold no items.
        if collections[name].kind is Kind.TABLE:
            problems.append(_loss(f'the items of "{name}"', collection=name))
    for collection, field in deletions.fields:
        # Nor do aliases hold values.
        if collections[collection].fields[field].column:
            subject = f'the values of "{collection}.{field}"'
            problems.append(_loss(subject, collection=collection, field=field))
    if problems:
        raise combined(problems)


def require_no_content_loss(diffs: Sequence[RecordDiff]) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT with each role, flow and dashboard to be deleted."""
    problems = []
    for section in _LOST_CONTENT:
        for diff in of_section(diffs, section):
            if diff.after is None:
                names = {"collection": TABLES[section], "name": diff.name[0]}
                problems.append(_loss(f'"{diff.name[0]}" of {section}', **names))
    if problems:
        raise combined(problems)


def loss_of_values(collection: str, field: str) -> Refused:
    """Return the refusal of a new type or size in which values of a field would be lost."""
    subject = f'values of "{collection}.{field}" that have no form in its new type or size'
    return Refused(_loss(subject, collection=collection, field=field))


def _loss(subject: str, **names: str) -> Problem:
    reason = f"It would delete {subject}: allow_destructive allows that"
    return Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason, **names})

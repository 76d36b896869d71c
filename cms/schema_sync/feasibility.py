"""Changes that are refused: those that cannot be made whatever the tables hold, found before any
change is made, and those that would delete data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from cms.errors import Problem, Refused, combined, invalid_payload
from cms.schema.definitions import parse_collection, parse_field
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.names import invalid_field_name_reason
from cms.schema.records import Record
from cms.schema_sync.comparison import (
    RecordDiff,
    create_payload,
    fields_by_collection,
    new_collection,
    of_section,
    update_payload,
)
from cms.schema_sync.content import TABLES
from cms.schema_sync.schema_snapshot import SchemaSnapshot
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS, RecordName
from cms.structure.alterations import checked, is_change_possible
from cms.structure.fields import require_extension


def require_possible(
    diffs: Sequence[RecordDiff], target: SchemaSnapshot, catalogue: Catalogue
) -> None:
    """Raise `Refused` with the problems of all new and changed records."""
    fields_of = fields_by_collection(target.sections[FIELDS])
    problems: list[Problem] = []
    for diff in of_section(diffs, COLLECTIONS):
        if diff.before is None and diff.after is not None:
            payload = new_collection(diff.after, fields_of.get(diff.name[0], []))
            with _collected(diff, problems):
                for field in parse_collection(payload).fields:
                    require_extension(field.type, catalogue)
    for diff in of_section(diffs, FIELDS):
        # Fields of new collections are made with these.
        if diff.after is not None and diff.name[0] in catalogue.collections:
            with _collected(diff, problems):
                _check_field(diff, diff.after, catalogue)
    for diff in of_section(diffs, RELATIONS):
        if diff.after is not None:
            with _collected(diff, problems):
                _check_relation(diff.after, target)
    if problems:
        raise combined(problems)


def _check_field(diff: RecordDiff, record: Record, catalogue: Catalogue) -> None:
    collection, name = diff.name
    owner = catalogue.collections[collection]
    present = owner.fields.get(name)
    if diff.before is None or (present and not is_change_possible(present, record)):
        definition = parse_field(create_payload(record, "field", "type"))
        require_extension(definition.type, catalogue)
    # One that is to be renamed has its former name still.
    elif present:
        members = ("type",) if diff.before["type"] != record["type"] else ()
        checked(owner, present, update_payload(diff, *members))


def _check_relation(record: Record, target: SchemaSnapshot) -> None:
    """Check the names of fields that are still to be made."""
    meta = record.get("meta")
    if not isinstance(meta, Mapping):
        return
    related = record.get("related_collection")
    for key in ("junction_field", "sort_field", "one_field"):
        owner = related if key == "one_field" else record["collection"]
        name = meta.get(key)
        if name is None or (owner, name) in target.sections[FIELDS]:
            continue
        reason = invalid_field_name_reason(name, is_alias=key == "one_field")
        if reason is not None:
            raise invalid_payload(f"meta.{key}: {reason}", field=f"meta.{key}")


@contextmanager
def _collected(diff: RecordDiff, problems: list[Problem]) -> Iterator[None]:
    """Add the problems of a refusal of the block to `problems`, as those of a record."""
    try:
        yield
    except Refused as refused:
        path = f"{diff.section}[{'.'.join(diff.name)}]"
        problems += [_below(path, problem) for problem in refused.problems]


def _below(path: str, problem: Problem) -> Problem:
    setting = problem.extensions.get("field")
    field = f"{path}.{setting}" if setting else path
    message = problem.message.removeprefix("Invalid payload. ")
    extensions = {**problem.extensions, "field": field}
    return replace(problem, message=f"Invalid payload. {path}: {message}", extensions=extensions)


# Deletions, and the data that is lost by them

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
        if field in catalogue.collections[collection].key_names:
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

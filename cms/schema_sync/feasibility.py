"""Changes that are refused whatever the tables hold, found before any change is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from cms.errors import Problem, Refused, combined, invalid_payload
from cms.schema.definitions import parse_collection, parse_field
from cms.schema.model import Catalogue
from cms.schema.names import invalid_field_name_reason
from cms.schema.records import Record
from cms.schema_sync.comparison import RecordDiff, of_section
from cms.schema_sync.record_payloads import (
    create_payload,
    fields_by_collection,
    new_collection,
    update_payload,
)
from cms.schema_sync.schema_snapshot import SchemaSnapshot
from cms.schema_sync.sections import COLLECTIONS, FIELDS, RELATIONS
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
            problems += _problems_at(diff, partial(_check_collection, payload, catalogue))
    for diff in of_section(diffs, FIELDS):
        # Fields of new collections are made with these.
        if diff.after is not None and diff.name[0] in catalogue.collections:
            problems += _problems_at(diff, partial(_check_field, diff, diff.after, catalogue))
    for diff in of_section(diffs, RELATIONS):
        if diff.after is not None:
            problems += _problems_at(diff, partial(_check_relation, diff.after, target))
    if problems:
        raise combined(problems)


def _check_collection(payload: Record, catalogue: Catalogue) -> None:
    for field in parse_collection(payload).fields:
        require_extension(field.type, catalogue)


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


def _problems_at(diff: RecordDiff, check: Callable[[], None]) -> list[Problem]:
    """Return the problems that a check finds in a record."""
    path = f"{diff.section}[{'.'.join(diff.name)}]"
    try:
        check()
    except Refused as refused:
        return [_below(path, problem) for problem in refused.problems]
    return []


def _below(path: str, problem: Problem) -> Problem:
    setting = problem.extensions.get("field")
    field = f"{path}.{setting}" if setting else path
    message = problem.message.removeprefix("Invalid payload. ")
    extensions = {**problem.extensions, "field": field}
    return replace(problem, message=f"Invalid payload. {path}: {message}", extensions=extensions)

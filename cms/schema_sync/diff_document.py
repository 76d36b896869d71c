"""Diffs as clients send them back: entries that turn one snapshot into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.errors import Problem, abbreviated, combined, fixed_structure, invalid_payload
from cms.mappings import without
from cms.schema.meta_settings import setting_problem, setting_value_problem, unknown_keys
from cms.schema.reasons import NO_ARRAY, NO_OBJECT, not_one_of
from cms.schema.records import Record
from cms.schema.system import is_system
from cms.schema_sync.comparison import ChangeKind, Path
from cms.schema_sync.content import TABLES
from cms.schema_sync.document import (
    RENAMED_FROM,
    Rename,
    in_words_of_service,
    inconsistencies,
    path_of,
    problems_of_record,
    require_writable,
)
from cms.schema_sync.schema_snapshot import SchemaSnapshot
from cms.schema_sync.sections import (
    COLLECTIONS,
    FIELDS,
    KEYS,
    NAMELESS,
    NO_NAME,
    RELATIONS,
    STRUCTURE,
    RecordName,
    is_name,
    record_name,
)

_SECTIONS = (*STRUCTURE, *TABLES)


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one record: of all of it where `path` is empty.

    `value` is None for a deletion.
    """

    kind: ChangeKind
    path: Path
    value: object = None


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """The edits of one record."""

    section: str
    name: RecordName
    where: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """A diff of a client: the hash of the state that it is for, and the edits of records.

    `include` has the sections of the state besides those of the structure.
    """

    hash: str
    include: tuple[str, ...]
    entries: tuple[DiffEntry, ...]
    renames: tuple[Rename, ...]

    @property
    def collections(self) -> frozenset[str]:
        """The collections that the diff names."""
        names: set[str] = set()
        for entry in self.entries:
            if entry.section in STRUCTURE:
                collection, *_ = entry.name
                names.add(collection)
        return frozenset(names)


def parse_diff(payload: Mapping[str, object]) -> Diff:
    """Read `{hash, diff}`; raises `Refused` INVALID_PAYLOAD with all its problems."""
    require_writable(payload)
    problems = unknown_keys(payload, ("hash", "diff", "ignored", "allow_destructive"))
    state_hash = payload.get("hash")
    if not isinstance(state_hash, str):
        problems.append(setting_problem("hash", "it must be that of the diff"))
    sections = payload.get("diff")
    if not isinstance(sections, Mapping):
        raise combined([*problems, setting_problem("diff", NO_OBJECT)])
    problems += unknown_keys(sections, _SECTIONS, "diff.")
    entries: list[DiffEntry] = []
    renames: list[Rename] = []
    for section in _SECTIONS:
        for index, record in enumerate(_array(sections, section, problems)):
            entry = _parse_entry(record, section, index, problems)
            if entry is not None:
                entries.append(entry)
                renames += _renames_of(record, entry, problems)
    if problems:
        raise combined(problems)
    include = tuple(section for section in TABLES if section in sections)
    return Diff(str(state_hash), include, tuple(entries), tuple(renames))


def _array(
    sections: Mapping[str, object], section: str, problems: list[Problem]
) -> Sequence[object]:
    entries = sections.get(section, [])
    if not isinstance(entries, list):
        problems.append(setting_problem(f"diff.{section}", NO_ARRAY))
        return ()
    return entries


def _parse_entry(
    record: object, section: str, index: int, problems: list[Problem]
) -> DiffEntry | None:
    if not isinstance(record, dict):
        problems.append(setting_problem(f"diff.{section}[{index}]", NO_OBJECT))
        return None
    where = path_of(record, section, index)
    members = (*KEYS[section], "diff", RENAMED_FROM, "related_collection")
    record_problems = unknown_keys(record, members, f"{where}.")
    collection = record.get("collection")
    if section in STRUCTURE and isinstance(collection, str) and is_system(collection):
        raise fixed_structure(collection)
    for key in KEYS[section]:
        if not is_name(section, key, record.get(key)):
            record_problems.append(setting_problem(f"{where}.{key}", NO_NAME))
    changes = record.get("diff")
    if not isinstance(changes, list):
        record_problems.append(setting_problem(f"{where}.diff", NO_ARRAY))
        changes = []
    edits: list[Edit] = []
    for change in changes:
        edit = _parse_edit(change, where, record_problems)
        if edit is not None:
            edits.append(edit)
    problems += record_problems
    if record_problems:
        return None
    name = record_name(section, _named_record(record, section))
    return DiffEntry(section, name, where, tuple(edits))


def _named_record(record: Record, section: str) -> Record:
    """Return what holds the name of a record: the entry, or all of a record without a name."""
    changes = record["diff"]
    if section not in NAMELESS or not isinstance(changes, list) or len(changes) != 1:
        return record
    (change,) = changes
    value = change.get("lhs" if change["kind"] == ChangeKind.DELETED else "rhs")
    if not isinstance(value, dict):
        return record
    names = {key: record[key] for key in KEYS[section]}
    return {**names, **value}


def _parse_edit(change: object, where: str, problems: list[Problem]) -> Edit | None:
    if not isinstance(change, dict):
        problems.append(setting_problem(f"{where}.diff", "each change must be an object"))
        return None
    problems += unknown_keys(change, ("kind", "path", "lhs", "rhs"), f"{where}.diff.")
    kind = change.get("kind")
    if kind not in list(ChangeKind):
        reason = not_one_of(ChangeKind)
        problems.append(setting_value_problem(f"{where}.diff.kind", reason, kind))
        return None
    path = change.get("path", [])
    if not isinstance(path, list) or not all(isinstance(step, str) for step in path):
        problems.append(setting_problem(f"{where}.diff.path", "it must be an array of texts"))
        return None
    if kind != ChangeKind.DELETED and "rhs" not in change:
        problems.append(setting_problem(f"{where}.diff.rhs", "it is missing"))
        return None
    return Edit(ChangeKind(kind), tuple(path), change.get("rhs"))


def _renames_of(record: object, entry: DiffEntry, problems: list[Problem]) -> list[Rename]:
    if not isinstance(record, Mapping) or record.get(RENAMED_FROM) is None:
        return []
    former = record[RENAMED_FROM]
    if not isinstance(former, str) or entry.section != FIELDS:
        reason = "it must be the former name of a field"
        problems.append(setting_problem(f"{entry.where}.{RENAMED_FROM}", reason))
        return []
    return [Rename(entry.name[0], former, entry.name[1])]


# Edits


def edited(snapshot: SchemaSnapshot, diff: Diff) -> SchemaSnapshot:
    """Return a snapshot with the edits of a diff; raises `Refused` INVALID_PAYLOAD where one does
    not fit.
    """
    sections: dict[str, dict[RecordName, Record]] = {}
    written: dict[str, dict[RecordName, Record]] = {}
    for section, present in snapshot.sections.items():
        sections[section] = dict(present)
        written[section] = {}
    problems: list[Problem] = []
    for entry in diff.entries:
        records = sections[entry.section]
        is_part_of_key = _is_part_of_key(records.get(entry.name))
        record = _edited_record(records.get(entry.name), entry)
        if record is None:
            records.pop(entry.name, None)
            continue
        record = in_words_of_service(record, entry.section, is_part_of_key=is_part_of_key)
        records[entry.name] = record
        written[entry.section][entry.name] = record
        problems += _problems_of_edited(record, entry)
    if problems:
        raise combined(problems)
    _drop_orphans(sections, written)
    problems = inconsistencies(sections)
    if problems:
        raise combined(problems)
    return SchemaSnapshot(sections)


def _is_part_of_key(record: Record | None) -> bool:
    """Tell whether the column of a field is one of several of the primary key."""
    schema = record.get("schema") if record else None
    if not isinstance(schema, Mapping):
        return False
    return schema.get("is_primary_key") is True and schema.get("is_unique") is False


def _edited_record(record: Record | None, entry: DiffEntry) -> Record | None:
    for edit in entry.edits:
        if edit.path:
            if record is None:
                raise invalid_payload(f"{entry.where}: there is no such record", field=entry.where)
            record = _with_edit(record, edit.path, edit, entry.where)
        elif edit.kind is ChangeKind.DELETED:
            record = None
        elif isinstance(edit.value, dict):
            record = edit.value
        else:
            raise invalid_payload(f"{entry.where}: rhs must be an object", field=entry.where)
    return record


def _with_edit(record: Record, path: Path, edit: Edit, where: str) -> Record:
    """Return a record with one value set or deleted; the record itself stays as it is."""
    key = path[0]
    if len(path) > 1:
        inner = record.get(key)
        if not isinstance(inner, dict):
            reason = f"{where}: there is nothing at {abbreviated('.'.join(edit.path))}"
            raise invalid_payload(reason, field=where)
        return {**record, key: _with_edit(inner, path[1:], edit, where)}
    if edit.kind is ChangeKind.DELETED:
        return without(record, (key,))
    return {**record, key: edit.value}


def _problems_of_edited(record: Record, entry: DiffEntry) -> list[Problem]:
    problems = problems_of_record(record, entry.section, entry.where)
    if not problems and record_name(entry.section, record) != entry.name:
        problems.append(setting_problem(entry.where, "rhs has another name"))
    if RENAMED_FROM in record:
        problems.append(setting_problem(f"{entry.where}.{RENAMED_FROM}", "it stands beside diff"))
    return problems


def _drop_orphans(
    sections: Mapping[str, dict[RecordName, Record]],
    written: Mapping[str, Mapping[RecordName, Record]],
) -> None:
    """Drop records of a deleted collection or field, unless the diff itself writes them."""
    for name in list(sections[FIELDS]):
        if name[:1] not in sections[COLLECTIONS] and name not in written[FIELDS]:
            del sections[FIELDS][name]
    for name in list(sections[RELATIONS]):
        if name not in sections[FIELDS] and name not in written[RELATIONS]:
            del sections[RELATIONS][name]

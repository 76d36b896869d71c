"""Roles, permissions, flows, dashboards and settings as records that name each other, without ids.

Values that differ between installations are left out: ids, dates, users, references to files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cms import jsontext
from cms.database.connections import Fetch, single_values
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.schema.model import Catalogue
from cms.schema.records import Record
from cms.schema.system import (
    DASHBOARDS,
    FLOWS,
    OPERATIONS,
    PANELS,
    PERMISSIONS,
    ROLES,
    SETTINGS,
)
from cms.schema_sync.sections import RecordsByName, record_name

TABLES: Mapping[str, str] = {
    "roles": ROLES,
    "permissions": PERMISSIONS,
    "flows": FLOWS,
    "dashboards": DASHBOARDS,
    "settings": SETTINGS,
}
"""The sections that a snapshot has on request, with their collections, in the order of a document.
"""

_STATEMENTS = {
    ROLES: "snapshot_roles",
    PERMISSIONS: "snapshot_permissions",
    FLOWS: "snapshot_flows",
    OPERATIONS: "snapshot_operations",
    DASHBOARDS: "snapshot_dashboards",
    PANELS: "snapshot_panels",
    SETTINGS: "snapshot_settings",
}

REGISTRATION_ROLE = "public_registration_role"
"""The setting that names a role."""

_OF_INSTALLATION = ("id", "date_created", "user_created")

ContentRow = Mapping[str, Any]


def read_rows(fetch: Fetch, collection: str) -> list[ContentRow]:
    """Return all rows of a system collection of which there is a statement."""
    texts = single_values(fetch(statement(_STATEMENTS[collection]), ()))
    rows: list[Any] = list(map(jsontext.loads_stored, texts))
    return rows


def read_content(
    sections: Iterable[str], fetch: Fetch, catalogue: Catalogue
) -> dict[str, RecordsByName]:
    """Return the records of sections, in the order of documents.

    Raises `Refused` UNPROCESSABLE_CONTENT for two records of one name.
    """
    requested = set(sections)
    reader = _ContentReader(fetch, catalogue)
    content: dict[str, RecordsByName] = {}
    for section in TABLES:
        if section in requested:
            content[section] = _by_unique_name(section, _RECORDS[section](reader))
    return content


def _by_unique_name(section: str, records: Sequence[Record]) -> RecordsByName:
    named: dict[tuple[str, ...], Record] = {}
    for record in sorted(records, key=lambda record: record_name(section, record)):
        name = record_name(section, record)
        # Two equal permissions allow no more than one.
        if name in named and named[name] != record:
            reason = f'{section}: there are two of the name "{".".join(name)}"; rename one of them'
            raise Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))
        named[name] = record
    return named


class _ContentReader:
    """Reads rows, and turns them into records."""

    def __init__(self, fetch: Fetch, catalogue: Catalogue) -> None:
        self._fetch = fetch
        self._catalogue = catalogue

    def rows(self, collection: str) -> list[ContentRow]:
        return read_rows(self._fetch, collection)

    def names(self, collection: str, key: str = "name") -> dict[str | None, str | None]:
        """Return the names of the rows of a collection, by their ids; None for no row."""
        names: dict[str | None, str | None] = {None: None}
        for row in self.rows(collection):
            names[row["id"]] = row[key]
        return names

    def record(self, collection: str, row: ContentRow, **values: object) -> Record:
        """Return a row without its references, with further values."""
        references = self._catalogue.by_many
        record: Record = {}
        for key, value in row.items():
            if key not in _OF_INSTALLATION and (collection, key) not in references:
                record[key] = value
        return {**record, **values}


def _roles(reader: _ContentReader) -> list[Record]:
    names = reader.names(ROLES)
    return [reader.record(ROLES, row, parent=names[row["parent"]]) for row in reader.rows(ROLES)]


def _permissions(reader: _ContentReader) -> list[Record]:
    roles = reader.names(ROLES)
    # The role comes first, because it names the permission to a reader of the document.
    return [
        {"role": roles[row["role"]], **reader.record(PERMISSIONS, row)}
        for row in reader.rows(PERMISSIONS)
    ]


def _settings(reader: _ContentReader) -> list[Record]:
    roles = reader.names(ROLES)
    return [
        {**reader.record(SETTINGS, row), REGISTRATION_ROLE: roles[row[REGISTRATION_ROLE]]}
        for row in reader.rows(SETTINGS)
    ]


def _flows(reader: _ContentReader) -> list[Record]:
    keys = reader.names(OPERATIONS, "key")
    flows = reader.names(FLOWS)
    operations: dict[str, list[Record]] = {}
    for row in sorted(reader.rows(OPERATIONS), key=lambda row: str(row["key"])):
        record = reader.record(
            OPERATIONS,
            row,
            resolve=keys[row["resolve"]],
            reject=keys[row["reject"]],
            options=with_flow(row["type"], row["options"], flows),
        )
        operations.setdefault(row["flow"], []).append(record)
    records = []
    for row in reader.rows(FLOWS):
        parts = operations.get(row["id"], [])
        first = keys[row["operation"]]
        records.append(reader.record(FLOWS, row, operation=first, operations=parts))
    return records


def with_flow(operation_type: object, options: object, names: Mapping[Any, object]) -> object:
    """Return the options of an operation with the flow that it runs under another name."""
    if operation_type != "trigger" or not isinstance(options, dict):
        return options
    flow = options.get("flow")
    # A template says only in a run which flow that is.
    if not flow or flow not in names:
        return options
    return {**options, "flow": names[flow]}


def _dashboards(reader: _ContentReader) -> list[Record]:
    panels: dict[str, list[Record]] = {}
    for row in sorted(reader.rows(PANELS), key=_panel_order):
        siblings = panels.setdefault(row["dashboard"], [])
        siblings.append(reader.record(PANELS, row))
    return [
        reader.record(DASHBOARDS, row, panels=panels.get(row["id"], []))
        for row in reader.rows(DASHBOARDS)
    ]


def _panel_order(row: ContentRow) -> tuple[object, ...]:
    return (row["position_y"], row["position_x"], row["type"], row["name"] or "")


_RECORDS: Mapping[str, Callable[[_ContentReader], list[Record]]] = {
    "roles": _roles,
    "permissions": _permissions,
    "flows": _flows,
    "dashboards": _dashboards,
    "settings": _settings,
}

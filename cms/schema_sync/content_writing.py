"""Roles, permissions, flows, dashboards and settings written as records name them.

Each is written by the same code as a request, with its checks and its history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.database.connections import Transaction
from cms.errors import abbreviated, invalid_payload
from cms.flows.definition.flow import ENDS
from cms.items.write import item_writes
from cms.items.write.calls import CHANGE, CREATE, DELETE, PUT, WriteCall, WriteIntent, new_call
from cms.mappings import without
from cms.schema.records import Record
from cms.schema.system import DASHBOARDS, FLOWS, OPERATIONS, PERMISSIONS, ROLES, SETTINGS
from cms.schema_sync.comparison import RecordDiff, of_section
from cms.schema_sync.content import REGISTRATION_ROLE, TABLES, read_rows, with_flow
from cms.schema_sync.sections import RecordName, name_of
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo
from cms.store.store import Store
from cms.store.write_attempts import PartOfTransaction


@dataclass(frozen=True)
class ContentWriter:
    """Reads and writes system collections in a transaction."""

    store: Store
    transaction: Transaction
    context: RequestContext
    client: ClientInfo

    def keys(self, collection: str) -> dict[str, str]:
        """Return the ids of rows by their names."""
        keys = {}
        for row in read_rows(self.transaction.execute, collection):
            keys[str(row["name"])] = str(row["id"])
        return keys

    def operation_keys(self, flow: str) -> dict[str, str]:
        """Return the ids of the operations of a flow by their keys."""
        keys = {}
        for row in read_rows(self.transaction.execute, OPERATIONS):
            if row["flow"] == flow:
                keys[str(row["key"])] = str(row["id"])
        return keys

    def create(self, collection: str, item: Record) -> None:
        item_writes.create(self._call(collection, CREATE), [item])

    def update(self, collection: str, key: str, item: Record) -> None:
        item_writes.update(self._call(collection, CHANGE), key, item)

    def save_singleton(self, collection: str, item: Record) -> None:
        item_writes.update_singleton(self._call(collection, PUT), item)

    def delete(self, collection: str, key: str) -> None:
        item_writes.delete(self._call(collection, DELETE), key)

    def _call(self, collection: str, intent: WriteIntent) -> WriteCall:
        return new_call(
            self.store,
            self.context,
            self.client,
            PartOfTransaction(self.transaction),
            name=collection,
            intent=intent,
        )


def write_content(writer: ContentWriter, diffs: Sequence[RecordDiff]) -> None:
    """Write the differences: first records that others name, deletions last."""
    _save_roles(writer, of_section(diffs, "roles"))
    _save_permissions(writer, of_section(diffs, "permissions"))
    for diff in of_section(diffs, "settings"):
        if diff.after is not None:
            _save_settings(writer, diff.after)
    _save_flows(writer, of_section(diffs, "flows"))
    _save_dashboards(writer, of_section(diffs, "dashboards"))
    for section in ("dashboards", "flows", "roles"):
        keys = writer.keys(TABLES[section])
        for diff in of_section(diffs, section):
            if diff.after is None:
                writer.delete(TABLES[section], keys[diff.name[0]])


def _key_of(keys: Mapping[str, str], name: object, field: str) -> str | None:
    """Return the id of the row that a record names; raises `Refused` INVALID_PAYLOAD."""
    if name is None:
        return None
    if not isinstance(name, str) or name not in keys:
        raise invalid_payload(f'There is no {field} "{abbreviated(name)}"', field=field)
    return keys[name]


def _saved(
    writer: ContentWriter, collection: str, diffs: Sequence[RecordDiff], *later: str
) -> list[Record]:
    """Create or change rows without some of their values, and return the records of all of them."""
    keys = writer.keys(collection)
    records = []
    for diff in diffs:
        if diff.after is None:
            continue
        item = without(diff.after, later)
        if diff.before is None:
            writer.create(collection, item)
        else:
            writer.update(collection, keys[diff.name[0]], item)
        records.append(diff.after)
    return records


def _save_roles(writer: ContentWriter, diffs: Sequence[RecordDiff]) -> None:
    records = _saved(writer, ROLES, diffs, "parent")
    # By now all roles exist, so that each can name its parent, whatever their order.
    keys = writer.keys(ROLES)
    for record in records:
        if "parent" in record:
            parent = _key_of(keys, record["parent"], "role")
            writer.update(ROLES, keys[str(record["name"])], {"parent": parent})


def _save_permissions(writer: ContentWriter, diffs: Sequence[RecordDiff]) -> None:
    if not diffs:
        return
    # All values of a permission are its name. So none is changed: one is deleted, and another one
    # created.
    roles = writer.keys(ROLES)
    stored = _stored_permissions(writer, roles)
    for diff in diffs:
        if diff.after is None:
            # Those of a role that was deleted are gone with it.
            for key in stored.get(diff.name, ()):
                writer.delete(PERMISSIONS, key)
        elif diff.before is None:
            role = _key_of(roles, diff.after.get("role"), "role")
            writer.create(PERMISSIONS, {**diff.after, "role": role})


def _stored_permissions(
    writer: ContentWriter, roles: Mapping[str, str]
) -> dict[RecordName, list[str]]:
    """Return the ids of permissions by their names; several may be equal."""
    role_names = {key: name for name, key in roles.items()}
    stored: dict[RecordName, list[str]] = {}
    for row in read_rows(writer.transaction.execute, PERMISSIONS):
        record = {**row, "role": role_names.get(row["role"])}
        del record["id"]
        keys = stored.setdefault(name_of("permissions", record), [])
        keys.append(str(row["id"]))
    return stored


def _save_settings(writer: ContentWriter, record: Record) -> None:
    item = dict(record)
    if REGISTRATION_ROLE in item:
        role = item[REGISTRATION_ROLE]
        item[REGISTRATION_ROLE] = _key_of(writer.keys(ROLES), role, "role")
    writer.save_singleton(SETTINGS, item)


def _save_dashboards(writer: ContentWriter, diffs: Sequence[RecordDiff]) -> None:
    records = _saved(writer, DASHBOARDS, diffs, "panels")
    keys = writer.keys(DASHBOARDS)
    for record in records:
        # Nothing refers to panels, so all of them are replaced.
        panels = record.get("panels", [])
        key = keys[str(record["name"])]
        writer.update(DASHBOARDS, key, {"panels": panels})


def _save_flows(writer: ContentWriter, diffs: Sequence[RecordDiff]) -> None:
    records = _saved(writer, FLOWS, diffs, "operation", "operations")
    flows = writer.keys(FLOWS)
    for record in records:
        key = flows[str(record["name"])]
        operations = objects(record.get("operations", []), "operations")
        present = writer.operation_keys(key)
        items = [_operation_item(operation, present, flows) for operation in operations]
        writer.update(FLOWS, key, {"operations": items})
        # The operations are linked when all of them exist: any of them may name any other.
        made = writer.operation_keys(key)
        links: list[Record] = []
        for operation in operations:
            link: Record = {"id": made[str(operation["key"])]}
            for end in ENDS:
                link[end] = _key_of(made, operation.get(end), "operation")
            links.append(link)
        first = _key_of(made, record.get("operation"), "operation")
        writer.update(FLOWS, key, {"operation": first, "operations": {"update": links}})


def _operation_item(
    operation: Record, present: Mapping[str, str], flows: Mapping[str, str]
) -> Record:
    """Return an operation as an item, without its ends: they may not be there yet."""
    item = without(operation, ENDS)
    item["options"] = with_flow(item.get("type"), item.get("options"), flows)
    key = present.get(str(item.get("key")))
    if key:
        item["id"] = key
    return item


def objects(value: object, name: str) -> list[Record]:
    """Return a list of objects; raises `Refused` INVALID_PAYLOAD for anything else."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise invalid_payload(f"{name} must be an array of objects", field=name)
    return value

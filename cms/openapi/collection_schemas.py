"""The schemas of the rows of collections, with examples, as one caller reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cms.access.policy import FULL_GRANT, Policy, StoredGrant
from cms.access.visible_structure import described_catalogue
from cms.openapi.json_schemas import (
    ANYTHING,
    ITEM_KEY,
    KEYS,
    OBJECT,
    TEXT,
    JsonSchema,
    any_of,
    array_of,
    component_part,
    described,
    nullable,
    object_of,
    reference,
)
from cms.openapi.operation import Need
from cms.openapi.row_operations import RowSchemas, TitledRows
from cms.query.language.ast import EVERYTHING
from cms.schema.auto_fields import auto_fields_of
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.schema.system import CREATE_ONLY, FILES, FOLDERS, SERVER_OWNED
from cms.schema.types.field_type import JSON_TEXT
from cms.text_shapes import MASK

ROW = "Row"
"""The component that stands for the rows of any collection."""

_ANY_ROW = reference(ROW)
_PREFIXES: Mapping[str, str] = {"read": "Item", "create": "NewItem", "update": "ItemChange"}
"""The beginnings of the names of components, by the permission that their rows need."""

_NOT_SENT: Mapping[tuple[str, str], frozenset[str]] = MappingProxyType(
    {(FILES, "create"): SERVER_OWNED, (FILES, "update"): SERVER_OWNED | CREATE_ONLY}
)
"""Fields that the service sets, by collection and action."""

_LIST_CHANGE = described(
    object_of(
        optional={
            "create": array_of(OBJECT),
            "update": array_of(OBJECT),
            "delete": KEYS,
        }
    ),
    "What changes in the list.",
)


@dataclass(frozen=True, slots=True)
class VisibleCollections:
    """The collections that a caller may know; `catalogue` has the described part only.

    `whole` is the catalogue with all that exists, which no answer may show.
    """

    policy: Policy
    whole: Catalogue
    catalogue: Catalogue

    @classmethod
    def of(cls, policy: Policy, catalogue: Catalogue) -> VisibleCollections:
        return cls(policy, catalogue, described_catalogue(policy, catalogue))

    def allows(self, need: Need) -> bool:
        """Tell whether the caller has some permission for an action on a collection."""
        return bool(self.grants(need.collection, need.action))

    def grants(self, name: str, action: str) -> tuple[StoredGrant, ...]:
        if self.policy.is_admin:
            return (FULL_GRANT,)
        return self.policy.granted(name, action)

    def shows_every_row(self, name: str) -> bool:
        """Tell whether no row of a collection is hidden from the caller."""
        if self.policy.shared:
            return False
        return any(grant.rule == EVERYTHING for grant in self.grants(name, "read"))

    def fields(self, collection: Collection, action: str) -> list[Field]:
        """Return the fields of a described collection that an action is permitted for."""
        grants = self.grants(collection.name, action)
        fields = collection.fields.values()
        return [field for field in fields if any(grant.covers(field.name) for grant in grants)]

    def schema(self, name: str, action: str) -> JsonSchema:
        """Return the reference to the schema of rows of a collection; nothing for a hidden one."""
        collection = self.catalogue.collections.get(name)
        if collection is None or not self.has_component(collection, action):
            return _ANY_ROW
        return reference(_component(name, action))

    def has_component(self, collection: Collection, action: str) -> bool:
        if collection.kind is Kind.FOLDER or not self.grants(collection.name, action):
            return False
        # Files and folders have calls of their own, by which they are written.
        is_sent = action in collection.writable_actions or collection.name in (FILES, FOLDERS)
        return action == "read" or is_sent

    def rows(self, name: str, title: str) -> TitledRows:
        """Return the rows of a collection as operations describe them."""
        schemas = RowSchemas(*(self.schema(name, action) for action in _PREFIXES))
        return TitledRows(title, schemas, name)


def _component(name: str, action: str) -> str:
    return f"{_PREFIXES[action]}_{component_part(name)}"


def row_components(visible: VisibleCollections) -> dict[str, JsonSchema]:
    """Return the schemas of the rows of all collections by the names of their components."""
    components: dict[str, JsonSchema] = {ROW: described(OBJECT, "A row with its fields.")}
    for name, collection in visible.catalogue.collections.items():
        for action, schema_of in _ROW_SCHEMAS.items():
            if visible.has_component(collection, action):
                components[_component(name, action)] = schema_of(visible, collection)
    return components


# Rows as they are answered


def _item(visible: VisibleCollections, collection: Collection) -> JsonSchema:
    """Return the schema of a row that is read; `fields` decides which members there are."""
    members: dict[str, JsonSchema] = {}
    for field in visible.fields(collection, "read"):
        # Null also stands for a value that the caller may not read in this row.
        members[field.name] = _with_note(nullable(_answered(visible, field)), field)
    item = dict(_with_comment(object_of(optional=members), collection))
    # Generators of types look for the rows of a collection by it.
    item["x-collection"] = collection.name
    return _with_example(item, collection, members)


def _answered(visible: VisibleCollections, field: Field) -> JsonSchema:
    targets = [visible.schema(name, "read") for name in targets_of(visible.catalogue, field)]
    if is_list(visible.catalogue, field):
        return array_of(any_of(ITEM_KEY, *targets) if targets else ANYTHING)
    own = value_schema(field)
    # The key by itself, or the row that it is of where `fields` asks for more.
    if targets and own:
        return any_of(own, *targets)
    return own


def value_schema(field: Field) -> JsonSchema:
    """Return the schema of a value of the field itself, whatever it is related to."""
    if field.is_secret:
        text = {**TEXT, "examples": [MASK]}
        return described(text, "A mask where there is a value; the value is never shown.")
    if field.choices:
        return {"type": "string", "enum": list(field.choices)}
    schema = field.type.json_schema
    max_length = field.column and field.column.max_length
    # The length of a column says nothing of values that are not its text, such as lists.
    if schema is JSON_TEXT and max_length:
        return {**schema, "maxLength": max_length}
    return schema


# Rows as they are sent


def _new_item(visible: VisibleCollections, collection: Collection) -> JsonSchema:
    sent = dict(_sent(visible, collection, "create"))
    required = _required(visible, collection)
    if required:
        sent["required"] = required
    return _with_example(sent, collection, _example_names(visible, collection, "create", required))


def _changed_item(visible: VisibleCollections, collection: Collection) -> JsonSchema:
    sent = _sent(visible, collection, "update")
    return _with_example(sent, collection, _example_names(visible, collection, "update"))


def _with_example(schema: JsonSchema, collection: Collection, names: Iterable[str]) -> JsonSchema:
    # Many texts of the service's own collections are words that it knows, as those of `status`.
    return schema if collection.is_system else _with_row(schema, names)


def _example_names(
    visible: VisibleCollections, collection: Collection, action: str, required: Sequence[str] = ()
) -> list[str]:
    """Return the fields of an example that is sent: the required ones, and plain values.

    Without keys, which would have to be those of rows that are there.
    """
    names: list[str] = []
    for field in _sent_fields(visible, collection, action):
        is_key = field.name in collection.key_names or bool(targets_of(visible.catalogue, field))
        if field.name in required or not is_key:
            names.append(field.name)
    return names


def _required(visible: VisibleCollections, collection: Collection) -> list[str]:
    """Return the fields that a new row must name: nothing else fills them."""
    presets: set[str] = set()
    for grant in visible.grants(collection.name, "create"):
        presets |= set(grant.presets)
    # Of the whole collection: the described part of it may lack its key.
    auto_fields = auto_fields_of(visible.whole.collections[collection.name], new=True)
    automatic = {field.name for field, _ in auto_fields.automatic}
    filled = {*presets, *automatic, *auto_fields.uuids, *auto_fields.archive_defaults}
    needed = {field.name for field in auto_fields.required} - filled
    return [field.name for field in visible.fields(collection, "create") if field.name in needed]


def _sent_fields(visible: VisibleCollections, collection: Collection, action: str) -> list[Field]:
    not_sent = _NOT_SENT.get((collection.name, action), frozenset())
    fields: list[Field] = []
    for field in visible.fields(collection, action):
        is_generated = field.column is not None and field.column.is_generated
        if not is_generated and field.name not in not_sent:
            fields.append(field)
    return fields


def _sent(visible: VisibleCollections, collection: Collection, action: str) -> JsonSchema:
    members = sent_members(visible, collection.name, action)
    return _with_comment(object_of(optional=members), collection)


def sent_members(visible: VisibleCollections, name: str, action: str) -> dict[str, JsonSchema]:
    """Return the fields that the caller may send for an action, with their schemas."""
    members: dict[str, JsonSchema] = {}
    collection = visible.catalogue.collections.get(name)
    if collection is not None:
        for field in _sent_fields(visible, collection, action):
            members[field.name] = _with_note(_sent_value(visible, field), field)
    return members


def _sent_value(visible: VisibleCollections, field: Field) -> JsonSchema:
    if is_list(visible.catalogue, field):
        return nullable(any_of(array_of(any_of(ITEM_KEY, OBJECT)), _LIST_CHANGE))
    # A secret takes any text; only answers have a mask in its place.
    own = TEXT if field.is_secret else value_schema(field)
    if own and targets_of(visible.catalogue, field):
        own = any_of(own, described(OBJECT, "A row to create, or to change if it has its key."))
    may_be_null = any(part.column is None or part.column.is_nullable for part in field.key_fields)
    return nullable(own) if may_be_null else own


_ROW_SCHEMAS = {"read": _item, "create": _new_item, "update": _changed_item}
"""The functions that make the schemas of rows, by the permission that these need."""

# Relations


def targets_of(catalogue: Catalogue, field: Field) -> list[str]:
    """Return the collections that a field leads to, as far as the catalogue has them."""
    key = field.collection, field.name
    relation = catalogue.by_many.get(key)
    if relation is None:
        reverse = catalogue.by_one.get(key)
        return [reverse.many_collection] if reverse else []
    if relation.one_collection:
        return [relation.one_collection]
    return list(relation.one_allowed_collections or ())


def is_list(catalogue: Catalogue, field: Field) -> bool:
    """Tell whether a field is a list of rows that point to its own row."""
    return (field.collection, field.name) in catalogue.by_one


def _with_note(schema: JsonSchema, field: Field) -> JsonSchema:
    note = field.meta.get("note") if field.meta else None
    if isinstance(note, str) and note:
        return described(schema, note)
    return schema


def _with_comment(schema: JsonSchema, collection: Collection) -> JsonSchema:
    note = collection.meta.get("note") if collection.meta else collection.comment
    if isinstance(note, str) and note:
        return described(schema, note)
    return schema


# Examples of rows, made of the schemas of their fields

_TEXT_EXAMPLE = "text"
_ENCODED = "dGV4dA=="
_FORMATS: Mapping[object, str] = MappingProxyType(
    {
        "date": "2025-01-31",
        "date-time": "2025-01-31T13:45:00Z",
        "uuid": "5e0c39b4-0b0e-4d5c-8a0e-0d3f1b6a7c11",
    }
)


def _with_row(schema: JsonSchema, names: Iterable[str]) -> JsonSchema:
    """Return the schema of rows with an example of one, which has the members of these names."""
    members: Any = schema["properties"]
    row = {name: example_of(members[name]) for name in names}
    return {**schema, "examples": [row]} if row else schema


def example_of(schema: Mapping[str, Any]) -> object:
    """Return a value that a schema permits: one that it names, else one of its type."""
    for choices in ("examples", "enum"):
        if schema.get(choices):
            return schema[choices][0]
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0])
    match _type_of(schema):
        case "integer":
            return 1
        case "number":
            return 1.5
        case "boolean":
            return True
        case "array":
            return [example_of(schema["items"])] if "items" in schema else []
        case "object":
            return {}
        case _:
            return _text(schema)


def _type_of(schema: Mapping[str, Any]) -> object:
    """Return the type of a schema; of several the last, since null says least."""
    types = schema.get("type")
    if isinstance(types, list):
        return next(name for name in reversed(types) if name != "null")
    return types


def _text(schema: Mapping[str, Any]) -> str:
    if "contentEncoding" in schema:
        return _ENCODED
    text = _FORMATS.get(schema.get("format"), _TEXT_EXAMPLE)
    return text[: schema.get("maxLength", len(text))]

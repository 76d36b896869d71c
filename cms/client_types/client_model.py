"""The collections as clients read them, from which types are printed in each language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from unicodedata import normalize

from cms.openapi.collection_schemas import (
    VisibleCollections,
    is_list,
    targets_of,
    value_schema,
)
from cms.openapi.json_schemas import JsonSchema
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.names import NAME
from cms.schema.types.date_times import DATE, DATETIME, TIME, TIMESTAMP

_TIMES = frozenset(field_type.name for field_type in (DATE, TIME, DATETIME, TIMESTAMP))


@dataclass(frozen=True, slots=True)
class ClientField:
    """A field: the schema of its own values, and the collections whose rows it may hold.

    `schema` is that of one key where the field is a list of rows. `is_time` is true of dates and
    times, which are texts.
    """

    name: str
    schema: JsonSchema
    targets: tuple[str, ...]
    is_list: bool
    is_nullable: bool
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class ClientCollection:
    name: str
    is_singleton: bool
    fields: tuple[ClientField, ...]


def client_collections(visible: VisibleCollections) -> list[ClientCollection]:
    """Return the collections that the caller may read, with the fields that it may read."""
    collections: list[ClientCollection] = []
    for collection in visible.catalogue.collections.values():
        if visible.has_component(collection, "read"):
            fields = tuple(_client_fields(visible, collection))
            collections.append(ClientCollection(collection.name, collection.is_singleton, fields))
    return collections


def _client_fields(visible: VisibleCollections, collection: Collection) -> Iterable[ClientField]:
    # One permission may show a field in other rows than another does: it is null in the rest.
    has_masks = len(visible.grants(collection.name, "read")) > 1
    for field in visible.fields(collection, "read"):
        names = targets_of(visible.catalogue, field)
        targets = tuple(name for name in names if _is_readable(visible, name))
        if is_list(visible.catalogue, field):
            key = _key_schema(visible.whole, names[0])
            yield ClientField(field.name, key, targets, is_list=True, is_nullable=False)
        elif field.has_value:
            parts = (part.column for part in field.key_fields)
            is_null_by_itself = has_masks or any(part.is_nullable for part in parts if part)
            is_nullable = is_null_by_itself or _may_lead_nowhere(visible, field, targets)
            yield ClientField(
                field.name,
                value_schema(field),
                targets,
                is_list=False,
                is_nullable=is_nullable,
                is_time=field.type.name in _TIMES,
            )


def _may_lead_nowhere(visible: VisibleCollections, field: Field, targets: tuple[str, ...]) -> bool:
    """Tell whether the row that a field names may be hidden or missing, and so be null."""
    relation = visible.whole.by_many.get((field.collection, field.name))
    if relation is None:
        return False
    # Without a constraint the row may be missing, whatever the caller may see; so it may while the
    # stored rows of a large table are not checked.
    is_unchecked = field.column is not None and field.column.has_unchecked_key
    if relation.constraint is None or is_unchecked:
        return bool(targets)
    return not all(map(visible.shows_every_row, targets))


def _is_readable(visible: VisibleCollections, name: str) -> bool:
    collection = visible.catalogue.collections.get(name)
    return collection is not None and visible.has_component(collection, "read")


def _key_schema(catalogue: Catalogue, name: str) -> JsonSchema:
    collection = catalogue.collections[name]
    # Rows without a key are listed by other values, whose type is not known here.
    if not collection.primary_key:
        return {}
    return value_schema(collection.key)


def type_names(
    collections: Iterable[ClientCollection], reserved: frozenset[str]
) -> Mapping[str, str]:
    """Return the name of the type of each collection: `blog_posts` is `BlogPosts`.

    No two are equal, and none is one of the `reserved` names of a language.
    """
    names: dict[str, str] = {}
    taken = set(reserved)
    for collection in sorted(collections, key=_naming_order):
        name = _unused(_type_name(collection.name), taken)
        names[collection.name] = name
        taken.add(name)
    return names


def _naming_order(collection: ClientCollection) -> tuple[bool, bool, str]:
    # `blog_posts` is `BlogPosts`, also where there are tables `BlogPosts` and `blog-posts`.
    name = collection.name
    return NAME.fullmatch(name) is None, not name.islower(), name


def _type_name(collection: str) -> str:
    words = "".join(map(_or_blank, collection)).split()
    joined = "".join(map(_capitalized, words))
    # To Python, letters that are written in different ways, such as those of full width, are equal.
    name = normalize("NFKC", joined)
    if name.isidentifier():
        return name
    return f"Type{name}"


def _or_blank(character: str) -> str:
    # Characters that no identifier may hold separate words, as `_` does.
    if f"a{character}".isidentifier() and character != "_":
        return character
    return " "


def _capitalized(word: str) -> str:
    # Other than str.capitalize(), which would make the other letters small.
    return word[0].upper() + word[1:]


def _unused(name: str, taken: set[str]) -> str:
    candidate = name
    number = 2
    while candidate in taken:
        candidate = f"{name}{number}"
        number += 1
    return candidate

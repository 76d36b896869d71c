"""A small catalogue for tests without a database: books with an author, pages, and a topic of any
kind.
"""

from __future__ import annotations

from cms.items.write.stages.parsed import Expects
from cms.query.plan.links import link_of, target_collections
from cms.schema.model import Catalogue, Collection, Column, Field, Kind, Relation
from cms.schema.payload import ItemParser
from cms.schema.types import ALIAS, TYPES

BASE_TYPES = {"integer": "int4", "string": "varchar"}


def column(
    name: str,
    kind: str,
    base_type: str = "",
    *,
    is_nullable: bool = True,
    is_primary_key: bool = False,
) -> Column:
    """A column without a default and without limits; a key is counted up."""
    return Column(
        name,
        kind,
        base_type or kind,
        default=None,
        max_length=None,
        precision=None,
        scale=None,
        is_nullable=is_nullable and not is_primary_key,
        is_generated=False,
        has_auto_increment=is_primary_key,
        comment=None,
        is_unique=is_primary_key,
        is_primary_key=is_primary_key,
    )


def field(collection: str, name: str, kind: str) -> Field:
    """A field that may be null, unless it is the key; an alias has no column."""
    if kind == "alias":
        return Field(collection, name, ALIAS)
    key = column(name, kind, BASE_TYPES[kind], is_primary_key=name == "id")
    return Field(collection, name, TYPES[kind], (), key)


def collection(name: str, /, *, kind: Kind = Kind.TABLE, **fields: str) -> Collection:
    """A collection with an integer `id` and fields of these types."""
    names = {"id": "integer", **fields}
    made = {key: field(name, key, names[key]) for key in names}
    return Collection(name, kind, made, made["id"])


AUTHORS = collection("authors", name="string", agent="integer", books="alias")
BOOKS = collection(
    "books",
    title="string",
    author="integer",
    sequel="integer",
    country="integer",
    pages="alias",
    topic="string",
    topic_kind="string",
)
PAGES = collection("pages", text="string", book="integer", position="integer")
TOPICS = collection("topics", name="string")
COUNTRIES = collection("countries", kind=Kind.VIEW, name="string")

LIBRARY = Catalogue.of(
    1,
    {known.name: known for known in (AUTHORS, BOOKS, PAGES, TOPICS, COUNTRIES)},
    (
        Relation("books", "author", "authors", "books"),
        Relation("books", "sequel", "books"),
        Relation("books", "country", "countries"),
        Relation("authors", "agent", "authors"),
        Relation(
            "pages",
            "book",
            "books",
            "pages",
            sort_field="position",
            order_field="position",
            one_deselect_action="delete",
        ),
        Relation(
            "books",
            "topic",
            None,
            one_collection_field="topic_kind",
            one_allowed_collections=("topics", "authors"),
        ),
    ),
)


def item_parser(of: Collection, expects: Expects) -> ItemParser:
    """The parser for a caller who may name every field."""

    def relates(name: str) -> bool:
        return bool(link_of(LIBRARY, of, name) or target_collections(LIBRARY, of, name))

    return ItemParser(of, relates)

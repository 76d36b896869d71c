"""The catalogue: collections, fields and relations as one frozen value (specification, sections 2.2 to 2.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cms.schema.referential_actions import ReferentialActions
from cms.schema.system import WRITABLE_COLLECTIONS
from cms.schema.types import MASKED_SQL, TYPES, Family, Type

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Column:
    """What PostgreSQL knows of a column."""

    name: str
    data_type: str
    base_type: str
    default: str | None
    max_length: int | None
    precision: int | None
    scale: int | None
    is_nullable: bool
    is_generated: bool
    auto_increment: bool
    comment: str | None
    is_unique: bool = False
    is_indexed: bool = False
    primary_key: bool = False
    foreign_table: str | None = None
    foreign_column: str | None = None
    cast: str = ""
    """The type without its domain and its length: a cast to those would cut a value, or fill it up, without a word."""
    choices: tuple[str, ...] | None = None
    """The values of an enum type."""
    element: str | None = None
    """The type of the elements, where it is an array of a type that lists are made of."""
    is_domain: bool = False

    @property
    def is_filled_by_database(self) -> bool:
        """Whether the database has a value for it where none is sent."""
        return self.default is not None or self.auto_increment or self.is_generated


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its column, or none when it is an alias, and what `system_fields` says of it."""

    collection: str
    name: str
    type_name: str
    special: tuple[str, ...] = ()
    column: Column | None = None
    meta: Json | None = None

    @property
    def type(self) -> Type:
        return TYPES[self.type_name]

    @property
    def value(self) -> str:
        """The template of SQL that makes of its column a value of its type."""
        if self.is_list:
            return "to_json({0})"
        if self.is_text_form:
            return "abbrev({0})" if self.is_inet else "{0}::text"
        return "({0} <> 0)" if self.is_numeric_boolean else "{0}"

    @property
    def is_text_form(self) -> bool:
        """Whether what is read and written is the text of a type that PostgreSQL alone knows."""
        return self.type_name == "unknown" or bool(self.choices)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that an enum type takes; none for any other type."""
        return (self.column and self.column.choices) or ()

    @property
    def is_list(self) -> bool:
        """Whether its column is an array."""
        return self.column is not None and self.column.element is not None

    @property
    def is_inet(self) -> bool:
        """Whether it holds an address, whose text as PostgreSQL casts it has a mask that nobody wrote.

        Keys are named by that text, and what points to them has to hold the same.
        """
        column = self.column
        return bool(
            column
            and column.base_type == "inet"
            and not column.primary_key
            and not column.foreign_table
        )

    @property
    def is_numeric_boolean(self) -> bool:
        """Whether it is a boolean that is stored as a number."""
        return (
            self.type_name == "boolean"
            and self.column is not None
            and self.column.base_type != "bool"
        )

    @property
    def is_secret(self) -> bool:
        """Whether its value may never be shown, sorted by, searched or compared (decisions, section 4)."""
        return self.type_name == "hash" or "conceal" in self.special

    @property
    def searched(self) -> bool:
        """Whether a search looks into it (decisions, section 4)."""
        told = self.meta.get("searchable") if self.meta else None
        fits = self.type.family in (Family.TEXT, Family.NUMBER, Family.UUID)
        return self.column is not None and fits and not self.is_secret and told is not False

    @property
    def show(self) -> str:
        """The template of SQL that shows its value."""
        return MASKED_SQL if self.is_secret else self.type.show

    @property
    def has_sequence(self) -> bool:
        """Whether it is a whole number that a sequence fills where none is sent."""
        column = self.column
        return (
            column is not None
            and column.auto_increment
            and not column.is_generated
            and self.type.cast == "bigint"
        )


@dataclass(frozen=True, slots=True)
class Check:
    """A rule of the database's for values of some columns: of the table's, or of the domains that they are of.

    `expression` is the condition as SQL over the table's columns; a domain has none.
    """

    columns: tuple[str, ...]
    rule: str
    expression: str | None = None


class Kind(StrEnum):
    """Where a collection's rows live."""

    TABLE = "table"
    VIEW = "view"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class Collection:
    """A table, a view, or a folder (a record with nothing behind it)."""

    name: str
    kind: Kind
    fields: Mapping[str, Field]
    primary_key: str | None
    meta: Json | None = None
    comment: str | None = None
    system: bool = False
    has_side_effects: bool = False
    """Whether the database does more at a write than what it says: by triggers, by keys that it carries on."""
    former_history: Mapping[str, int] = field(default_factory=dict)
    """Up to which ids activity and revisions tell of a collection that had its name before."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """The checks of the table by their names."""

    @property
    def key(self) -> Field:
        """The field of the primary key; only for collections that have one."""
        return self.fields[str(self.primary_key)]

    @property
    def accountability(self) -> str | None:
        """What a write leaves in the history: `all`, `activity` (no revision) or nothing."""
        found = self.meta.get("accountability", "all") if self.meta else "all"
        return found if isinstance(found, str) else None

    @property
    def is_singleton(self) -> bool:
        return bool(self.meta and self.meta.get("singleton"))

    @property
    def group(self) -> str | None:
        """The collection under which this one is listed."""
        found = self.meta.get("group") if self.meta else None
        return found if isinstance(found, str) else None

    @property
    def sort_field(self) -> str | None:
        """The field of manual sorting, when it is set and there."""
        found = self.meta.get("sort_field") if self.meta else None
        return found if isinstance(found, str) and found in self.fields else None

    @property
    def archive_field(self) -> Field | None:
        """The field that tells archived items from active ones, when it is set and there."""
        return self.fields.get(str(self.meta.get("archive_field"))) if self.meta else None

    @property
    def writable(self) -> bool:
        """Views, tables without a primary key of one column, and most of the system's tables can only be read."""
        return (
            self.kind is Kind.TABLE
            and self.primary_key is not None
            and (not self.system or self.name in WRITABLE_COLLECTIONS)
        )

    @property
    def has_secrets(self) -> bool:
        """Whether a field is secret. What is sent for another one may be its value in the wrong place."""
        return any(found.is_secret for found in self.fields.values())

    @property
    def columns(self) -> Iterator[Field]:
        return (found for found in self.fields.values() if found.column)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The foreign key behind a relation."""

    name: str
    table: str
    column: str
    foreign_table: str
    foreign_column: str
    on_update: str
    on_delete: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as its record says it; `one_collection` is None for many-to-any.

    `junction_field` and `sort_field` may name what is not there yet; `order` is the sort field once it is a column.
    """

    many_collection: str
    many_field: str
    one_collection: str | None
    one_field: str | None = None
    one_collection_field: str | None = None
    one_allowed_collections: tuple[str, ...] | None = None
    junction_field: str | None = None
    sort_field: str | None = None
    order: str | None = None
    one_deselect_action: str = "nullify"
    id: int | None = None
    constraint: ForeignKey | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """The two counters of `system_version`: what a plan and an actor were made under."""

    structure: int
    access: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that is known of the database's structure at one version."""

    structure: int
    collections: Mapping[str, Collection]
    relations: tuple[Relation, ...]
    extensions: frozenset[str] = frozenset()
    by_many: Mapping[tuple[str, str], Relation] = field(default_factory=dict)
    by_one: Mapping[tuple[str, str], Relation] = field(default_factory=dict)
    actions: ReferentialActions = field(default_factory=ReferentialActions)
    reserved_tables: tuple[str, ...] = ()
    """Tables of others that are no collections, because their names are kept for the service's own."""

    @classmethod
    def of(
        cls,
        structure: int,
        collections: Mapping[str, Collection],
        relations: tuple[Relation, ...],
        *,
        extensions: frozenset[str] = frozenset(),
        actions: ReferentialActions | None = None,
    ) -> Catalogue:
        """Make a catalogue with its relations findable from either side."""
        by_many = {(found.many_collection, found.many_field): found for found in relations}
        by_one = {
            (found.one_collection, found.one_field): found
            for found in relations
            if found.one_collection and found.one_field
        }
        return cls(
            structure,
            collections,
            relations,
            extensions,
            by_many,
            by_one,
            actions or ReferentialActions(),
        )

    def relations_of(self, collection: str) -> tuple[Relation, ...]:
        """Return the relations that have the collection on either side."""
        return tuple(
            found
            for found in self.relations
            if collection in (found.many_collection, found.one_collection)
        )

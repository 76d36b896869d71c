"""The catalogue: collections, fields and relations as one frozen value."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from cachebox import LRUCache

from cms.schema.key_texts import key_text, key_values
from cms.schema.referential_actions import ReferentialActions
from cms.schema.system import system_table
from cms.schema.types import MASKED_SQL
from cms.schema.types.field_type import FieldType, Search

Json = Mapping[str, object]

MAX_VIEWS = 10_000
"""Views of collections in the cache of a catalogue, of all policies together."""


class BuildKind(StrEnum):
    """What a column of a large table may be asked to have, which is built in the background."""

    INDEX = "index"
    UNIQUE = "unique"
    FOREIGN_KEY = "foreign_key"
    """The check of a foreign key for rows that were there before it."""
    SEARCH = "search"
    """An index for searches."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column as PostgreSQL describes it."""

    name: str
    data_type: str
    """The type as format_type() of PostgreSQL prints it, `character varying(20)`."""
    base_type: str
    """The name of the type, `varchar`; of a domain, the name of the type that it restricts."""
    default: str | None
    max_length: int | None
    precision: int | None
    scale: int | None
    is_nullable: bool
    is_generated: bool
    has_auto_increment: bool
    comment: str | None
    is_unique: bool = False
    is_indexed: bool = False
    requested_builds: frozenset[str] = frozenset()
    """The kinds of builds that were asked for; what is there by now may still be among them."""
    has_unchecked_key: bool = False
    """Whether the column has a foreign key that stored rows may violate."""
    search_index: str | None = None
    """The index that finds texts which contain a word."""
    useless_search_index: str | None = None
    """One that serves no search: of whole words, as former versions made them, or of a collation
    that another program has changed since."""
    is_primary_key: bool = False
    foreign_table: str | None = None
    foreign_column: str | None = None
    cast: str = ""
    """The type without its domain and length: a cast to those would silently cut or pad a value."""
    choices: tuple[str, ...] | None = None
    """The values of an enum type."""
    element: str | None = None
    """The type of the elements of an array that clients read and write as a list."""
    is_domain: bool = False
    is_nondeterministic: bool = False
    """Whether its collation takes different texts for equal ones, as one that ignores case."""

    @property
    def is_index_pending(self) -> bool:
        """Whether an index was asked for that is not there yet."""
        return BuildKind.INDEX in self.requested_builds and not self.is_indexed

    @property
    def is_unique_pending(self) -> bool:
        """Whether the column was asked to be unique and is not yet."""
        return BuildKind.UNIQUE in self.requested_builds and not self.is_unique

    @property
    def is_foreign_key_pending(self) -> bool:
        """Whether a foreign key is to be checked for stored rows and is not yet."""
        return BuildKind.FOREIGN_KEY in self.requested_builds and self.has_unchecked_key

    @property
    def pending_builds(self) -> frozenset[BuildKind]:
        """What was asked for and is not there yet, without indexes for searches."""
        pending = {
            BuildKind.INDEX: self.is_index_pending,
            BuildKind.UNIQUE: self.is_unique_pending,
            BuildKind.FOREIGN_KEY: self.is_foreign_key_pending,
        }
        return frozenset(kind for kind, is_pending in pending.items() if is_pending)

    @property
    def is_search_indexed(self) -> bool:
        """Whether an index finds texts that contain a word."""
        return self.search_index is not None

    @property
    def is_filled_by_database(self) -> bool:
        """Whether the database fills the column where a client sends no value."""
        return self.default is not None or self.has_auto_increment or self.is_generated


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its column (None for an alias) and its record in `system_fields`."""

    collection: str
    name: str
    type: FieldType
    special: tuple[str, ...] = ()
    column: Column | None = None
    meta: Json | None = None
    parts: tuple[Field, ...] = ()
    """The fields of a key of several columns, in the order of its constraint; see `keys.py`."""

    def __hash__(self) -> int:
        # Settings are no part of it: they are dictionaries.
        return hash((self.collection, self.name))

    @property
    def key_fields(self) -> tuple[Field, ...]:
        """The fields of the columns, if the field is that of a key: itself, or its parts."""
        return self.parts or (self,)

    @property
    def set_fields(self) -> tuple[Field, ...]:
        """Those of `key_fields` that writes set: the database fills generated columns of keys."""
        if not self.parts:
            return (self,)
        return tuple(part for part in self.parts if part.column and not part.column.is_generated)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of an enum type; empty for any other type."""
        return (self.column and self.column.choices) or ()

    @property
    def is_secret(self) -> bool:
        """Whether the value must never be shown, sorted by, searched or compared."""
        if self.type.seal is not None or "conceal" in self.special:
            return True
        return any(part.is_secret for part in self.parts)

    @property
    def has_value(self) -> bool:
        """Whether rows hold a value of the field, in its own column or in those of its parts."""
        return self.column is not None or bool(self.parts)

    @property
    def is_required(self) -> bool:
        """Whether its settings ask for a value."""
        return bool(self.meta and self.meta.get("required"))

    @property
    def takes_null(self) -> bool:
        """Whether rows may be without a value of the field."""
        if self.is_required:
            return False
        if self.parts:
            return any(part.takes_null for part in self.parts)
        return self.column is not None and self.column.is_nullable

    @property
    def is_searchable(self) -> bool:
        """Whether searches look into the field."""
        # A search that finds a secret would reveal it.
        if self.column is None or self.is_secret:
            return False
        if self.meta and self.meta.get("searchable") is False:
            return False
        return self.type.search is not Search.NONE

    @property
    def searches_related(self) -> bool:
        """Whether searches look into the items that the field leads to, if it is a relation."""
        return bool(self.meta and self.meta.get("searchable")) and not self.is_secret

    @property
    def search_weight(self) -> int:
        """How much a searched word counts in the field, when items are sorted by relevance."""
        weight = self.meta and self.meta.get("search_weight")
        if isinstance(weight, int):
            return weight
        return 1

    @property
    def json_sql(self) -> str:
        """The SQL template that shows the value in an answer."""
        # The mask tells whether there is a value; the value itself never leaves the database.
        if self.is_secret:
            return MASKED_SQL
        return self.type.json_sql

    @property
    def has_sequence(self) -> bool:
        """Whether the field is a whole number that a sequence fills where a client sends none."""
        column = self.column
        return (
            column is not None
            and column.has_auto_increment
            # GENERATED ALWAYS takes no value from anybody, so nothing can get ahead of its
            # sequence.
            and not column.is_generated
            and self.type.is_whole_number
        )


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A CHECK constraint of a table, or of a domain that the columns have as their type.

    `expression` is the condition as SQL over the table's columns; None for a domain.
    """

    columns: tuple[str, ...]
    rule: str
    expression: str | None = None


VERSION_COLUMN = "xmin"
"""PostgreSQL's own column of every table: the transaction that wrote the row."""

WRITE_ACTIONS = frozenset({"create", "update", "delete"})
"""The actions that write items."""


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
    primary_key: Field | None
    """The field of the one column, or one with `parts` that is none of `fields`."""
    meta: Json | None = None
    comment: str | None = None
    is_system: bool = False
    has_side_effects: bool = False
    """Whether a write may change more than its row: by triggers, or by keys with ON UPDATE."""
    former_history: Mapping[str, int] = field(default_factory=dict)
    """The last ids of activity and revisions of a dropped collection that had the same name."""
    checks: Mapping[str, CheckConstraint] = field(default_factory=dict)
    """The checks of the table by their names."""
    triggered_actions: frozenset[str] = frozenset()
    """The actions that INSTEAD OF triggers of a view do."""
    key_name: str = field(init=False, compare=False)
    """The name of the primary key; empty without one, and for one of several columns."""
    key_names: tuple[str, ...] = field(init=False, compare=False)
    """The names of the primary key's columns, in the order of the constraint."""
    references: tuple[Field, ...] = field(init=False, compare=False)
    """The fields of foreign keys of several columns."""
    is_singleton: bool = field(init=False, compare=False)
    writable_actions: frozenset[str] = field(init=False, compare=False)
    """Those of `WRITE_ACTIONS` that items can be written by.

    There are none for tables without a primary key, and for most system tables. Those of a view are
    the ones that it has INSTEAD OF triggers for.
    """

    def __post_init__(self) -> None:
        # Attributes, as every request asks for them.
        key = self.primary_key
        names = tuple(field.name for field in key.key_fields) if key else ()
        object.__setattr__(self, "key_name", key.name if key else "")
        object.__setattr__(self, "key_names", names)
        references = tuple(field for field in self.fields.values() if field.parts)
        object.__setattr__(self, "references", references)
        object.__setattr__(self, "writable_actions", _writable_actions(self))
        object.__setattr__(self, "is_singleton", bool(self.meta and self.meta.get("singleton")))

    @property
    def is_writable(self) -> bool:
        """Whether items can be written by any action."""
        return bool(self.writable_actions)

    @property
    def has_versions(self) -> bool:
        """Whether items have a version that tells whether they have changed.

        Those of a view have one if it shows PostgreSQL's column of the table beneath as its own.
        """
        if self.primary_key is None or self.kind is Kind.FOLDER:
            return False
        return self.kind is Kind.TABLE or any(each.name == VERSION_COLUMN for each in self.columns)

    @property
    def key(self) -> Field:
        """The field of the primary key; only for collections that have one."""
        assert self.primary_key
        return self.primary_key

    def key_of(self, values: Mapping[str, str | None]) -> str | None:
        """Return the key among the values of a row, None where it or a part of it is missing."""
        if self.key_name:
            return values.get(self.key_name)
        parts = [values.get(name) for name in self.key_names]
        return key_text(parts) if parts else None

    def keys_of(self, rows: Iterable[Mapping[str, str | None]]) -> list[str | None]:
        """Return the keys among the values of rows, which may be thousands."""
        if self.key_name:
            return [values.get(self.key_name) for values in rows]
        return list(map(self.key_of, rows))

    def key_values(self, key: str) -> dict[str, str]:
        """Return the values of the columns of a key."""
        if self.key_name:
            return {self.key_name: key}
        return dict(zip(self.key_names, key_values(key), strict=True))

    @property
    def accountability(self) -> str | None:
        """The history that writes leave: `all`, `activity` (no revisions) or None for nothing."""
        # A table that another program has made has no record of settings, but a history.
        if not self.meta or "accountability" not in self.meta:
            return "all"
        return self._text_setting("accountability")

    @property
    def group(self) -> str | None:
        """The collection under which this one is listed."""
        return self._text_setting("group")

    @property
    def sort_field(self) -> str | None:
        """The field of manual sorting, if it is set and exists."""
        name = self._text_setting("sort_field")
        # A setting may outlive its field: columns of a table can also be dropped by other programs.
        if name in self.fields:
            return name
        return None

    @property
    def archive_field(self) -> Field | None:
        """The field that tells archived items from active ones, if it is set and exists."""
        name = self._text_setting("archive_field")
        if name is None:
            return None
        return self.fields.get(name)

    def _text_setting(self, name: str) -> str | None:
        """Return a setting of the collection that is a text, None where it is not set."""
        if not self.meta:
            return None
        value = self.meta.get(name)
        if isinstance(value, str):
            return value
        return None

    @property
    def has_secrets(self) -> bool:
        """Whether any field is secret: a client may send its value in another field by mistake."""
        return any(field.is_secret for field in self.fields.values())

    @property
    def columns(self) -> Iterator[Field]:
        """The fields that have a column."""
        return (field for field in self.fields.values() if field.column)


def _writable_actions(collection: Collection) -> frozenset[str]:
    if collection.primary_key is None:
        return frozenset()
    if collection.kind is Kind.VIEW:
        return collection.triggered_actions
    if collection.is_system and not system_table(collection.name).is_writable:
        return frozenset()
    return WRITE_ACTIONS


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The foreign key behind a relation; each of `columns` points to one of `foreign_columns`."""

    name: str
    table: str
    columns: tuple[str, ...]
    foreign_table: str
    foreign_columns: tuple[str, ...]
    on_update: str
    on_delete: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation as its record describes it; `one_collection` is None for many-to-any.

    `junction_field` and `sort_field` may name fields that do not exist yet. `order_field` is the
    sort field once it is a column. `key` is what the foreign key points to.
    """

    many_collection: str
    many_field: str
    one_collection: str | None
    one_field: str | None = None
    one_collection_field: str | None = None
    one_allowed_collections: tuple[str, ...] | None = None
    junction_field: str | None = None
    sort_field: str | None = None
    order_field: str | None = None
    one_deselect_action: str = "nullify"
    id: int | None = None
    constraint: ForeignKey | None = None
    key: Field | None = None


class Version(NamedTuple):
    """The counters of `system_version` under which a plan and an actor were made."""

    structure: int
    access: int
    flows: int


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The structure of the database at one version."""

    # Counted up by every change of the structure: a process whose counter differs loads the
    # catalogue anew.
    structure: int
    collections: Mapping[str, Collection]
    relations: tuple[Relation, ...]
    extensions: frozenset[str] = frozenset()
    # The same relations by (collection, field) of either side, so that a step of a path is one
    # lookup.
    by_many: Mapping[tuple[str, str], Relation] = field(default_factory=dict)
    by_one: Mapping[tuple[str, str], Relation] = field(default_factory=dict)
    actions: ReferentialActions = field(default_factory=ReferentialActions)
    reserved_tables: tuple[str, ...] = ()
    """Tables of other programs that are no collections, because of the service's prefix."""
    views: LRUCache[Hashable, Any] = field(
        init=False, default_factory=lambda: LRUCache(MAX_VIEWS), compare=False, repr=False
    )
    """What callers see of the collections, for `cms.access.rules`."""

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
        """Return a catalogue whose relations can be looked up from either side."""
        # The keys are (collection, field): each field is one side of one relation at most.
        by_many = {(each.many_collection, each.many_field): each for each in relations}
        by_one: dict[tuple[str, str], Relation] = {}
        for relation in relations:
            # Without a field on that side nothing leads back to the rows of the many side.
            if relation.one_collection and relation.one_field:
                by_one[relation.one_collection, relation.one_field] = relation
        actions = actions or ReferentialActions()
        return cls(structure, collections, relations, extensions, by_many, by_one, actions)

    def deletes_along(self, collection: str) -> bool:
        """Tell whether foreign keys delete or change other rows with those of a collection."""
        return collection in self.actions.root_tables_of

    def relations_of(self, collection: str) -> tuple[Relation, ...]:
        """Return the relations that have the collection on either side."""
        return tuple(
            relation
            for relation in self.relations
            if collection in (relation.many_collection, relation.one_collection)
        )

"""Snapshots in the forms that releases of Directus write, over the databases that they know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

_TYPES: dict[str, dict[str, tuple[str, Json]]] = {
    "postgres": {
        "integer": ("integer", {"numeric_precision": 32, "numeric_scale": 0}),
        "bigInteger": ("bigint", {"numeric_precision": 64, "numeric_scale": 0}),
        "string": ("character varying", {"max_length": 255}),
        "uuid": ("uuid", {}),
        "float": ("real", {"numeric_precision": 24}),
        "boolean": ("boolean", {}),
    },
    "sqlite3": {
        "integer": ("integer", {}),
        "bigInteger": ("bigint", {}),
        "string": ("varchar", {"max_length": 255}),
        "uuid": ("char", {"max_length": 36}),
        "float": ("float", {}),
        "boolean": ("boolean", {}),
    },
    "mysql": {
        "integer": ("int", {"numeric_precision": 10, "numeric_scale": 0}),
        "bigInteger": ("bigint", {"numeric_precision": 19, "numeric_scale": 0}),
        "string": ("varchar", {"max_length": 255}),
        "uuid": ("char", {"max_length": 36}),
        "float": ("float", {"numeric_precision": 12}),
        "boolean": ("tinyint", {"numeric_precision": 3, "numeric_scale": 0}),
        "text": ("text", {"max_length": 65535}),
    },
}
_NOW = {"postgres": "CURRENT_TIMESTAMP", "sqlite3": "CURRENT_TIMESTAMP", "mysql": "now()"}


@dataclass(frozen=True)
class Release:
    """What of the form depends on the release and the database."""

    version: str
    vendor: str

    @property
    def is_old(self) -> bool:
        """Whether snapshots hold all that the database says, and ids."""
        return self.version.startswith(("9.5", "9.12"))

    def column(self, table: str, name: str, type_name: str, **schema: object) -> Json:
        data_type, sizes = _TYPES[self.vendor].get(type_name, (type_name, {}))
        is_counting = bool(schema.get("has_auto_increment"))
        default = None
        if is_counting and self.vendor == "postgres":
            default = f"nextval('{table}_{name}_seq'::regclass)"
        record = {
            "name": name,
            "table": table,
            "data_type": data_type,
            "default_value": default,
            "max_length": None,
            "numeric_precision": None,
            "numeric_scale": None,
            "is_nullable": True,
            "is_unique": False,
            "is_primary_key": False,
            "has_auto_increment": False,
            "foreign_key_table": None,
            "foreign_key_column": None,
            "is_generated": False,
            "generation_expression": None,
            **sizes,
            **schema,
        }
        if self.is_old:
            record["comment"] = "" if self.vendor == "mysql" else None
            if self.vendor == "postgres":
                record |= {"schema": "public", "foreign_key_schema": None}
        return record

    def local_type(self, type_name: str, special: list[str] | None) -> str:
        """Return the type that the snapshot names."""
        is_marked = special is not None and "uuid" in special
        if type_name == "uuid" and self.vendor != "postgres" and not is_marked:
            return "string"
        return type_name


@dataclass
class Builder:
    """A snapshot to be."""

    release: Release
    collections: list[Json]
    fields: list[Json]
    relations: list[Json]

    def collection(self, name: str, *, is_folder: bool = False, **meta: object) -> None:
        schema: Any = {"name": name}
        if self.release.is_old:
            schema |= {
                "postgres": {"schema": "public", "comment": None},
                "sqlite3": {"sql": f"CREATE TABLE `{name}` (`id` integer)"},
                "mysql": {"comment": "", "collation": "utf8mb4_general_ci", "engine": "InnoDB"},
            }[self.release.vendor]
        record: Json = {
            "accountability": "all",
            "archive_app_filter": True,
            "archive_field": None,
            "collection": name,
            "collapse": "open",
            "color": None,
            "display_template": None,
            "group": None,
            "hidden": False,
            "icon": None,
            "item_duplication_fields": None,
            "singleton": False,
            "sort": None,
            "sort_field": None,
            "translations": None,
            **meta,
        }
        if not self.release.version.startswith("9"):
            record |= {"preview_url": None, "versioning": False}
        schema = None if is_folder else schema
        self.collections.append({"collection": name, "meta": record, "schema": schema})

    def field(
        self,
        collection: str,
        name: str,
        type_name: str,
        special: list[str] | None = None,
        /,
        *,
        meta: Json | None = None,
        **schema: object,
    ) -> None:
        record: Json = {
            "collection": collection,
            "conditions": None,
            "display": None,
            "display_options": None,
            "field": name,
            "group": None,
            "hidden": False,
            "interface": "input",
            "note": None,
            "options": None,
            "readonly": False,
            "required": False,
            "sort": len(self.fields),
            "special": special,
            "translations": None,
            "validation": None,
            "validation_message": None,
            "width": "full",
            **(meta or {}),
        }
        if self.release.is_old:
            record["id"] = len(self.fields) + 1
        column = None
        if type_name != "alias":
            column = self.release.column(collection, name, type_name, **schema)
        local_type = self.release.local_type(type_name, special)
        self.fields.append(
            {
                "collection": collection,
                "field": name,
                "type": local_type,
                "meta": record,
                "schema": column,
            }
        )

    def key(self, collection: str, type_name: str, name: str = "id", **schema: Any) -> None:
        self.field(
            collection,
            name,
            type_name,
            ["uuid"] if type_name == "uuid" and not self.release.is_old else None,
            is_primary_key=True,
            is_nullable=False,
            is_unique=self.release.vendor != "sqlite3",
            **schema,
        )

    def counting_key(self, collection: str) -> None:
        self.key(collection, "integer", has_auto_increment=True)

    def to_one(
        self, collection: str, field: str, related: str, type_name: str = "integer", **meta: object
    ) -> None:
        """Add a column that points to another collection, with its relation."""
        self.field(
            collection,
            field,
            type_name,
            ["m2o"],
            foreign_key_table=related,
            foreign_key_column="id",
        )
        schema = {
            "table": collection,
            "column": field,
            "foreign_key_table": related,
            "foreign_key_column": "id",
            "constraint_name": f"{collection}_{field}_foreign",
            "on_update": "NO ACTION",
            "on_delete": "SET NULL",
        }
        self.relation(collection, field, related, schema, **meta)

    def relation(
        self, collection: str, field: str, related: str | None, schema: Json | None, **meta: Any
    ) -> None:
        record: Json = {
            "junction_field": None,
            "many_collection": collection,
            "many_field": field,
            "one_allowed_collections": None,
            "one_collection": related,
            "one_collection_field": None,
            "one_deselect_action": "nullify",
            "one_field": None,
            "sort_field": None,
            **meta,
        }
        self.relations.append(
            {
                "collection": collection,
                "field": field,
                "related_collection": related,
                "meta": record,
                "schema": schema,
            }
        )


def directus_snapshot(version: str, vendor: str) -> Json:
    """Return a snapshot with every kind of field and relation."""
    builder = Builder(Release(version, vendor), [], [], [])
    builder.collection("blog", is_folder=True, icon="folder")
    _add_articles(builder)
    _add_lists(builder)
    _add_system(builder)
    builder.collection("site", singleton=True)
    builder.counting_key("site")
    builder.field("site", "title", "string", default_value="Home")
    document: Json = {"version": 1, "directus": version}
    if not version.startswith("9.5"):
        document["vendor"] = vendor
    return document | {
        "collections": builder.collections,
        "fields": builder.fields,
        "relations": builder.relations,
    }


def _add_articles(builder: Builder) -> None:
    vendor = builder.release.vendor
    archive: Json = {"archive_value": "archived", "unarchive_value": "draft", "sort_field": "sort"}
    builder.collection(
        "articles", group="blog", archive_field="status", display_template="{{title}}", **archive
    )
    builder.counting_key("articles")
    builder.field("articles", "title", "string", is_nullable=False)
    builder.field("articles", "slug", "string", is_unique=True)
    builder.field("articles", "status", "string", is_nullable=False, default_value="draft")
    builder.field("articles", "sort", "integer")
    builder.field("articles", "views", "bigInteger", default_value=0)
    builder.field("articles", "body", "text")
    builder.field("articles", "rating", "float")
    sizes: Json = {"numeric_precision": 10, "numeric_scale": 5}
    builder.field("articles", "price", "decimal", default_value="1.50000", **sizes)
    former = builder.release.is_old
    builder.field(
        "articles",
        "shown",
        "boolean",
        ["boolean" if former else "cast-boolean"],
        default_value=True,
    )
    builder.field("articles", "extra", "json", ["json" if former else "cast-json"])
    builder.field("articles", "words", "csv", ["csv" if former else "cast-csv"])
    builder.field("articles", "published", "dateTime")
    builder.field("articles", "day", "date")
    builder.field("articles", "created", "timestamp", ["date-created"], default_value=_NOW[vendor])
    group = {"interface": "group-detail", "options": {"start": "open"}}
    builder.field("articles", "meta-group", "alias", ["alias", "no-data", "group"], meta=group)
    divider = {"interface": "presentation-divider", "group": "meta-group"}
    builder.field("articles", "divider-abc", "alias", ["alias", "no-data"], meta=divider)
    builder.field("articles", "notice-x_1", "alias", ["alias", "no-data"])


def _add_lists(builder: Builder) -> None:
    """Add junctions: many-to-many, many-to-any, translations and files."""
    for name in ("tags", "headings"):
        builder.collection(name)
        builder.counting_key(name)
        builder.field(name, "text", "string")
    builder.collection("authors")
    builder.key("authors", "uuid")
    builder.to_one("articles", "author", "authors", "uuid", one_field="articles")
    builder.field("authors", "articles", "alias", ["o2m"])
    builder.collection("languages")
    builder.key("languages", "string", "code")
    lists = (
        ("tags", "m2m", "tags_id", "tags", "integer"),
        ("translations", "translations", "languages_code", "languages", "string"),
        ("files", "files", "directus_files_id", "directus_files", "uuid"),
    )
    for name, marker, far, related, type_name in lists:
        junction = f"articles_{name}"
        builder.collection(junction, hidden=True)
        builder.counting_key(junction)
        builder.field("articles", name, "alias", [marker])
        near = {"one_field": name, "junction_field": far, "one_deselect_action": "delete"}
        builder.to_one(junction, "articles_id", "articles", **near)
        builder.to_one(junction, far, related, type_name, junction_field="articles_id")
    builder.collection("articles_blocks", hidden=True)
    builder.counting_key("articles_blocks")
    builder.field("articles", "blocks", "alias", ["m2a"])
    builder.to_one(
        "articles_blocks", "articles_id", "articles", one_field="blocks", junction_field="item"
    )
    builder.field("articles_blocks", "collection", "string")
    builder.field("articles_blocks", "item", "string")
    builder.relation(
        "articles_blocks",
        "item",
        None,
        None,
        junction_field="articles_id",
        one_allowed_collections=["headings", "tags"],
        one_collection_field="collection",
    )


def _add_system(builder: Builder) -> None:
    """Add what points to system collections, and own fields of these."""
    builder.to_one("articles", "cover", "directus_files", "uuid")
    builder.to_one("articles", "editor", "directus_users", "uuid", one_field="edited")
    builder.field("directus_users", "edited", "alias", ["o2m"])
    builder.field("directus_users", "company", "string")
    builder.to_one("directus_users", "favourite", "articles", one_field="admirers")
    builder.field("articles", "admirers", "alias", ["o2m"])

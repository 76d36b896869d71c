"""What settings name and the database does not have, and tables that cannot be collections: told by `cms doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from cms.schema.model import Catalogue, Collection, Relation


def dangling_settings(catalogue: Catalogue) -> Iterator[str]:
    """Yield a sentence for each."""
    for table in catalogue.reserved_tables:
        yield f"table {table}: no collection, because its name is kept for the service's own tables; rename it"
    for relation in catalogue.relations:
        yield from _of_relation(relation, catalogue.collections[relation.many_collection])
    for collection in catalogue.collections.values():
        yield from _of_collection(collection)


def _of_relation(relation: Relation, owner: Collection) -> Iterator[str]:
    place = f"relation {relation.many_collection}.{relation.many_field}"
    for setting, name in (
        ("junction_field", relation.junction_field),
        ("sort_field", relation.sort_field),
    ):
        if name and not _has_column(owner, name):
            yield f"{place}: its {setting} {name} is not there; make it, or take the setting back"


def _of_collection(collection: Collection) -> Iterator[str]:
    meta = collection.meta or {}
    for setting in ("sort_field", "archive_field"):
        name = meta.get(setting)
        if isinstance(name, str) and not _has_column(collection, name):
            yield f"collection {collection.name}: its {setting} {name} is not there; make it, or take the setting back"


def _has_column(collection: Collection, name: str) -> bool:
    return name in collection.fields and collection.fields[name].column is not None

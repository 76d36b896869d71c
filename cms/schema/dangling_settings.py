"""Settings that name missing columns, and tables that cannot be collections, for `cms doctor`."""

from __future__ import annotations

from collections.abc import Iterator

from cms.schema.meta_settings import NAMING_SETTINGS
from cms.schema.model import Catalogue, Collection, Relation
from cms.schema.system import COLLECTIONS


def dangling_settings(catalogue: Catalogue) -> Iterator[str]:
    """Yield a sentence for each such table and setting."""
    for table in catalogue.reserved_tables:
        yield (
            f"table {table}: no collection, because its name is kept for the service's own tables;"
            " rename it"
        )
    for relation in catalogue.relations:
        yield from _relation_sentences(relation, catalogue.collections[relation.many_collection])
    for collection in catalogue.collections.values():
        yield from _collection_sentences(collection)


def _relation_sentences(relation: Relation, owner: Collection) -> Iterator[str]:
    subject = f"relation {relation.many_collection}.{relation.many_field}"
    for setting, name in (
        ("junction_field", relation.junction_field),
        ("sort_field", relation.sort_field),
    ):
        # It may be a mistake or a column that is still to be made, so that nothing is refused: `cms
        # doctor` tells.
        if name and not _has_column(owner, name):
            yield _sentence(subject, setting, name)


def _collection_sentences(collection: Collection) -> Iterator[str]:
    meta = collection.meta or {}
    for setting in NAMING_SETTINGS[COLLECTIONS]:
        name = meta.get(setting)
        if isinstance(name, str) and not _has_column(collection, name):
            yield _sentence(f"collection {collection.name}", setting, name)


def _sentence(subject: str, setting: str, name: str) -> str:
    return f"{subject}: its {setting} {name} is not there; make it, or take the setting back"


def _has_column(collection: Collection, name: str) -> bool:
    return name in collection.fields and collection.fields[name].column is not None

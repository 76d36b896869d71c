"""What reads the items of a collection for one caller."""

from __future__ import annotations

from collections.abc import Callable

from cms.query.plan.links import link_of, target_collections
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import ItemParser


def reader_of(
    catalogue: Catalogue,
    collection: Collection,
    names: frozenset[str] | None,
    *,
    knows: Callable[[str], bool],
) -> ItemParser:
    """Return what reads items of a collection for a caller who may name these fields; None is all of them.

    `knows` tells which collections the caller has a right on: any other is the same as one that is not there.
    """

    def relates(name: str) -> bool:
        return bool(
            link_of(catalogue, collection, name) or target_collections(catalogue, collection, name)
        )

    return ItemParser(
        collection, relates, names=names, choices=_collections_allowed(catalogue, collection, knows)
    )


def _collections_allowed(
    catalogue: Catalogue, collection: Collection, knows: Callable[[str], bool]
) -> dict[str, list[str]]:
    """Return the fields that say to which collection a many-to-any field leads, each with those that it may name."""
    allowed: dict[str, list[str]] = {}
    for relation in catalogue.relations:
        told_by = relation.one_collection_field
        if (
            relation.many_collection == collection.name
            and told_by
            and relation.one_allowed_collections
        ):
            allowed.setdefault(told_by, []).extend(filter(knows, relation.one_allowed_collections))
    return allowed

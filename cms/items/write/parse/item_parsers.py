"""The parser of a collection's items for one caller."""

from __future__ import annotations

from collections.abc import Callable

from cms.query.plan.links import link_of, target_collections
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import ItemParser


def item_parser_of(
    catalogue: Catalogue,
    collection: Collection,
    names: frozenset[str] | None,
    *,
    knows: Callable[[str], bool],
) -> ItemParser:
    """Return the parser of items for a caller who may name the fields `names`, None for all.

    `knows` tells whether the caller has a permission on a collection. Any other collection is
    refused like one that does not exist.
    """

    def relates(name: str) -> bool:
        # A many-to-any field has no link without a target, but it has targets.
        return bool(
            link_of(catalogue, collection, name) or target_collections(catalogue, collection, name)
        )

    choices = _allowed_collections(catalogue, collection, knows)
    return ItemParser(collection, relates, names=names, choices=choices)


def _allowed_collections(
    catalogue: Catalogue, collection: Collection, knows: Callable[[str], bool]
) -> dict[str, list[str]]:
    """Return the fields that name the collection of a many-to-any field, with the allowed names."""
    allowed: dict[str, list[str]] = {}
    for relation in catalogue.relations:
        name = relation.one_collection_field
        if relation.many_collection != collection.name or not name:
            continue
        if relation.one_allowed_collections:
            allowed.setdefault(name, []).extend(filter(knows, relation.one_allowed_collections))
    return allowed

"""The structure as its caller knows it: the collections and fields that some permission speaks of."""

from __future__ import annotations

from dataclasses import replace

from cms.access.policy import Policy
from cms.access.redaction import Redaction
from cms.errors import forbidden
from cms.schema.model import Catalogue, Collection, Kind, Relation

ACTIONS = ("read", "create", "update", "delete", "share")


def known_catalogue(policy: Policy, catalogue: Catalogue) -> Catalogue:
    """Return the part of the catalogue that a caller may know of; raises `Refused` FORBIDDEN for none.

    It takes the right to read `system_collections`, which `app_access` brings.
    """
    if policy.is_admin:
        return catalogue
    if not policy.granted("system_collections", "read"):
        raise forbidden()
    found = {
        name: _narrowed(item, policy)
        for name, item in catalogue.collections.items()
        if has_permission_on(policy, name)
    }
    found |= {name: catalogue.collections[name] for name in _folders(found, catalogue)}
    redaction = Redaction(catalogue, found)
    relations = tuple(
        redaction.relation(relation)
        for relation in catalogue.relations
        if _is_known(relation, found)
    )
    ordered = {
        name: redaction.collection(found[name]) for name in catalogue.collections if name in found
    }
    return Catalogue.of(catalogue.structure, ordered, relations, extensions=catalogue.extensions)


def has_permission_on(policy: Policy, collection: str) -> bool:
    """Tell whether some permission is about a collection."""
    return policy.is_admin or any(policy.granted(collection, action) for action in ACTIONS)


def _narrowed(collection: Collection, policy: Policy) -> Collection:
    grants = [grant for action in ACTIONS for grant in policy.granted(collection.name, action)]
    fields = {
        name: found
        for name, found in collection.fields.items()
        if any(grant.covers(name) for grant in grants)
    }
    return replace(collection, fields=fields)


def _folders(found: dict[str, Collection], catalogue: Catalogue) -> set[str]:
    """Return the folders in which known collections are listed."""
    folders: set[str] = set()
    waiting = [collection.group for collection in found.values()]
    while waiting:
        name = waiting.pop()
        folder = catalogue.collections.get(name) if name else None
        if folder and folder.kind is Kind.FOLDER and folder.name not in folders:
            folders.add(folder.name)
            waiting.append(folder.group)
    return folders


def _is_known(relation: Relation, found: dict[str, Collection]) -> bool:
    many, one = found.get(relation.many_collection), relation.one_collection
    return many is not None and relation.many_field in many.fields and (one is None or one in found)

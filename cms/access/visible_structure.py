"""The structure that a caller may know: the collections and fields of the caller's permissions."""

from __future__ import annotations

from dataclasses import replace

from cms.access.policy import Policy, StoredGrant, is_covered
from cms.access.structure_redaction import Redaction
from cms.errors import forbidden
from cms.schema.model import Catalogue, Collection, Field, Kind, Relation
from cms.schema.system import COLLECTIONS, PERMISSIONS, choices_of

ACTIONS = choices_of(PERMISSIONS, "action")


def known_catalogue(policy: Policy, catalogue: Catalogue) -> Catalogue:
    """Return the part of the catalogue that a caller may know.

    The caller needs the right to read `system_collections`, which `app_access` brings; raises
    `Refused` FORBIDDEN without it.
    """
    if policy.is_admin:
        return catalogue
    if not may_read_structure(policy):
        raise forbidden()
    return _permitted(policy, catalogue)


def may_read_structure(policy: Policy) -> bool:
    """Tell whether a caller may read the settings of collections and fields."""
    return policy.is_admin or bool(policy.granted(COLLECTIONS, "read"))


def described_catalogue(policy: Policy, catalogue: Catalogue) -> Catalogue:
    """Return the part of the catalogue that a description of the service may show to a caller.

    It has the fields that some permission is for. Their settings and choices are left out for a
    caller who may not read the structure.
    """
    if policy.is_admin:
        return catalogue
    permitted = _permitted(policy, catalogue)
    if may_read_structure(policy):
        return permitted
    collections: dict[str, Collection] = {}
    for name, collection in permitted.collections.items():
        collections[name] = _without_settings(collection)
    return Catalogue.of(permitted.structure, collections, permitted.relations)


def _without_settings(collection: Collection) -> Collection:
    fields = {name: _without_choices(field) for name, field in collection.fields.items()}
    # Answers show whether a collection has one item only: it is an object then, and no list.
    meta = {"singleton": collection.is_singleton}
    return replace(collection, fields=fields, meta=meta, comment=None)


def _without_choices(field: Field) -> Field:
    column = field.column and replace(field.column, choices=None, comment=None)
    return replace(field, meta=None, column=column)


def _permitted(policy: Policy, catalogue: Catalogue) -> Catalogue:
    """Return the collections and fields that some permission is for, with redacted settings."""
    visible: dict[str, Collection] = {}
    for name, collection in catalogue.collections.items():
        if has_permission_on(policy, name):
            visible[name] = _narrowed(collection, policy)
    # A folder shows nothing by itself; without it apps could not list what is in it.
    for name in _folders(visible, catalogue):
        visible[name] = catalogue.collections[name]
    return _redacted(catalogue, visible)


def _redacted(catalogue: Catalogue, visible: dict[str, Collection]) -> Catalogue:
    """Return a catalogue of the visible collections and of the relations between them."""
    redaction = Redaction(catalogue, visible)
    collections: dict[str, Collection] = {}
    # In the order of the catalogue: folders were added last.
    for name in catalogue.collections:
        if name in visible:
            collections[name] = redaction.collection(visible[name])
    relations: list[Relation] = []
    for relation in catalogue.relations:
        if _is_visible(relation, visible):
            relations.append(redaction.relation(relation))
    return Catalogue.of(
        catalogue.structure, collections, tuple(relations), extensions=catalogue.extensions
    )


def has_permission_on(policy: Policy, collection: str) -> bool:
    """Tell whether some permission is about a collection."""
    return policy.is_admin or bool(grants_on(policy, collection))


def grants_on(policy: Policy, collection: str) -> list[StoredGrant]:
    """Return the grants for any action on a collection that can be applied."""
    grants: list[StoredGrant] = []
    for action in ACTIONS:
        grants += policy.granted(collection, action)
    return grants


def _narrowed(collection: Collection, policy: Policy) -> Collection:
    grants = grants_on(policy, collection.name)
    fields: dict[str, Field] = {}
    for name, field in collection.fields.items():
        if is_covered(name, grants):
            fields[name] = field
    return replace(collection, fields=fields)


def _folders(visible: dict[str, Collection], catalogue: Catalogue) -> set[str]:
    """Return the folders in which visible collections are listed."""
    folders: set[str] = set()
    waiting = [collection.group for collection in visible.values()]
    # A folder may be in another folder.
    while waiting:
        name = waiting.pop()
        folder = catalogue.collections.get(name) if name else None
        if folder and folder.kind is Kind.FOLDER and folder.name not in folders:
            folders.add(folder.name)
            waiting.append(folder.group)
    return folders


def _is_visible(relation: Relation, visible: dict[str, Collection]) -> bool:
    many = visible.get(relation.many_collection)
    if many is None or relation.many_field not in many.fields:
        return False
    return relation.one_collection is None or relation.one_collection in visible

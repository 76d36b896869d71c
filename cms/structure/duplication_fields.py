"""`meta.item_duplication_fields`: the paths of fields that clients copy with an item.

The service stores them for clients, and only sees to it that each path leads to a field.
"""

from __future__ import annotations

from collections.abc import Iterator

from cms import jsontext
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.query.plan.links import link_of
from cms.schema.model import Catalogue, Collection
from cms.schema.names import parse_path
from cms.store.snapshot import load_snapshot


def check_duplication_fields(
    catalogue: Catalogue, after: Collection, *, before: Collection | None = None
) -> None:
    """Refuse paths that lead to no field; paths that were wrong `before` may stay."""
    former_paths: list[str] = []
    if before:
        former_paths = _duplication_fields(before)
    problems: list[Problem] = []
    for path in _duplication_fields(after):
        # A client sends whole records back, and cannot know what was wrong in them.
        if path not in former_paths and not _leads_to_field(catalogue, after, path):
            problems.append(_unknown_path(path))
    if problems:
        raise Refused(problems)


def prune_duplication_fields(transaction: Transaction) -> None:
    """Remove the paths that lead to no field any more, after something was deleted."""
    # The snapshot of the request is from before the deletion.
    catalogue = load_snapshot(transaction).catalogue
    for name, paths in _pruned_lists(catalogue):
        transaction.execute(
            statement("save_duplication_fields"), (name, jsontext.dumps(paths).decode())
        )


def _pruned_lists(catalogue: Catalogue) -> Iterator[tuple[str, list[str]]]:
    """Yield the collections whose lists become shorter, with the paths that stay."""
    for collection in catalogue.collections.values():
        paths = _duplication_fields(collection)
        valid_paths = [path for path in paths if _leads_to_field(catalogue, collection, path)]
        if valid_paths != paths:
            yield collection.name, valid_paths


def _duplication_fields(collection: Collection) -> list[str]:
    meta = collection.meta or {}
    paths = meta.get("item_duplication_fields")
    if not isinstance(paths, list):
        return []
    return [path for path in paths if isinstance(path, str)]


def _leads_to_field(catalogue: Catalogue, collection: Collection, path: str) -> bool:
    current: Collection | None = collection
    # As title, author.name, or item:articles.title through a many-to-any field.
    for name in parse_path(path):
        if current is None or name.field not in current.fields:
            return False
        link = link_of(catalogue, current, name.field, name.target)
        # The target is no collection to which the field may lead.
        if name.target and link is None:
            return False
        current = None
        if link:
            current = catalogue.collections[link.target]
    return True


def _unknown_path(path: str) -> Problem:
    name = "meta.item_duplication_fields"
    reason = f'"{path}" leads to no field'
    message = f"Invalid payload. {name}: {reason}."
    return Problem("INVALID_PAYLOAD", message, {"reason": reason, "field": name})

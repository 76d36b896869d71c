"""What a copy of an item takes over: `meta.item_duplication_fields`, paths of fields for the clients that copy."""

from __future__ import annotations

from collections.abc import Iterator

from cms import jsontext
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.query.plan.links import link_of
from cms.schema.model import Catalogue, Collection
from cms.store.snapshot import load_snapshot


def check_duplication_fields(
    catalogue: Catalogue, after: Collection, *, before: Collection | None = None
) -> None:
    """Refuse paths that lead to no field; those that were there `before` may stay."""
    known = _duplication_fields(before) if before else []
    wrong = [
        path
        for path in _duplication_fields(after)
        if path not in known and not _leads_to_field(catalogue, after, path)
    ]
    if wrong:
        raise Refused(_unknown_path(path) for path in wrong)


def prune_duplication_fields(transaction: Transaction) -> None:
    """Take the paths that lead to no field any more out of the lists, after something was deleted."""
    catalogue = load_snapshot(transaction).catalogue
    for name, kept in _pruned_lists(catalogue):
        transaction.execute(statement("keep_copied"), (name, jsontext.dumps(kept).decode()))


def _pruned_lists(catalogue: Catalogue) -> Iterator[tuple[str, list[str]]]:
    for found in catalogue.collections.values():
        paths = _duplication_fields(found)
        kept = [path for path in paths if _leads_to_field(catalogue, found, path)]
        if kept != paths:
            yield found.name, kept


def _duplication_fields(found: Collection) -> list[str]:
    said = found.meta.get("item_duplication_fields") if found.meta else None
    return [path for path in said if isinstance(path, str)] if isinstance(said, list) else []


def _leads_to_field(catalogue: Catalogue, found: Collection, path: str) -> bool:
    place: Collection | None = found
    for step in path.split("."):
        field, _, scope = step.partition(":")
        if place is None or field not in place.fields:
            return False
        link = link_of(catalogue, place, step)
        if scope and link is None:
            return False
        place = catalogue.collections[link.target] if link else None
    return True


def _unknown_path(path: str) -> Problem:
    place, reason = "meta.item_duplication_fields", f'"{path}" leads to no field'
    return Problem(
        "INVALID_PAYLOAD",
        f"Invalid payload. {place}: {reason}.",
        {"reason": reason, "field": place},
    )

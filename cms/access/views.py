"""What a caller sees of a collection: which rows, and of each row which fields (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cms.access.policy import Grant
from cms.query.language.ast import EVERYTHING, FieldName, Filter, JsonMembers, Or
from cms.schema.model import Collection


@dataclass(frozen=True, slots=True)
class View:
    """The rows that fulfil `rule`, and of those the fields of `masks`; None is all fields, in every row.

    A mask says in which rows its field is there, None in all of them. `members` are, of fields that hold a JSON
    object, the members of it that are there. `other_collections` are other collections whose rules it follows.
    """

    collection: Collection
    rule: Filter = EVERYTHING
    masks: Mapping[str, Filter | None] | None = None
    grants: tuple[Grant, ...] = ()
    members: Mapping[str, tuple[JsonMembers, ...]] = field(default_factory=dict)
    other_collections: tuple[str, ...] = ()

    def sees(self, field: str) -> bool:
        """Tell whether there is such a field for this caller."""
        return field in (self.collection.fields if self.masks is None else self.masks)

    def mask(self, field: str) -> Filter | None:
        """Return in which rows the field is there."""
        return None if self.masks is None else self.masks[field]

    def own_name(self, name: FieldName) -> str:
        """Return the field of a name. A column whose own name holds a colon names no collection that it leads to."""
        return name.field if name.field in self.collection.fields else name.base_field


def unite_grants(collection: Collection, grants: tuple[Grant, ...]) -> View:
    """Unite grants: a row is seen when one of them allows it, and then that one's fields of it."""
    rule = any_rule(grants)
    masks: dict[str, Filter | None] = {}
    for name in collection.fields:
        fitting = tuple(grant for grant in grants if grant.covers(name))
        if fitting:
            mask = any_rule(fitting)
            masks[name] = None if mask in (EVERYTHING, rule) else mask
    return View(collection, rule, masks, grants)


def any_rule(grants: tuple[Grant, ...]) -> Filter:
    """Return the filter that holds where one of the rules does."""
    rules: list[Filter] = []
    for grant in grants:
        if grant.rule not in rules:
            rules.append(grant.rule)
    if EVERYTHING in rules:
        return EVERYTHING
    return rules[0] if len(rules) == 1 else Or(tuple(rules))

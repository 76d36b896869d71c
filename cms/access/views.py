"""What a caller sees of a collection: which rows, and of each row which fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cms.access.policy import Grant
from cms.query.language.ast import EVERYTHING, FieldName, Filter, JsonMembers, Or
from cms.schema.model import Collection


@dataclass(frozen=True, slots=True)
class View:
    """The rows that fulfil `rule`, with the fields of `masks`; None is all fields, in every row.

    A mask is a filter of the rows in which its field may be read; None is all rows. `members` says
    for fields that hold a JSON object which of its members may be read. `other_collections` are
    other collections whose rules take part in this view.
    """

    collection: Collection
    rule: Filter = EVERYTHING
    masks: Mapping[str, Filter | None] | None = None
    grants: tuple[Grant, ...] = ()
    members: Mapping[str, tuple[JsonMembers, ...]] = field(default_factory=dict)
    other_collections: tuple[str, ...] = ()

    def sees(self, field: str) -> bool:
        """Tell whether the caller sees a field in any row."""
        return field in (self.collection.fields if self.masks is None else self.masks)

    def mask(self, field: str) -> Filter | None:
        """Return in which rows the field may be read; None is all of them."""
        return None if self.masks is None else self.masks[field]

    def own_name(self, name: FieldName) -> str:
        """Return the field of a name, without a collection behind a colon.

        A column may have a colon in its own name; then nothing behind it names a collection.
        """
        if name.field in self.collection.fields:
            return name.field
        return name.base_field


def unite_grants(collection: Collection, grants: tuple[Grant, ...]) -> View:
    """Return the view of several grants: each shows its fields in the rows of its rule."""
    rule = any_rule(grants)
    masks: dict[str, Filter | None] = {}
    for name in collection.fields:
        covering = tuple(grant for grant in grants if grant.covers(name))
        if covering:
            mask = any_rule(covering)
            # A field that is in every row of the view needs no mask of its own.
            masks[name] = None if mask in (EVERYTHING, rule) else mask
    return View(collection, rule, masks, grants)


def any_rule(grants: tuple[Grant, ...]) -> Filter:
    """Return the filter that holds where the rule of at least one grant holds."""
    rules: list[Filter] = []
    for grant in grants:
        if grant.rule not in rules:
            rules.append(grant.rule)
    if EVERYTHING in rules:
        return EVERYTHING
    return rules[0] if len(rules) == 1 else Or(tuple(rules))

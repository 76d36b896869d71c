"""The rows of a collection that a caller sees, and the fields of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from cms.access.guarded_rules import UNRESTRICTED, GuardedGrant, GuardedRule, any_of
from cms.query.plan.read_plan import VisibleMembers
from cms.schema.field_names import FieldName
from cms.schema.model import Collection


@dataclass(frozen=True, slots=True)
class View:
    """The rows that fulfil `rule`, with the fields of `masks`; None is all fields, in every row.

    A mask is the rule of the rows in which its field may be read; None is all rows. `members` says
    for fields that hold a JSON object which of its members may be read. `other_collections` are
    other collections whose rules take part in this view.
    """

    collection: Collection
    rule: GuardedRule = UNRESTRICTED
    masks: Mapping[str, GuardedRule | None] | None = None
    grants: tuple[GuardedGrant, ...] = ()
    members: Mapping[str, tuple[VisibleMembers, ...]] = field(default_factory=dict)
    other_collections: tuple[str, ...] = ()

    def includes(self, field: str) -> bool:
        """Tell whether the caller sees a field in any row."""
        if self.masks is None:
            return field in self.collection.fields
        return field in self.masks

    def mask(self, field: str) -> GuardedRule | None:
        """Return the rule of the rows in which the field may be read; None is all rows."""
        if self.masks is None:
            return None
        return self.masks[field]

    def resolve_name(self, name: FieldName) -> FieldName:
        """Return a name without a target where a column of the collection has that whole name.

        A column may have a colon in its own name; then nothing behind it names a collection.
        """
        if name.target is not None and name.written in self.collection.fields:
            return FieldName(name.written, name.function)
        return name


class CachedView(NamedTuple):
    """A view in the cache of a catalogue, None where nothing is shown.

    `looked_up` are the collections that were looked up for it.
    """

    view: View | None
    looked_up: Set[str]


def unite_grants(collection: Collection, grants: tuple[GuardedGrant, ...]) -> View:
    """Return the view of several grants: each shows its fields in the rows of its rule."""
    rule = any_rule(grants)
    masks: dict[str, GuardedRule | None] = {}
    for name in collection.fields:
        # One grant shows `title` in all rows, another `price` in own rows: the view has all rows,
        # and `price` has the mask of the own ones.
        covering = grants_covering(grants, {name})
        if covering:
            mask = any_rule(covering)
            # A field that is in every row of the view needs no mask of its own.
            masks[name] = None if mask in (UNRESTRICTED, rule) else mask
    return View(collection, rule, masks, grants)


def grants_covering(grants: Iterable[GuardedGrant], names: Set[str]) -> tuple[GuardedGrant, ...]:
    """Return the grants that cover all the fields."""
    return tuple(grant for grant in grants if grant.covers_all(names))


def any_rule(grants: Iterable[GuardedGrant]) -> GuardedRule:
    """Return the rule that holds where the rule of at least one grant holds."""
    return any_of(rules_of(grants))


def rules_of(grants: Iterable[GuardedGrant]) -> list[GuardedRule]:
    """Return the rule of each grant, in their order."""
    return [grant.rule for grant in grants]

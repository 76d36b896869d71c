"""Names of a query checked as if they were read: fields, steps of paths, and their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from cms.access.query_rewriting import back_reference_mask
from cms.access.views import View
from cms.errors import Refused, forbidden, invalid_query, not_found
from cms.query.language.ast import And, FieldName, both
from cms.query.plan.links import Link, link_of, target_collections
from cms.schema.model import Catalogue, Field

ViewLookup = Callable[[str], View | None]
"""What the caller sees of a collection; None is nothing at all."""


@dataclass(slots=True)
class NameGuard:
    """Checks names against what one caller sees, and puts the rules of permissions beside them.

    Hidden and missing names give the same FORBIDDEN, unless the guard `explains`: administrators
    are told which name is wrong. A query may follow relations `depth` levels deep.
    """

    catalogue: Catalogue
    lookup: ViewLookup
    explains: bool
    depth: int
    touched_collections: set[str] = field(default_factory=set)

    def view(self, collection: str) -> View:
        """Return what the caller sees of a collection; raises `Refused` FORBIDDEN or NOT_FOUND."""
        view = self.lookup(collection)
        if view is None:
            raise not_found("collection") if self.explains else forbidden()
        self.touched_collections.update((collection, *view.other_collections))
        return view

    def visible_field(self, view: View, name: str) -> Field:
        """Return a field that the caller sees; raises `Refused` for any other."""
        if not view.sees(name):
            raise self.unknown_field(view, name)
        return view.collection.fields[name]

    def with_mask(self, name: FieldName, view: View) -> FieldName:
        """Return a name with the rule that says in which rows its field may be read."""
        field_name = view.own_name(name)
        return replace(name, when=view.mask(field_name), members=view.members.get(field_name))

    def readable_name(self, name: FieldName, view: View) -> FieldName:
        """Return a name whose value is read, with its rules; secrets are refused."""
        named_field = self.visible_field(view, name.field)
        if named_field.is_secret:
            raise self.secret_field(named_field)
        if name.function == "count":
            link = link_of(self.catalogue, view.collection, name.field)
            if link and link.to_many:
                counted, _ = self.follow(name, link, view)
                return counted
        return self.with_mask(name, view)

    def path(self, path: tuple[FieldName, ...], view: View) -> tuple[FieldName, ...]:
        """Return a path of relations that ends in a field, with the rules of every step."""
        *steps, last = path
        names = []
        for step in steps:
            step_field = self.visible_field(view, step.base_field)
            link = link_of(self.catalogue, view.collection, step.field)
            if link is None:
                raise self.no_relation(step_field)
            name, view = self.follow(step, link, view)
            names.append(name)
        return (*names, self.readable_name(last, view))

    def follow(self, name: FieldName, link: Link, view: View) -> tuple[FieldName, View]:
        """Return the name of a step with the rules on either side, and the view of its target."""
        # For an administrator the first refusal names the collection, if that is what is missing.
        if not self.may_follow(link, view):
            self.view(link.target)
            raise self.unknown_field(view, name.field)
        target = self.view(link.target)
        collection_mask = view.mask(link.collection_field) if link.collection_field else None
        when = both(view.mask(name.base_field), collection_mask)
        target_rule = both(target.rule, back_reference_mask(link, target))
        return replace(
            name, when=None if when == And(()) else when, target_rule=target_rule
        ), target

    def may_follow(self, link: Link, view: View) -> bool:
        """Tell whether the caller sees the target of a link and the columns that the link reads."""
        target = self.lookup(link.target)
        if target is None:
            return False
        if link.collection_field is not None and not view.sees(link.collection_field):
            return False
        return not link.to_many or target.sees(link.far)

    def may_follow_field(self, name: str, view: View) -> bool:
        """Tell whether the caller may follow a field to at least one collection."""
        if self.targets(name, view):
            return True
        link = link_of(self.catalogue, view.collection, name)
        return link is not None and self.may_follow(link, view)

    def targets(self, name: str, view: View) -> list[str]:
        """Return the collections that the caller may follow a many-to-any field to."""
        targets = []
        for target in target_collections(self.catalogue, view.collection, name):
            link = link_of(self.catalogue, view.collection, f"{name}:{target}")
            if link and self.may_follow(link, view):
                targets.append(target)
        return targets

    def check_depth(self, level: int) -> None:
        """Raise `Refused` INVALID_QUERY for more levels of relations than the settings allow."""
        if level > self.depth:
            raise invalid_query(f"It goes deeper than {self.depth} relations")

    def unknown_field(self, view: View, name: str, because: str = "it does not exist") -> Refused:
        """Return the refusal of a field that is hidden or missing."""
        if not self.explains:
            return forbidden()
        reason = f'The field "{name}" of "{view.collection.name}" cannot be read: {because}'
        return invalid_query(reason, collection=view.collection.name, field=name)

    def no_relation(self, plain_field: Field) -> Refused:
        """Return the refusal of a path through a field that is no relation.

        The same FORBIDDEN as for a hidden target, or the difference would tell of hidden
        collections.
        """
        if not self.explains:
            return forbidden()
        reason = (
            f'The field "{plain_field.name}" of "{plain_field.collection}" '
            "leads to no other collection"
        )
        return invalid_query(reason, collection=plain_field.collection, field=plain_field.name)

    def secret_field(self, secret: Field) -> Refused:
        """Return the refusal of a secret where its value would be read or compared."""
        reason = (
            f'The field "{secret.name}" of "{secret.collection}" is secret '
            "and can only be tested for null and empty"
        )
        return invalid_query(reason, collection=secret.collection, field=secret.name)

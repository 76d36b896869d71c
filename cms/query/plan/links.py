"""Relations followed from one collection to the next, in either direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cms.schema.model import Catalogue, Collection, Field, Kind, Relation
from cms.schema.names import FollowName
from cms.schema.types.comparable import are_comparable


@dataclass(frozen=True, slots=True)
class Link:
    """One step: rows of `target` whose field `far` equals this side's field `near`.

    Either is that of a column, or of a key of several columns.

    In a many-to-any relation `collection_field` is the column of this side that names the target,
    and the key is cast to the type of `far`. The step back leads from the collection that is named
    (`named_collection`) to the rows that name it: there `target` has the column, and `far` is cast.
    With `may_repeat` several rows of `target` may have one value of `far`, though the relation is
    to one item: then it leads to one of them.
    """

    relation: Relation
    target: str
    near: Field
    far: Field
    to_many: bool
    collection_field: str | None = None
    cast: str | None = None
    named_collection: str | None = None
    may_repeat: bool = False


def reverse_link(link: Link, collection: Collection) -> Link:
    """Return the link back from the target of a link to the collection that it comes from.

    The rules of a share need it also where no field of the target leads back.
    """
    return replace(
        link,
        target=collection.name,
        near=link.far,
        far=link.near,
        to_many=not link.to_many,
        named_collection=link.target if link.collection_field else None,
    )


def link_back(
    catalogue: Catalogue, source: Collection, follow: FollowName, target: Collection
) -> Link | None:
    """Return the link from a collection to the items of `source` whose field leads there."""
    named_target = target.name if follow.collection_field else None
    link = link_of(catalogue, source, follow.field, named_target)
    if link is None or link.to_many or link.target != target.name:
        return None
    if link.collection_field != follow.collection_field:
        return None
    return reverse_link(link, source)


def link_of(
    catalogue: Catalogue, collection: Collection, field: str, target: str | None = None
) -> Link | None:
    """Return the link of a field, or None for a field that is no relation.

    A many-to-any field has a link to each `target` only.
    """
    # The column is on this side: `author` of articles, or `item` of a many-to-any relation.
    many = catalogue.by_many.get((collection.name, field))
    if target:
        if many is None:
            return None
        return _any_link(catalogue, many, target)
    if many and many.one_collection:
        return _to_one_link(catalogue, many, many.one_collection)
    # The column is on the other side: `articles` of authors is an alias without a column of its
    # own.
    one = catalogue.by_one.get((collection.name, field))
    # A to-many field needs a key that the rows of the other collection can point to.
    if one is None or collection.primary_key is None:
        return None
    near = one.key or collection.primary_key
    far = catalogue.collections[one.many_collection].fields[one.many_field]
    if not is_comparable(one, catalogue):
        return None
    return Link(one, one.many_collection, near, far, to_many=True)


def _to_one_link(catalogue: Catalogue, relation: Relation, target: str) -> Link | None:
    # A foreign key may point to another unique column than the primary key.
    far = relation.key or _key(catalogue, target)
    near = catalogue.collections[relation.many_collection].fields[relation.many_field]
    if far is None or not is_comparable(relation, catalogue):
        return None
    may_repeat = _may_repeat(catalogue.collections[target])
    return Link(relation, target, near, far, to_many=False, may_repeat=may_repeat)


def is_comparable(relation: Relation, catalogue: Catalogue) -> bool:
    """Tell whether the column of a relation to one collection can be compared with its key.

    Where there is no foreign key, either may have been made again with another type.
    """
    target = catalogue.collections.get(relation.one_collection or "")
    many = catalogue.collections.get(relation.many_collection)
    if relation.constraint or target is None or many is None or target.primary_key is None:
        return True
    field = many.fields.get(relation.many_field)
    # No column holds a key of several.
    if target.key.parts:
        return False
    if field is None or field.column is None or target.key.column is None:
        return True
    return are_comparable(field.column.base_type, target.key.column.base_type)


def _may_repeat(target: Collection) -> bool:
    # Nothing makes a column of a view unique. Inheriting tables have keys of their own, and where
    # there are any, writes have side effects.
    return target.kind is Kind.VIEW or target.has_side_effects


def any_links(catalogue: Catalogue, collection: Collection, field: str) -> tuple[Link, ...]:
    """Return the links of a many-to-any field, one to each target; none for any other field."""
    many = catalogue.by_many.get((collection.name, field))
    if many is None or many.one_collection:
        return ()
    targets = many.one_allowed_collections or ()
    return tuple(filter(None, (_any_link(catalogue, many, target) for target in targets)))


def target_collections(catalogue: Catalogue, collection: Collection, field: str) -> tuple[str, ...]:
    """Return the collections that a many-to-any field may lead to; none for any other field."""
    return tuple(link.target for link in any_links(catalogue, collection, field))


def history_item_link(catalogue: Catalogue, history: Collection, target: str) -> Link | None:
    """Return the link from a row of the history to the item that the row is about."""
    # No relation of the catalogue: `collection` and `item` of the history work like a many-to-any
    # field, whose one target is given here.
    many = Relation(
        history.name,
        "item",
        None,
        one_collection_field="collection",
        one_allowed_collections=(target,),
    )
    return _any_link(catalogue, many, target)


def _any_link(catalogue: Catalogue, many: Relation, target: str) -> Link | None:
    far = _key(catalogue, target)
    if not far or target not in (many.one_allowed_collections or ()):
        return None
    key = far.type
    # Without a pattern of the keys nothing would keep the cast from failing.
    # Keys of any target stand in one text column. `42` of another target must not be cast to uuid,
    # so the pattern is tested before the cast (`_named_key` of cms/query/sql/expressions.py).
    cast = "text" if key.key_pattern is None else key.cast
    return Link(
        many,
        target,
        catalogue.collections[many.many_collection].fields[many.many_field],
        far,
        to_many=False,
        collection_field=many.one_collection_field,
        cast=cast,
        may_repeat=_may_repeat(catalogue.collections[target]),
    )


def links_from(catalogue: Catalogue, collection: Collection) -> Iterator[tuple[str, Link]]:
    """Yield the relational fields of a collection with their links."""
    for name in collection.fields:
        link = link_of(catalogue, collection, name)
        if link:
            yield name, link


def _key(catalogue: Catalogue, collection: str) -> Field | None:
    target = catalogue.collections.get(collection)
    return target.primary_key if target else None

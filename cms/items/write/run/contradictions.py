"""Refuses rows whose references give different values to a column that they share.

Foreign keys of several columns often share one, such as the tenant of all tables. Which value an
object at such a field has for it is known once the object is written.
"""

from __future__ import annotations

from collections.abc import Mapping

from cms.errors import Problem, Refused
from cms.items.write.stages.problems import with_position
from cms.items.write.stages.resolved_rows import ResolvedRow
from cms.schema.model import Collection, Field
from cms.schema.payload import (
    MutableRowValues,
    RowValues,
    are_equal,
    column_values,
    converter,
    invalid_item,
)


class GivenValues:
    """What the rows of a set give to columns of references, by the numbers of the rows."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._values: dict[int, MutableRowValues] = {}

    def add(self, number: int, row: ResolvedRow, field: Field, values: RowValues) -> None:
        """Add the values that a reference gives; raises `Refused` if others were given before."""
        # Without foreign keys of several columns nothing is shared.
        if not self._collection.references:
            return
        if number not in self._values:
            self._values[number] = _sent_values(self._collection, row)
        given = self._values[number]
        for name, value in values.items():
            column = self._collection.fields[name]
            if name in given and not are_equal(column, given[name], value):
                raise Refused(_contradiction(self._collection, row))
        given |= values


def _sent_values(collection: Collection, row: ResolvedRow) -> MutableRowValues:
    """Return the values of a row for columns, as far as they were sent as keys or values."""
    # A list sets its columns, whatever an element holds for them.
    set_by_list: set[str] = set()
    if row.owner and row.owner.field:
        set_by_list = {row.owner.field.name, *(part.name for part in row.owner.field.key_fields)}
    shared = {part.name for field in collection.references for part in field.parts}
    values: MutableRowValues = {}
    for name, value in row.sent.items():
        field = collection.fields.get(name)
        if field is None or value is None or isinstance(value, Mapping) or name in set_by_list:
            continue
        # A secret may have come back as its mask, and what is sent for a generated column is
        # ignored.
        is_ignored = field.is_secret or bool(field.column and field.column.is_generated)
        if (field.parts or name in shared) and not is_ignored:
            values |= column_values(field, converter(field)(value))
    return values


def _contradiction(collection: Collection, row: ResolvedRow) -> Problem:
    # Without a name: the caller may not know the field that a list sets.
    reason = "its related items have different values for a column that they share"
    return with_position(invalid_item(reason, collection.name), row.position)

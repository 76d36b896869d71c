"""The values of presets, which permissions add to the values that callers send."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms.access.policy import Grant
from cms.errors import Refused, forbidden
from cms.items.write.complete.references import names_set_by
from cms.items.write.complete.validating import BoundPresets, CallCache, PayloadValidator
from cms.items.write.hooks import hooks_of
from cms.query.language.ast import (
    CallerKey,
    CallerValue,
    Constant,
    Now,
    Operand,
    PlainOperand,
)
from cms.query.language.literals import parse_variable
from cms.query.plan.bindings import Placeholder, bind_values, unchanged
from cms.schema.model import Collection, Field
from cms.schema.payload import MutableRowValues, RowValues, column_values, converter
from cms.store.context import RequestContext

log = logging.getLogger(__name__)


class RowPresets(NamedTuple):
    """The presets of one row: as rules see them, and as the columns take them."""

    payload: Mapping[str, object]
    values: RowValues


@dataclass(frozen=True, slots=True)
class PresetBinder:
    """Binds the variables in the presets of permissions, for the caller of one call."""

    _context: RequestContext
    _validator: PayloadValidator
    _cache: CallCache

    def row_presets(
        self, grants: Sequence[Grant], collection: Collection, sent: Mapping[str, object]
    ) -> RowPresets:
        """Return the presets of permissions for the fields that were not sent with a row.

        Of two presets for one field the first counts. Raises `Refused` FORBIDDEN for a preset that
        its field does not take.
        """
        payload: dict[str, object] = {}
        values: MutableRowValues = {}
        never_preset = hooks_of(self._validator.store, collection.name).never_preset
        sent_names = names_set_by(collection, sent)
        # In reverse order, so that the first permission overwrites the others.
        for grant in reversed(grants):
            for name, value in self.bound(grant).items():
                field = collection.fields.get(name)
                # A field may have gone, or lost its column, since the permission was written.
                if field is None or not field.has_value or name in sent_names:
                    continue
                if name in never_preset:
                    raise _refuse(grant, field, "no preset sets it")
                values |= column_values(field, _column_value(grant, field, value))
                payload[name] = value
        return RowPresets(payload, values)

    def bound(self, grant: Grant) -> dict[str, object]:
        """Return the presets of a permission, with the values that their variables stand for."""
        if not grant.presets:
            return {}
        # By identity: a permission with presets has no hash.
        bound = self._cache.presets.get(id(grant))
        if bound is None:
            bound = BoundPresets(grant, self._bind(grant))
            self._cache.presets[id(grant)] = bound
        return bound.values

    def _bind(self, grant: Grant) -> dict[str, object]:
        # Presets are values by fields, as in {"status": "draft", "author": "$CURRENT_USER"}.
        operands: dict[str, Operand] = {}
        paths: list[CallerValue] = []
        for name, value in grant.presets.items():
            operand = _operand(value)
            operands[name] = operand
            if isinstance(operand, CallerValue):
                paths.append(operand)
        values_by_path = self._validator.values_of(paths)
        placeholders: list[Placeholder] = []
        for name, operand in operands.items():
            resolved = _resolve_operand(operand, values_by_path)
            placeholders.append(Placeholder(resolved, unchanged, name))
        # Bound like the operands of a filter, so that $NOW means the same in both.
        values = bind_values(placeholders, self._context.bindings())
        return dict(zip(operands, values, strict=True))


def _column_value(grant: Grant, field: Field, value: object) -> str | None:
    """Return a preset as its field takes it; raises `Refused` FORBIDDEN if it does not."""
    if value is None:
        return None
    return _convert(grant, field, value)


def _convert(grant: Grant, field: Field, value: object) -> str:
    """Return the value of a preset as text for its column.

    Raises `Refused` FORBIDDEN for a value that does not fit the column: only administrators can
    correct it, and the log names the permission for them.
    """
    try:
        return converter(field)(value)
    except ValueError as error:
        raise _refuse(grant, field, str(error)) from None


def _refuse(grant: Grant, field: Field, reason: str) -> Refused:
    """Log which preset cannot be set, and return the refusal of the item."""
    name = f"{field.collection}.{field.name}"
    log.warning("permission %s refuses every item: its preset of %s: %s", grant.id, name, reason)
    return forbidden()


def _operand(value: object) -> Operand:
    """Return what a preset holds: a variable, or the value itself."""
    # A malformed variable is an ordinary text.
    try:
        operand = parse_variable(value)
    except ValueError:
        return Constant(value)
    if isinstance(operand, Now | CallerKey | CallerValue):
        return operand
    return Constant(value)


def _resolve_operand(
    operand: Operand, values_by_path: Mapping[CallerValue, tuple[object, ...]]
) -> PlainOperand:
    """Return the first value that a path from the caller leads to; any other operand as it is."""
    if isinstance(operand, CallerValue):
        # A column takes one value, while a path through a list may lead to several or none.
        return Constant(next(iter(values_by_path[operand]), None))
    return operand

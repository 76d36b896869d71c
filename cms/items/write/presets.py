"""The values of presets, which permissions add to what callers send."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cms.access.policy import Grant
from cms.errors import Refused, forbidden
from cms.query.language.ast import CallerValue, Constant, Now, Operand
from cms.query.language.literals import parse_variable
from cms.schema.model import Field
from cms.schema.payload import converter

log = logging.getLogger(__name__)


def convert_preset(grant: Grant, field: Field, value: object) -> str:
    """Return the value of a preset as text for its column.

    Raises `Refused` FORBIDDEN for a value that does not fit the column: only administrators can
    correct it, and the log names the permission for them.
    """
    try:
        return converter(field)(value)
    except ValueError as error:
        raise refuse_preset(grant, field, str(error)) from None


def refuse_preset(grant: Grant, field: Field, reason: str) -> Refused:
    """Log which preset cannot be set, and return the refusal of the item."""
    name = f"{field.collection}.{field.name}"
    log.warning("permission %s refuses every item: its preset of %s: %s", grant.id, name, reason)
    return forbidden()


def preset_operand(value: object) -> Operand:
    """Return what a preset holds: a variable, or the value itself."""
    # A malformed variable is an ordinary text.
    try:
        operand = parse_variable(value)
    except ValueError:
        return Constant(value)
    return operand if isinstance(operand, Now | CallerValue) else Constant(value)


def resolve_operand(
    operand: Operand, values_by_path: Mapping[CallerValue, tuple[object, ...]]
) -> Operand:
    """Return the first value that a path from the caller leads to; any other operand as it is."""
    if isinstance(operand, CallerValue) and operand.path:
        # A column takes one value, while a path through a list may lead to several or none.
        return Constant(next(iter(values_by_path[operand]), None))
    return operand

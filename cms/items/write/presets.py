"""Presets of permissions: what they say and what that comes to (decisions, section 11)."""

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


def convert_preset(grant: Grant, found: Field, value: object) -> str:
    """Return a preset as its column takes it; one that does not fit refuses the item, and the log says which."""
    try:
        return converter(found)(value)
    except ValueError as error:
        raise refuse_preset(grant, found, str(error)) from None


def refuse_preset(grant: Grant, found: Field, reason: str) -> Refused:
    """Return the refusal of an item for a preset that cannot be set, once the log has said which it is."""
    position = f"{found.collection}.{found.name}"
    log.warning(
        "permission %s refuses every item: its preset of %s: %s", grant.id, position, reason
    )
    return forbidden()


def preset_operand(value: object) -> Operand:
    """Return what a preset says: a variable, or the value itself."""
    try:
        found = parse_variable(value)
    except ValueError:
        return Constant(value)
    return found if isinstance(found, Now | CallerValue) else Constant(value)


def resolve_operand(found: Operand, known: Mapping[CallerValue, tuple[object, ...]]) -> Operand:
    """Return what a path from the caller leads to, the first where it leads to many; anything else as it is."""
    return (
        Constant(next(iter(known[found]), None))
        if isinstance(found, CallerValue) and found.path
        else found
    )


def unchanged(value: object) -> object:
    return value

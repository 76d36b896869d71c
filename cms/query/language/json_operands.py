"""Operands of values inside of JSON fields, whose type is that of the operand itself."""

from __future__ import annotations

from cms.query.language.ast import Operand
from cms.query.language.literals import Literals
from cms.query.language.shapes import JsonText, OperandGap


class JsonLiterals(Literals):
    """Sets the texts of a query string aside as `JsonText`; they count with all other literals."""

    def __init__(self, literals: Literals) -> None:
        super().__init__()
        self.values = literals.values
        self.tally = literals.tally

    def literal(self, value: object) -> Operand:
        return super().literal(_as_json(value))


def _as_json(value: object) -> object:
    match value:
        case OperandGap():
            return value.as_json()
        case str():
            return JsonText(value)
        case tuple():
            return tuple(map(_as_json, value))
        case _:
            return value

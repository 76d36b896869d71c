"""What a keeper is: what it minds before and after rows of its collection are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cms.database.connections import Fetch
from cms.errors import Problem, Refused, abbreviated
from cms.items.write.changes import RowChange
from cms.schema.types import MASK
from cms.store.context import RequestContext

ValueCheck = Callable[[object, RequestContext], None]
"""Looks at a value as it was sent; raises ValueError with a reason, or `Refused` with problems of the field."""


class InvalidPart(ValueError):
    """A value inside another is wrong: `path` leads to it from the field."""

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.path = path


class InvalidParts(ValueError):
    """More than one thing is wrong with a value."""

    def __init__(self, errors: Sequence[ValueError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = tuple(errors)


class NotOneOf(ValueError):
    """A value that is none of some words."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(f"it is one of {', '.join(words)}")
        self.words = list(words)


@dataclass(frozen=True, slots=True)
class SystemTableHooks:
    """`is_admin_only` collections are written by administrators only, and so are the fields of `admin_fields`.

    Presets set neither those nor `explicit_only`: a preset is nobody's word, and reaches whatever row is written.
    `checks` look at the values of fields; `before` and `after` look at the keys of rows that are there, inside the
    transaction: of what changes or goes, and of what has been written or has gone. They raise `Refused`.
    """

    is_admin_only: bool = False
    admin_fields: frozenset[str] = frozenset()
    explicit_only: frozenset[str] = frozenset()
    checks: Mapping[str, ValueCheck] = field(default_factory=dict)
    before: Callable[[Fetch, RequestContext, Sequence[RowChange], Sequence[str]], None] | None = (
        None
    )
    after: Callable[[Fetch, RequestContext, Sequence[RowChange]], None] | None = None

    @property
    def never_preset(self) -> frozenset[str]:
        """The fields that no preset sets."""
        return self.admin_fields | self.explicit_only

    def problems(
        self, change: RowChange, context: RequestContext, collection: str
    ) -> list[Problem]:
        """Return what is wrong with the values of a row; null is left to what the column takes."""
        found: list[Problem] = []
        for name, check in self.checks.items():
            kept = (
                change.sent.get(name) == MASK and name not in change.values
            )  # a secret, sent back as it was shown
            if change.sent.get(name) is None or kept:
                continue
            try:
                check(change.sent[name], context)
            except Refused as refused:
                found += [
                    replace(one, extensions={"collection": collection, **one.extensions})
                    for one in refused.problems
                ]
            except ValueError as error:
                told = not context.snapshot.catalogue.collections[collection].has_secrets
                errors = error.errors if isinstance(error, InvalidParts) else (error,)
                for error in errors:
                    sent = (
                        {"value": abbreviated(_value_inside(change.sent[name], error))}
                        if told
                        else {}
                    )
                    found.append(_problem(collection, name, error, sent))
        return found


def _value_inside(value: object, error: ValueError) -> object:
    """Return the value inside a value that a fault is about."""
    for step in error.path if isinstance(error, InvalidPart) else ():
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
    return value


def _problem(collection: str, name: str, error: ValueError, sent: Mapping[str, object]) -> Problem:
    path = error.path if isinstance(error, InvalidPart) else ()
    operand = {"valid": error.words} if isinstance(error, NotOneOf) else {}
    place = ".".join(map(str, (name, *path)))
    extensions = {
        "collection": collection,
        "field": name,
        "path": [name, *path],
        "type": "valid",
        "reason": str(error),
    }
    message = f'Validation failed for "{place}": {error}.'
    return Problem("FAILED_VALIDATION", message, {**extensions, **operand, **sent})


def raise_errors(errors: Sequence[ValueError]) -> None:
    """Raise what is wrong with a value, if anything is."""
    if errors:
        raise InvalidParts(errors)


def errors_of(refused: Refused) -> InvalidParts:
    """Return what is wrong with a rule as what is wrong with the value that holds it."""
    reasons = (problem.extensions.get("reason", problem.message) for problem in refused.problems)
    return InvalidParts([ValueError(str(reason).removesuffix(".")) for reason in reasons])


def unprocessable(reason: str) -> Refused:
    """Return the refusal of a write that would leave the service in a state it must not be in."""
    return Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))


def one_of(*words: str) -> ValueCheck:
    """Return the check that a value is one of these words."""

    def check(value: object, context: RequestContext) -> None:
        if value not in words:
            raise NotOneOf(words)

    return check

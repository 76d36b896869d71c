"""The hooks of a table: checks of values, and functions to run before and after writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from cms.database.connections import Fetch, Transaction
from cms.errors import Problem, Refused, abbreviated
from cms.schema.payload import RowValues
from cms.schema.system import LIMIT_RULE
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo
from cms.text_shapes import COLOR, MASK

ValueCheck = Callable[[object, RequestContext], None]
"""Checks a value as it was sent.

Raises ValueError with a reason, or `Refused` with problems of the field.
"""


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
    """A value that is none of the allowed ones."""

    def __init__(self, allowed: Sequence[str]) -> None:
        super().__init__(f"it is one of {', '.join(allowed)}")
        self.allowed = list(allowed)


class HookedRow(Protocol):
    """A row that is written, as hooks see it: what was sent, and the values of its columns."""

    @property
    def sent(self) -> Mapping[str, object]: ...
    @property
    def values(self) -> RowValues: ...
    @property
    def is_new(self) -> bool: ...
    @property
    def key(self) -> str | None: ...


def keys_of(rows: Iterable[HookedRow]) -> list[str]:
    """Return the keys of rows that are stored or written."""
    return [str(row.key) for row in rows]


@dataclass(frozen=True, slots=True)
class TableHooks:
    """The hooks of one table.

    Only administrators write collections that are `is_admin_only`, and fields of `admin_fields`.
    Presets set neither those nor `explicit_only`: a preset counts as unset, since the caller did
    not send it, and it reaches whatever row is written.

    `checks` look at the values of fields. `before` gets the rows that are to be written and the
    keys of rows that are to be deleted, `after` the rows that have been written, with their keys;
    both run inside the transaction, and raise `Refused`.

    `missing_targets` are the messages for fields that point to no row.
    """

    is_admin_only: bool = False
    admin_fields: frozenset[str] = frozenset()
    explicit_only: frozenset[str] = frozenset()
    checks: Mapping[str, ValueCheck] = field(default_factory=dict)
    before: Callable[[Fetch, RequestContext, Sequence[HookedRow], Sequence[str]], None] | None = (
        None
    )
    after: Callable[[Fetch, RequestContext, Sequence[HookedRow]], None] | None = None
    missing_targets: Mapping[str, str] = field(default_factory=dict)

    @property
    def never_preset(self) -> frozenset[str]:
        """The fields that no preset sets."""
        return self.admin_fields | self.explicit_only

    def problems(self, row: HookedRow, context: RequestContext, collection: str) -> list[Problem]:
        """Return the problems of the values of a row; the column decides about null."""
        problems: list[Problem] = []
        for name, check in self.checks.items():
            value = row.sent.get(name)
            # Answers show a mask in place of a secret, which a client may send back.
            is_unchanged_secret = value == MASK and name not in row.values
            if value is None or is_unchanged_secret:
                continue
            try:
                check(value, context)
            except Refused as refused:
                # Of a password, for example: these problems have their own codes and sentences.
                problems += _with_collection(refused, collection)
            except ValueError as error:
                # Values of tables with secrets are not repeated in answers.
                has_secrets = context.snapshot.catalogue.collections[collection].has_secrets
                for part_error in _parts_of(error):
                    sent: dict[str, object] = {}
                    if not has_secrets:
                        sent["value"] = abbreviated(_value_inside(value, part_error))
                    problems.append(_problem(collection, name, part_error, sent))
        return problems

    def explained(self, problem: Problem) -> Problem:
        """Return a problem of the database with the message that the table has for it, if any."""
        reason = self.missing_targets.get(str(problem.extensions.get("field")))
        if reason is None or problem.code != "INVALID_FOREIGN_KEY":
            return problem
        extensions = {**problem.extensions, "type": "valid", "reason": reason}
        del extensions["constraint"]
        message = f'Validation failed for "{extensions["field"]}": {reason}.'
        return Problem("FAILED_VALIDATION", message, extensions)


def _with_collection(refused: Refused, collection: str) -> Iterator[Problem]:
    for problem in refused.problems:
        yield replace(problem, extensions={"collection": collection, **problem.extensions})


def _parts_of(error: ValueError) -> Sequence[ValueError]:
    if isinstance(error, InvalidParts):
        return error.errors
    return (error,)


def _value_inside(value: object, error: ValueError) -> object:
    """Return the part of a value that an error is about."""
    path = error.path if isinstance(error, InvalidPart) else ()
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step]
    return value


def _problem(collection: str, name: str, error: ValueError, sent: Mapping[str, object]) -> Problem:
    path = error.path if isinstance(error, InvalidPart) else ()
    extensions = dict(sent)
    if isinstance(error, NotOneOf):
        extensions = {"valid": error.allowed, **sent}
    return failed_validation({"collection": collection}, (name, *path), str(error), **extensions)


def failed_validation(
    row: Mapping[str, object], path: Sequence[str | int], reason: str, **extensions: object
) -> Problem:
    """Return the problem of a value that a table does not take.

    `row` names the row, by its collection and perhaps its key; `path` leads to the value from the
    field.
    """
    name = ".".join(map(str, path))
    return Problem(
        "FAILED_VALIDATION",
        f'Validation failed for "{name}": {reason}.',
        {
            **row,
            "field": path[0],
            "path": list(path),
            "type": "valid",
            "reason": reason,
            **extensions,
        },
    )


def raise_errors(errors: Sequence[ValueError]) -> None:
    """Raise the problems of a value, if there are any."""
    if errors:
        raise InvalidParts(errors)


@contextmanager
def refusals_as_errors() -> Iterator[None]:
    """Raise a refusal of a rule as an error of the value that holds the rule (`InvalidParts`)."""
    try:
        yield
    except Refused as refused:
        # `problems` keeps the code of a refusal: INVALID_QUERY, and not FAILED_VALIDATION.
        raise errors_of(refused) from None


def errors_of(refused: Refused) -> InvalidParts:
    """Return the problems of a rule as errors of the value that holds the rule."""
    errors: list[ValueError] = []
    for problem in refused.problems:
        reason = str(problem.extensions.get("reason", problem.message))
        # The message that quotes the reason ends in a full stop itself.
        errors.append(ValueError(reason.removesuffix(".")))
    return InvalidParts(errors)


def unprocessable(reason: str) -> Refused:
    """Return the refusal of a write that would leave the service in a state it must not be in."""
    return Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))


def one_of(*allowed: str) -> ValueCheck:
    """Return the check that a value is one of these texts."""

    def check(value: object, context: RequestContext) -> None:
        # In a tuple and not in a set: a value may be a list or an object, which have no hash.
        if value not in allowed:
            raise NotOneOf(allowed)

    return check


def check_limit(value: object, context: RequestContext) -> None:
    """Check a limit, which null takes away."""
    # Python takes a boolean for a number.
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(LIMIT_RULE)


def check_color(value: object, context: RequestContext) -> None:
    """Check a colour of the app."""
    if not isinstance(value, str) or not COLOR.fullmatch(value):
        raise ValueError("it is a colour such as #6644FF")


def text_check(max_length: int) -> ValueCheck:
    """Return the check that a text has some characters, and not too many."""

    def check(value: object, context: RequestContext) -> None:
        if isinstance(value, str) and not 0 < len(value.strip()) <= max_length:
            raise ValueError(f"it has 1 to {max_length} characters")

    return check


class FilterEvent(NamedTuple):
    """A write that is about to happen in a transaction, and the flows that wait for it.

    `verb` is create, update or delete.
    """

    transaction: Transaction
    context: RequestContext
    client: ClientInfo
    flows: tuple[str, ...]
    collection: str
    verb: str


class PayloadFilter(Protocol):
    """Passes payloads to flows before they are written."""

    def __call__(self, event: FilterEvent, payload: object, keys: Sequence[object]) -> object:
        """Return the payload as it is to be written; raises `Refused` to write nothing.

        The payload of a deletion is its keys; the returned value is ignored.
        """


def no_filter(event: FilterEvent, payload: object, keys: Sequence[object]) -> object:
    """Leave every payload as it is."""
    return payload

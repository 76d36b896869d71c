"""The operations of a batch, and references in them to the answers of earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from cms import jsontext
from cms.errors import PayloadPath, Problem, Refused, invalid_payload

MAX_OPERATIONS = 100
# {"$result": "author.id"} stands for the member "id" in the answer of the operation "author".
REFERENCE = "$result"
_MAX_INDEX_DIGITS = 18

# Fields that say what the answer shows, and fields that say which items are meant.
_SHAPING_FIELDS = frozenset({"fields", "deep", "alias"})
NAMING_FIELDS = frozenset({"key", "keys", "query"})
_ALLOWED_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "create": frozenset({"data"}) | _SHAPING_FIELDS,
        "read": frozenset({"key", "query"}),
        "update": frozenset({"data", "if_match"}) | NAMING_FIELDS | _SHAPING_FIELDS,
        "delete": frozenset({"if_match"}) | NAMING_FIELDS,
    }
)
_COMMON_FIELDS = frozenset({"id", "method", "collection"})

METHODS = tuple(_ALLOWED_FIELDS)
ARGUMENTS = tuple(sorted(frozenset().union(*_ALLOWED_FIELDS.values())))
"""What operations take beside the fields that all have; each method takes some of them."""


@dataclass(frozen=True, slots=True)
class BatchOperation:
    """One operation of a batch; later ones refer to it by `id`.

    `arguments` are all its fields but method, collection and id.
    """

    method: str
    collection: str
    id: str | None
    arguments: Mapping[str, object]

    @property
    def output_params(self) -> Mapping[str, object]:
        """The query parameters that say what the answer shows of written items."""
        return {name: value for name, value in self.arguments.items() if name in _SHAPING_FIELDS}


def parse_operations(payload: object) -> list[BatchOperation]:
    """Return the operations of a body.

    Raises `Refused` INVALID_PAYLOAD with all malformed operations.
    """
    operations = None
    if isinstance(payload, Mapping) and payload.keys() == {"operations"}:
        operations = payload["operations"]
    if not isinstance(operations, list):
        raise invalid_payload('The body must be an object with the array "operations"')
    if len(operations) > MAX_OPERATIONS:
        raise invalid_payload(
            f"A batch takes at most {MAX_OPERATIONS} operations", field="operations"
        )
    # Ids are collected while the operations are checked in order: an id may be used once in a
    # batch.
    ids: set[str] = set()
    problems: list[Problem] = []
    for index, operation in enumerate(operations):
        for problem in _problems_of(operation, ids):
            problems.append(in_operation(problem, index))
    if problems:
        raise Refused(problems)
    return [_operation(operation) for operation in operations]


def _operation(operation: Mapping[str, Any]) -> BatchOperation:
    arguments = {name: operation[name] for name in operation.keys() - _COMMON_FIELDS}
    return BatchOperation(
        operation["method"], operation["collection"], operation.get("id"), arguments
    )


def in_operation(problem: Problem, operation: int) -> Problem:
    """Return a problem with the index of its operation, from 0."""
    return Problem(problem.code, problem.message, {**problem.extensions, "operation": operation})


def _problem(field: str | None, reason: str) -> Problem:
    extensions = {"field": field} if field else {}
    return invalid_payload(reason, **extensions).problems[0]


def _problems_of(operation: object, ids: set[str]) -> Iterator[Problem]:
    """Yield the problems of the form of an operation, whose id must not be in `ids` yet."""
    if not isinstance(operation, Mapping):
        yield _problem(None, "An operation must be an object")
        return
    method = operation.get("method")
    takes = _ALLOWED_FIELDS.get(str(method))
    if takes is None:
        yield _problem("method", f'"method" must be one of {", ".join(_ALLOWED_FIELDS)}')
    if not isinstance(operation.get("collection"), str):
        yield _problem("collection", '"collection" must be a text')
    if "id" in operation:
        yield from _problems_of_id(operation["id"], ids)
    if takes is not None:
        yield from _problems_of_method(operation, str(method), takes)


def _problems_of_method(
    operation: Mapping[str, object], method: str, takes: Set[str]
) -> Iterator[Problem]:
    for name in sorted(operation.keys() - takes - _COMMON_FIELDS):
        yield _problem(name, f'The method {method} does not take "{name}"')
    if "data" in takes and "data" not in operation:
        yield _problem("data", '"data" is missing')
    # A read may have a key and a query: the query then says what is shown of the item.
    naming_fields = sorted(NAMING_FIELDS & operation.keys())
    # An update may name no item: its data is then a list of items with their keys, or a singleton's
    # object. A delete must name its items, as it would otherwise mean all of them.
    if (method == "delete" and not naming_fields) or (method != "read" and len(naming_fields) > 1):
        yield _problem("key", "It takes one of key, keys and query")
    if "if_match" in operation and not (
        _is_of_one(operation, method) and isinstance(operation["if_match"], str)
    ):
        yield _problem(
            "if_match",
            '"if_match" must be a text, beside the "key" of one item or the object of a singleton',
        )


def _is_of_one(operation: Mapping[str, object], method: str) -> bool:
    """Tell whether an operation is on one item, by its key or of a singleton, which needs none."""
    if "key" in operation:
        return True
    return (
        method == "update"
        and not NAMING_FIELDS & operation.keys()
        and isinstance(operation.get("data"), Mapping)
    )


def _problems_of_id(operation_id: object, ids: set[str]) -> Iterator[Problem]:
    # A reference ends the id at its first dot.
    if not isinstance(operation_id, str) or not operation_id or "." in operation_id:
        yield _problem("id", '"id" must be a text without dots')
    elif operation_id in ids:
        yield _problem("id", f'"{operation_id}" is the id of two operations')
    else:
        ids.add(operation_id)


class _OperationAnswer(NamedTuple):
    """The answer of the operation with an id, as a value."""

    operation: str
    value: object


class OperationResults:
    """The answers of the operations with an id, so far.

    References may bring `max_bytes` into the batch in all: a short body could otherwise ask for one
    long answer many thousand times.
    """

    def __init__(self, max_bytes: int) -> None:
        self._bytes_left = max_bytes
        self._answers: dict[str, bytes] = {}
        self._last: _OperationAnswer | None = None

    def add_answer(self, operation: BatchOperation, answer: bytes) -> None:
        """Keep an answer, as JSON: its values would take many times the memory."""
        if operation.id is not None:
            self._answers[operation.id] = answer

    def _value(self, operation: str) -> object:
        """Return the answer of an operation; the last one is kept, as references often repeat."""
        last = self._last
        if last is None or last.operation != operation:
            value = jsontext.loads_stored(self._answers[operation].decode())
            last = _OperationAnswer(operation, value)
            self._last = last
        return last.value

    def resolve_references(self, value: object, path: PayloadPath = ()) -> Any:
        """Return a value with its references replaced by the values that they refer to.

        A reference is an object with the one key `$result`; a text is never one, so that no text
        has to be escaped. Raises `Refused` INVALID_PAYLOAD with the path to a reference that leads
        nowhere.
        """
        if isinstance(value, Mapping):
            if value.keys() == {REFERENCE}:
                return self._follow_reference(value[REFERENCE], path)
            members: dict[object, Any] = {}
            for name, inner in value.items():
                members[name] = self.resolve_references(inner, (*path, name))
            return members
        if isinstance(value, list):
            entries: list[Any] = []
            for index, inner in enumerate(value):
                entries.append(self.resolve_references(inner, (*path, index)))
            return entries
        return value

    def _follow_reference(self, reference: object, path: PayloadPath) -> object:
        if not isinstance(reference, str):
            raise _no_reference(path)
        operation, *steps = reference.split(".")
        if operation not in self._answers:
            raise _no_reference(path)
        value: Any = self._value(operation)
        for step in steps:
            if isinstance(value, Mapping) and step in value:
                value = value[step]
            elif isinstance(value, list) and _is_index(step, value):
                value = value[int(step)]
            else:
                raise _wrong(f'"{step}" is not in what "{operation}" has answered', path)
        # Measured as JSON, which is about what the value would have been in the body.
        self._bytes_left -= len(jsontext.dumps(value))
        if self._bytes_left < 0:
            raise _wrong("The references of the batch bring in more than a body may hold", path)
        return value


def _is_index(step: str, entries: list[object]) -> bool:
    # isdecimal() is also true of digits of other scripts, and int() refuses very long numbers.
    if not (step.isdecimal() and step.isascii()) or len(step) > _MAX_INDEX_DIGITS:
        return False
    return int(step) < len(entries)


def _no_reference(path: PayloadPath) -> Refused:
    return _wrong("It must name an earlier operation: id.field, or id.0.field in an array", path)


def _wrong(reason: str, path: PayloadPath) -> Refused:
    return invalid_payload(reason, path=list(path))

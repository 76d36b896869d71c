"""The operations of a batch, and the references from one to what an earlier one has answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from cms import jsontext
from cms.errors import Problem, Refused, invalid_payload

MAX_OPERATIONS = 100
REFERENCE = "$result"

Path = tuple[str | int, ...]

_SHAPING_FIELDS = frozenset({"fields", "deep", "alias"})
_NAMING_FIELDS = frozenset({"key", "keys", "query"})
_ALLOWED_FIELDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "create": frozenset({"data"}) | _SHAPING_FIELDS,
        "read": frozenset({"key", "query"}),
        "update": frozenset({"data", "if_match"}) | _NAMING_FIELDS | _SHAPING_FIELDS,
        "delete": frozenset({"if_match"}) | _NAMING_FIELDS,
    }
)
_COMMON_FIELDS = frozenset({"id", "method", "collection"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation; `arguments` is what stands beside its method, its collection and the id that
    later ones name it by.
    """

    method: str
    collection: str
    id: str | None
    arguments: Mapping[str, object]

    @property
    def output_params(self) -> Mapping[str, object]:
        """What is to be shown of the items that were written, as query parameters."""
        return {name: value for name, value in self.arguments.items() if name in _SHAPING_FIELDS}


def parse_operations(payload: object) -> list[Operation]:
    """Return the operations of a body; raises `Refused` INVALID_PAYLOAD for all that have a wrong
    shape.
    """
    said = (
        payload.get("operations")
        if isinstance(payload, Mapping) and payload.keys() == {"operations"}
        else None
    )
    if not isinstance(said, list):
        raise invalid_payload('The body must be an object with the array "operations"')
    if len(said) > MAX_OPERATIONS:
        raise invalid_payload(
            f"A batch takes at most {MAX_OPERATIONS} operations", field="operations"
        )
    ids: set[str] = set()
    problems = [
        in_operation(_problem(*fault), place)
        for place, one in enumerate(said)
        for fault in _faults(one, ids)
    ]
    if problems:
        raise Refused(problems)
    return [
        Operation(
            one["method"],
            one["collection"],
            one.get("id"),
            {k: one[k] for k in one.keys() - _COMMON_FIELDS},
        )
        for one in said
    ]


def in_operation(problem: Problem, operation: int) -> Problem:
    """Return a problem with the number of the operation that it is of, from 0."""
    return Problem(problem.code, problem.message, {**problem.extensions, "operation": operation})


def _problem(field: str | None, reason: str) -> Problem:
    return invalid_payload(reason, **({"field": field} if field else {})).problems[0]


def _faults(said: object, ids: set[str]) -> Iterator[tuple[str | None, str]]:
    """Yield what is wrong with the shape of an operation, beside the field that it is about."""
    if not isinstance(said, Mapping):
        yield None, "An operation must be an object"
        return
    method = said.get("method")
    takes = _ALLOWED_FIELDS.get(str(method))
    if takes is None:
        yield "method", f'"method" must be one of {", ".join(_ALLOWED_FIELDS)}'
    if not isinstance(said.get("collection"), str):
        yield "collection", '"collection" must be a text'
    if "id" in said:
        yield from _faults_of_id(said["id"], ids)
    if takes is not None:
        yield from _faults_of_method(said, str(method), takes)


def _faults_of_method(
    said: Mapping[str, object], method: str, takes: Set[str]
) -> Iterator[tuple[str | None, str]]:
    for name in sorted(said.keys() - takes - _COMMON_FIELDS):
        yield name, f'The method {method} does not take "{name}"'
    if "data" in takes and "data" not in said:
        yield "data", '"data" is missing'
    named = sorted(_NAMING_FIELDS & said.keys())
    if (method == "delete" and not named) or (method != "read" and len(named) > 1):
        yield "key", "It takes one of key, keys and query"
    if "if_match" in said and not (_is_of_one(said, method) and isinstance(said["if_match"], str)):
        yield (
            "if_match",
            '"if_match" must be a text, beside the "key" of one item or the object of a singleton',
        )


def _is_of_one(said: Mapping[str, object], method: str) -> bool:
    """Tell whether an operation is on one item: named by its key, or a singleton's, which has no
    name.
    """
    is_singletons = (
        method == "update"
        and not _NAMING_FIELDS & said.keys()
        and isinstance(said.get("data"), Mapping)
    )
    return "key" in said or is_singletons


def _faults_of_id(said: object, ids: set[str]) -> Iterator[tuple[str, str]]:
    if not isinstance(said, str) or not said or "." in said:
        yield "id", '"id" must be a text without dots'
    elif said in ids:
        yield "id", f'"{said}" is the id of two operations'
    else:
        ids.add(said)


class OperationResults:
    """What the operations with an id have answered so far.

    `room` is how many bytes references may bring into the batch in all: a short body could
    otherwise ask for one long answer many thousand times.
    """

    def __init__(self, room: int) -> None:
        self._bytes_left = room
        self._answers: dict[str, bytes] = {}
        self._last: tuple[str, object] = ("", None)

    def add_answer(self, operation: Operation, answer: bytes) -> None:
        """Keep an answer as JSON: its values take many times the room."""
        if operation.id is not None:
            self._answers[operation.id] = answer

    def _value(self, operation: str) -> object:
        """Return an answer that is referred to; the last one stays at hand."""
        if self._last[0] != operation:
            self._last = operation, jsontext.loads_stored(self._answers[operation].decode())
        return self._last[1]

    def resolve_references(self, value: object, path: Path = ()) -> Any:
        """Return a value with what its references lead to in their place.

        A reference is an object with the one key `$result`; a text is never one, so that no text
        has to be escaped. Raises `Refused` INVALID_PAYLOAD with the path to a reference that leads
        nowhere.
        """
        if isinstance(value, Mapping):
            if value.keys() == {REFERENCE}:
                return self._follow_reference(value[REFERENCE], path)
            return {
                name: self.resolve_references(inner, (*path, name)) for name, inner in value.items()
            }
        if isinstance(value, list):
            return [
                self.resolve_references(inner, (*path, place)) for place, inner in enumerate(value)
            ]
        return value

    def _follow_reference(self, reference: object, path: Path) -> object:
        operation, *steps = reference.split(".") if isinstance(reference, str) else [""]
        if operation not in self._answers:
            raise _wrong(
                "It must name an earlier operation: id.field, or id.0.field in an array", path
            )
        found: Any = self._value(operation)
        for step in steps:
            if isinstance(found, Mapping) and step in found:
                found = found[step]
            elif (
                isinstance(found, list)
                and step.isdecimal()
                and step.isascii()
                and int(step) < len(found)
            ):
                found = found[int(step)]
            else:
                raise _wrong(f'"{step}" is not in what "{operation}" has answered', path)
        self._bytes_left -= len(jsontext.dumps(found))
        if self._bytes_left < 0:
            raise _wrong("The references of the batch bring in more than a body may hold", path)
        return found


def _wrong(reason: str, path: Path) -> Refused:
    return invalid_payload(reason, path=list(path))

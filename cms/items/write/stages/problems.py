"""The problems of a payload, with their positions in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from cms.errors import MAX_PROBLEMS, Inquiry, PayloadPath, Problem, Refused
from cms.schema.model import Collection
from cms.schema.payload import invalid_item


class PayloadPosition(NamedTuple):
    """A position in the payload.

    `number` is the item's position in an array of several; `path` leads on inside the item.
    """

    number: int | None = None
    path: PayloadPath = ()

    def below(self, *steps: str | int) -> PayloadPosition:
        return PayloadPosition(self.number, (*self.path, *steps))


WHOLE_ITEM = PayloadPosition()
"""The position of the only item of a call."""


class ItemProblem(NamedTuple):
    """A problem, and the number of its item."""

    number: int
    problem: Problem


@dataclass(slots=True)
class Problems:
    """The problems of a payload, which one answer lists.

    `entries` are the first problems; `total` is one more where there are others.
    """

    entries: list[ItemProblem] = field(default_factory=list)
    total: int = 0

    def add(self, problem: Problem, position: PayloadPosition) -> None:
        """Add a problem with its position, which for a problem of a field includes the field.

        Raises `Refused` past `MAX_PROBLEMS`: nothing more of the payload is looked at.
        """
        self.total += 1
        if self.total > MAX_PROBLEMS:
            self.refuse()
        self.entries.append(ItemProblem(position.number or 0, with_position(problem, position)))

    def refuse(self, inquiry: Inquiry | None = None) -> None:
        """Raise `Refused` with the problems in the order of their items, if there are any."""
        if self.entries:
            # Parsing, completing and resolving each add theirs, so that items alternate.
            entries = sorted(self.entries, key=attrgetter("number"))
            problems = [entry.problem for entry in entries]
            raise Refused(problems, total=self.total, inquiry=inquiry)


def key_change_problem(collection: Collection) -> Problem:
    """Return the problem of an item whose key a flow has changed, which only names the item."""
    reason = "a flow cannot change the primary key of an item"
    return invalid_item(reason, collection.name, collection.key_name or None)


def no_target_problem(collection: Collection, name: str, collection_field: str) -> Problem:
    """Return the problem of a many-to-any field whose row does not name the other collection."""
    reason = f'"{collection_field}" must say to which collection it belongs'
    return invalid_item(reason, collection.name, name)


def with_position(problem: Problem, position: PayloadPosition) -> Problem:
    """Return a problem with the number of its item, and the path to what it is about."""
    extensions = dict(problem.extensions)
    path = (*position.path, *_path_inside(problem))
    if path:
        extensions["path"] = list(path)
    if position.number is not None:
        extensions["index"] = position.number
    return replace(problem, extensions=extensions)


def _path_inside(problem: Problem) -> list[str | int]:
    """Return the path from the item to the value that a problem is about."""
    # A path begins with the field itself. It is empty where the item is a key in a list.
    path = problem.extensions.get("path")
    if isinstance(path, list):
        return path
    name = problem.extensions.get("field")
    return [name] if isinstance(name, str) else []

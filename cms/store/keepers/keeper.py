"""What a keeper is: what it minds before and after rows of its collection are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cms.errors import Problem, Refused
from cms.query.drafts import Draft
from cms.schema.types import MASK
from cms.store.store import Fetch, Scene

Check = Callable[[object, Scene], None]
"""Looks at a value as it was sent; raises ValueError with a reason."""


class Wrong(ValueError):
    """A value inside another is wrong: `path` leads to it from the field."""

    def __init__(self, reason: str, *path: str | int) -> None:
        super().__init__(reason)
        self.path = path


@dataclass(frozen=True, slots=True)
class Keeper:
    """`closed` collections are written by administrators only, and so are the fields of `admin_fields`.

    Presets set neither those nor `said_only`: a preset is nobody's word, and reaches whatever row is written.
    `checks` look at the values of fields; `before` and `after` look at the keys of rows that are there, inside the
    transaction: of what changes or goes, and of what has been written or has gone. They raise `Refused`.
    """

    closed: bool = False
    admin_fields: frozenset[str] = frozenset()
    said_only: frozenset[str] = frozenset()
    checks: Mapping[str, Check] = field(default_factory=dict)
    before: Callable[[Fetch, Scene, Sequence[Draft], Sequence[str]], None] | None = None
    after: Callable[[Fetch, Scene, Sequence[Draft]], None] | None = None

    @property
    def unset(self) -> frozenset[str]:
        """The fields that no preset sets."""
        return self.admin_fields | self.said_only

    def problems(self, draft: Draft, scene: Scene, collection: str) -> list[Problem]:
        """Return what is wrong with the values of a row; null is left to what the column takes."""
        found = []
        for name, check in self.checks.items():
            kept = draft.sent.get(name) == MASK and name not in draft.values  # a secret, sent back as it was shown
            if draft.sent.get(name) is None or kept:
                continue
            try:
                check(draft.sent[name], scene)
            except Wrong as wrong:
                found.append(_problem(collection, name, wrong, *wrong.path))
            except ValueError as error:
                found.append(_problem(collection, name, error))
        return found


def _problem(collection: str, name: str, error: ValueError, *path: str | int) -> Problem:
    place = ".".join(map(str, (name, *path)))
    extensions = {"collection": collection, "field": name, "path": [name, *path], "type": "valid", "reason": str(error)}
    return Problem("FAILED_VALIDATION", f'Validation failed for "{place}": {error}.', extensions)


def unprocessable(reason: str) -> Refused:
    """Return the refusal of a write that would leave the service in a state it must not be in."""
    return Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))


def one_of(*words: str) -> Check:
    """Return the check that a value is one of these words."""

    def check(value: object, scene: Scene) -> None:
        if value not in words:
            raise ValueError(f"it is one of {', '.join(words)}")

    return check

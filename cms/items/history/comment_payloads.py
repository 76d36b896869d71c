"""Comments as bodies of requests hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from cms.errors import Problem, abbreviated, invalid_payload
from cms.items.history.mentions import CommentText
from cms.items.write.stages.problems import WHOLE_ITEM, PayloadPosition, Problems
from cms.schema.model import Collection
from cms.schema.payload import MISSING_KEY, REPEATED, invalid_item, value_problem
from cms.schema.reasons import NO_SUCH_FIELD

MAX_COMMENT = 100_000
"""Characters of one comment."""

_NEW = ("collection", "item", "comment")
_CHANGE = ("comment",)


def parse_new_comments(items: Sequence[object]) -> list[CommentText]:
    """Return the comments of a body; raises `Refused` INVALID_PAYLOAD with all problems of them."""
    problems = Problems()
    positions = _positions(items)
    texts = [_texts(item, _NEW, problems, at) for at, item in zip(positions, items, strict=True)]
    problems.refuse()
    return [CommentText(each["collection"], each["item"], each["comment"]) for each in texts]


def parse_change(item: object) -> str:
    """Return the new text of a body; raises `Refused` INVALID_PAYLOAD."""
    problems = Problems()
    texts = _texts(item, _CHANGE, problems, WHOLE_ITEM)
    problems.refuse()
    return texts["comment"]


def parse_changes(activity: Collection, items: Sequence[object]) -> dict[str, str]:
    """Return the new texts of an array by the keys of their comments.

    Raises `Refused` INVALID_PAYLOAD with all problems: an element without a key, or with one that
    an element before it has, is refused as well.
    """
    key_field = activity.key_name
    problems = Problems()
    changes: dict[str, str] = {}
    for position, item in zip(_positions(items), items, strict=True):
        key = _key(activity, item, problems, position)
        texts = _texts(item, _CHANGE, problems, position, key_field=key_field)
        if key in changes:
            problems.add(invalid_item(REPEATED, activity.name, key_field), position)
        elif key is not None:
            changes[key] = texts.get("comment", "")
    problems.refuse()
    return changes


def _positions(items: Sequence[object]) -> list[PayloadPosition]:
    if len(items) == 1:
        return [WHOLE_ITEM]
    return [PayloadPosition(index) for index in range(len(items))]


def _key(
    activity: Collection, item: object, problems: Problems, position: PayloadPosition
) -> str | None:
    """Return the key of a changed comment; None for an invalid one, which becomes a problem."""
    if not isinstance(item, Mapping):
        return None
    name = activity.key_name
    key = item.get(name)
    if key is None:
        problems.add(invalid_item(MISSING_KEY, activity.name, name), position)
        return None
    try:
        return activity.key.type.parse(key)
    except ValueError as error:
        problems.add(value_problem(activity, name, key, error), position)
        return None


def _texts(
    item: object,
    names: Sequence[str],
    problems: Problems,
    position: PayloadPosition,
    *,
    key_field: str | None = None,
) -> dict[str, str]:
    """Return the valid fields of a comment; missing and invalid ones become problems."""
    if not isinstance(item, Mapping):
        problems.add(invalid_payload("A comment must be an object").problems[0], position)
        return {}
    # An unknown field is refused, because it would be lost silently.
    for name in item:
        if name not in names and name != key_field:
            problems.add(_problem(name, item, NO_SUCH_FIELD), position)
    texts: dict[str, str] = {}
    for name in names:
        value = _text(name, item.get(name))
        if value is None:
            reason = f"it must be a text of 1 to {MAX_COMMENT} characters"
            problems.add(_problem(name, item, reason), position)
        else:
            texts[name] = value
    return texts


def _text(name: str, value: object) -> str | None:
    """Return the text of a field, None for a value that it does not take; a key may be a number."""
    # A boolean is an int to Python, but no key.
    if name == "item" and isinstance(value, int | Decimal) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip() and len(value) <= MAX_COMMENT:
        return value
    return None


def _problem(name: str, item: Mapping[str, object], reason: str) -> Problem:
    sent = {"value": abbreviated(item[name])} if name in item else {}
    return invalid_payload(f'"{name}": {reason}', field=name, **sent).problems[0]

"""Hooks of permissions: their rules must be usable, their fields exist (docs/permissions.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cms import jsontext
from cms.access.policy import ALL_FIELDS, parse_permissions, power_problem
from cms.access.rules import guarded_rule
from cms.access.visible_structure import ACTIONS
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.items.write.hooks.users import USER_HOOKS
from cms.query.rules.payload_rules import parse_rule
from cms.schema.model import Collection, Kind
from cms.schema.payload import converter
from cms.schema.system import USERS
from cms.store.context import RequestContext
from cms.store.table_hooks import (
    HookedRow,
    TableHooks,
    errors_of,
    keys_of,
    one_of,
    refusals_as_errors,
    unprocessable,
)


def _check_collection(value: object, context: RequestContext) -> None:
    collection = context.snapshot.catalogue.collections.get(str(value))
    # A folder groups collections, and has no items itself.
    if collection is None or collection.kind is Kind.FOLDER:
        raise ValueError("there is no such collection")


def _check_fields(value: object, context: RequestContext) -> None:
    # A text holds names with commas between them.
    if isinstance(value, str):
        return
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("it is a list of names of fields, or of *")


def _check_rule(value: object, context: RequestContext) -> None:
    # Only its form: which names it may hold depends on the collection, which `_after` knows.
    with refusals_as_errors():
        parse_permissions(value)


def _check_validation(value: object, context: RequestContext) -> None:
    with refusals_as_errors():
        parse_rule(value)


def _check_presets(value: object, context: RequestContext) -> None:
    if not isinstance(value, dict):
        raise ValueError("it is an object of fields and values")


def _after(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    """Check that written permissions fit their collections.

    A change of the collection or of a rule alone can make the two differ: the stored row decides.
    """
    if not rows:
        return
    keys = keys_of(rows)
    for name, action, *texts in fetch(statement("find_permissions"), (keys,)):
        collection = context.snapshot.catalogue.collections.get(name)
        if collection is None:
            raise unprocessable(f'There is no collection "{name}"')
        rule, fields, presets = map(jsontext.loads_optional, texts)
        names = {*_names_in(fields), *_names_in(presets)}
        problem = power_problem(name, action, names)
        if problem:
            raise unprocessable(problem)
        _check_fits(collection, context, rule, fields, presets)


def _check_fits(
    collection: Collection, context: RequestContext, rule: object, fields: object, presets: object
) -> None:
    reasons: list[str] = []
    # A name may be in both, and is reported once.
    for name in dict.fromkeys([*_names_in(fields), *_names_in(presets)]):
        if name != ALL_FIELDS and name not in collection.fields:
            reasons.append(f'"{collection.name}" has no field "{name}"')
    reasons += _preset_problems(collection, presets)
    if rule is not None:
        try:
            # The guard finds names that do not exist, and operators that do not fit their fields.
            guarded_rule(parse_permissions(rule), collection, context.snapshot.catalogue)
        except Refused as refused:
            reasons += map(str, errors_of(refused).errors)
    problems: list[Problem] = []
    for reason in reasons:
        problems += unprocessable(reason).problems
    if problems:
        raise Refused(problems)


def _preset_problems(collection: Collection, presets: object) -> Iterator[str]:
    """Yield the problems of presets."""
    if not isinstance(presets, dict):
        return
    for name, value in presets.items():
        # A preset of these would reach every user that is written, unseen by its caller.
        if collection.name == USERS and name in USER_HOOKS.never_preset:
            yield f'No preset sets "{name}" of users'
            continue
        field = collection.fields.get(name)
        if field is None or not field.has_value or value is None:
            continue
        # A variable can only be checked when an item is written.
        if isinstance(value, str) and value.startswith("$"):
            continue
        try:
            converter(field)(value)
        except ValueError as error:
            yield f'The preset of "{name}": {error}'


def _names_in(value: object) -> list[str]:
    # A list of names, or presets by names.
    if not isinstance(value, list | dict):
        return []
    return [str(name) for name in value]


PERMISSION_HOOKS = TableHooks(
    is_admin_only=True,
    checks={
        "collection": _check_collection,
        "action": one_of(*ACTIONS),
        "fields": _check_fields,
        "permissions": _check_rule,
        "validation": _check_validation,
        "presets": _check_presets,
    },
    after=_after,
)

"""Hooks of the project's settings: they take only values that can be used (docs/settings.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal

from cms.database.connections import Fetch
from cms.errors import Refused
from cms.items.write.hooks.roles import require_plain_registration_role
from cms.query.language.ast import And, AtField, Filter, Or, has_item_test
from cms.query.rules.payload_rules import parse_rule
from cms.regex import compile_regex
from cms.schema.names import FieldName
from cms.schema.system import SETTINGS, choices_of
from cms.store.context import RequestContext
from cms.store.table_hooks import (
    HookedRow,
    InvalidPart,
    TableHooks,
    ValueCheck,
    check_color,
    check_limit,
    one_of,
    raise_errors,
    refusals_as_errors,
    text_check,
)
from cms.transforms.transform import PARAMETERS, parse_preset

# A language with its script, region and the like: de, en-US, zh-Hant-TW.
_LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(?:-[a-zA-Z0-9]{2,8})*")
# A scheme and a host; the rest is for whoever follows the address.
_URL = re.compile(r"https?://[^\s/]\S*")
MAX_URL_LENGTH = 2_000
MAX_NAME_LENGTH = 200

_EMAIL = FieldName("email")
# The key of a preset of transforms, which stands in URLs of images.
_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.IGNORECASE)


def _pattern_check(pattern: re.Pattern[str], reason: str) -> ValueCheck:
    def check(value: object, context: RequestContext) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(reason)

    return check


def _check_url(value: object, context: RequestContext) -> None:
    if not isinstance(value, str) or not _URL.fullmatch(value):
        raise ValueError("it is an address such as https://example.com")
    if len(value) > MAX_URL_LENGTH:
        raise ValueError(f"it has at most {MAX_URL_LENGTH} characters")


def _check_policy(value: object, context: RequestContext) -> None:
    # The text field takes 8 as "8": a policy that every password with that digit follows.
    if not isinstance(value, str):
        raise ValueError("it is a regular expression")
    # A pattern that is none raises ValueError.
    compile_regex(value)


def _check_filter(value: object, context: RequestContext) -> None:
    with refusals_as_errors():
        rule = parse_rule(value, parameter="public_registration_email_filter")
    # A test of anything else, such as {"mail": {"_null": true}}, might let everybody in.
    if not _tests_email(rule.filter):
        raise ValueError("it tests email and nothing else")


def _tests_email(rule: Filter) -> bool:
    match rule:
        case And(items) | Or(items):
            return all(_tests_email(item) for item in items)
        case AtField(name, inner):
            return name == _EMAIL and not has_item_test(inner)
        case _:
            return False


def _check_presets(value: object, context: RequestContext) -> None:
    if not isinstance(value, list):
        raise ValueError("it is a list of presets")
    keys: set[object] = set()
    errors = []
    for index, preset in enumerate(value):
        try:
            keys.add(_check_preset(preset, index, keys))
        except InvalidPart as error:
            errors.append(error)
    raise_errors(errors)


def _check_preset(preset: object, index: int, keys: Set[object]) -> object:
    """Return the key of a preset that can be used; raises `InvalidPart`."""
    if not isinstance(preset, Mapping):
        raise InvalidPart("a preset is an object", index)
    # A preset is its key with parameters, as in {"key": "card", "width": 400, "height": 300}.
    key = preset.get("key")
    # Keys with "system-" are those of the service's own presets.
    if not isinstance(key, str) or not _KEY.fullmatch(key) or key.startswith("system-"):
        raise InvalidPart(
            'it has letters, digits, "-" and "_", and does not begin with "system-"', index, "key"
        )
    # The first unknown name is reported: each preset has one problem at a time.
    for name in sorted(preset.keys() - set(PARAMETERS)):
        raise InvalidPart("there is no such parameter", index, name)
    try:
        parse_preset(preset)
    except Refused as refused:
        extensions = refused.problems[0].extensions
        reason = str(extensions["reason"])
        raise InvalidPart(reason, index, str(extensions["parameter"])) from None
    if key in keys:
        raise InvalidPart("there is a preset of this key already", index, "key")
    return key


def _check_ratios(value: object, context: RequestContext) -> None:
    if not isinstance(value, list):
        raise ValueError("it is a list of ratios")
    errors = []
    for index, ratio in enumerate(value):
        if not _is_ratio(ratio):
            reason = "a ratio is an object with text and value, a number above 0"
            errors.append(InvalidPart(reason, index))
    raise_errors(errors)


def _is_ratio(ratio: object) -> bool:
    # As {"text": "16:9", "value": 1.78}, or a decimal in place of the float.
    if not isinstance(ratio, Mapping) or not isinstance(ratio.get("text"), str):
        return False
    value = ratio.get("value")
    if isinstance(value, bool):
        return False  # which Python takes for a number
    return isinstance(value, int | float | Decimal) and value > 0


def _after(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    require_plain_registration_role(fetch)


SETTINGS_HOOKS = TableHooks(
    after=_after,
    checks={
        "project_name": text_check(MAX_NAME_LENGTH),
        "project_color": check_color,
        "project_url": _check_url,
        "default_language": _pattern_check(_LANGUAGE, "it is a language such as en-US"),
        "auth_login_attempts": check_limit,
        "auth_password_policy": _check_policy,
        "public_registration_email_filter": _check_filter,
        "storage_asset_transform": one_of(*choices_of(SETTINGS, "storage_asset_transform")),
        "storage_asset_presets": _check_presets,
        "custom_aspect_ratios": _check_ratios,
    },
)

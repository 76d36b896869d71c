"""The settings of the project: values that the service can go by (decisions, section 13)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from decimal import Decimal

from cms.errors import Refused
from cms.query.drafts import Draft
from cms.query.validation import parse_rule
from cms.regex import compile_regex
from cms.store.keepers.keeper import Check, Keeper, Wrong, one_of, reasons_of, refuse_several
from cms.store.keepers.roles import keep_registration_low
from cms.store.store import Fetch, Scene
from cms.transforms.wanted import PARAMETERS, parse_preset

_COLOR = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})")
_LANGUAGE = re.compile(r"[a-zA-Z]{2,3}(?:-[a-zA-Z0-9]{2,8})*")
_URL = re.compile(r"https?://[^\s/]+\S*")
_KEY = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.IGNORECASE)


def _matching(pattern: re.Pattern[str], reason: str) -> Check:
    def check(value: object, scene: Scene) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError(reason)

    return check


def _check_policy(value: object, scene: Scene) -> None:
    compile_regex(str(value))


def _check_attempts(value: object, scene: Scene) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("it is a whole number from 1, or null for no limit")


def _check_name(value: object, scene: Scene) -> None:
    if isinstance(value, str) and not 0 < len(value.strip()) <= 200:
        raise ValueError("it has 1 to 200 characters")


def _check_filter(value: object, scene: Scene) -> None:
    try:
        parse_rule(value, parameter="public_registration_email_filter")
    except Refused as refused:
        raise reasons_of(refused) from None


def _check_presets(value: object, scene: Scene) -> None:
    if not isinstance(value, list):
        raise ValueError("it is a list of presets")
    keys: set[object] = set()
    faults = []
    for place, preset in enumerate(value):
        try:
            keys.add(_check_preset(preset, place, keys))
        except Wrong as wrong:
            faults.append(wrong)
    refuse_several(faults)


def _check_preset(preset: object, place: int, keys: Set[object]) -> object:
    """Return the key of a preset that can be used; raises `Wrong`."""
    if not isinstance(preset, Mapping):
        raise Wrong("a preset is an object", place)
    key = preset.get("key")
    if not isinstance(key, str) or not _KEY.fullmatch(key) or key.startswith("system-"):
        raise Wrong('it has letters, digits, "-" and "_", and does not begin with "system-"', place, "key")
    for name in sorted(preset.keys() - set(PARAMETERS)):
        raise Wrong("there is no such parameter", place, name)
    try:
        parse_preset(preset)
    except Refused as refused:
        told = refused.problems[0].extensions
        raise Wrong(str(told["reason"]), place, str(told["parameter"])) from None
    if key in keys:
        raise Wrong("there is a preset of this key already", place, "key")
    return key


def _check_ratios(value: object, scene: Scene) -> None:
    if not isinstance(value, list):
        raise ValueError("it is a list of ratios")
    faults = []
    for place, ratio in enumerate(value):
        found = ratio.get("value") if isinstance(ratio, Mapping) and isinstance(ratio.get("text"), str) else None
        if isinstance(found, bool) or not isinstance(found, int | float | Decimal) or found <= 0:
            faults.append(Wrong("a ratio is an object with text and value, a number above 0", place))
    refuse_several(faults)


def _after(fetch: Fetch, scene: Scene, drafts: Sequence[Draft]) -> None:
    keep_registration_low(fetch)


SETTINGS = Keeper(
    closed=True,
    after=_after,
    checks={
        "project_name": _check_name,
        "project_color": _matching(_COLOR, "it is a colour such as #6644FF"),
        "project_url": _matching(_URL, "it is an address such as https://example.com"),
        "default_language": _matching(_LANGUAGE, "it is a language such as en-US"),
        "auth_login_attempts": _check_attempts,
        "auth_password_policy": _check_policy,
        "public_registration_email_filter": _check_filter,
        "storage_asset_transform": one_of("all", "none", "presets"),
        "storage_asset_presets": _check_presets,
        "custom_aspect_ratios": _check_ratios,
    },
)

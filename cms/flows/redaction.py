"""Masks secrets in the logs of runs, by their names or their values, and cuts large values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import re2

from cms import jsontext
from cms.flows.secret_texts import (
    forms_of,
    is_query_secret,
    is_secret_name,
    masked_by_form,
    may_hold_secrets,
    secrets_in,
)
from cms.text_shapes import MASK

MIN_SECRET_LENGTH = 4
"""A shorter text is no secret: masking it would spoil every log."""
MIN_NUMBER_LENGTH = 6
"""The same of numbers, which are as often counts of tokens."""
MAX_SECRETS = 250
MAX_SECRETS_LENGTH = 2**14
"""Characters of all secrets of a run. Beyond either bound its log shows no values at all."""
MAX_TEXT_LENGTH = 10_000
"""Characters of one text that a log keeps."""

MAX_DEPTH = 100
"""Levels of a value that a log keeps: JSON is not written at any depth."""

_MAX_PATTERN_BYTES = 2**26
"""The memory of the automaton of all secrets; with less RE2 could rebuild it again and again."""

_LARGE = 1_000
"""Values inside of one that make it large: it is searched once, however often it comes again."""
_VALUE_LENGTH = 16
"""Characters of a text that take as long to search as one more value."""

_HEADER_NAMES = ("header", "name", "key")
"""Where the name of a header stands that is an object with its `value`."""


class Secrets:
    """The secrets of a run and of its inner runs, collected while it runs.

    `names` are names of secrets beside the usual ones. Both methods take time linear in their
    value, however many secrets there are. A large value that operations hand on is searched once:
    nobody changes the values of a run.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self._added: set[str] = set()
        self._texts: set[str] = set()
        self._length = 0
        self._has_too_many = False
        self._pattern: Any = None
        # The key is the identity of a value. The value is kept too, so that no later one gets the
        # same identity.
        self._searched: dict[tuple[int, bool], object] = {}
        self._values_searched = 0
        self._values_too_deep = 0
        self._is_inside_text = False

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def add(self, secret: str) -> None:
        """Mask a text from now on, also as URLs, JSON and headers write it."""
        if self._has_too_many or secret in self._added:
            return
        if secret == MASK or not _is_encodable(secret):
            return
        if len(secret) > MAX_SECRETS_LENGTH:
            self._has_too_many = True
            return
        # All forms of one secret count towards the bounds: each is one more alternative of the
        # pattern.
        for text in forms_of(secret):
            if len(text) >= MIN_SECRET_LENGTH and text not in self._texts:
                self._texts.add(text)
                self._length += len(text)
                # Built anew at the next use: secrets come in batches, and each automaton takes
                # time.
                self._pattern = None
        if len(secret) >= MIN_SECRET_LENGTH:
            self._added.add(secret)
        self._has_too_many = len(self._texts) > MAX_SECRETS or self._length > MAX_SECRETS_LENGTH

    def collect(self, value: object) -> None:
        """Find the secrets of a value: under their names, in URLs, and in texts that are JSON."""
        # Most values hold none: this test costs less than a walk through the value.
        if may_hold_secrets(value, self._names):
            self._collect(value, 0)

    def masked(self, value: object) -> object:
        """Return a value for a log: secrets are masked, long texts cut.

        With too many secrets the whole value is masked, unless it is null.
        """
        if self._has_too_many:
            return None if value is None else MASK
        if not self._texts and not may_hold_secrets(value, self._names) and _is_kept_whole(value):
            return value
        if self._pattern is None and self._texts:
            self._pattern = _pattern_of(self._texts)
        return self._masked(value, 0)

    def _collect(self, value: object, depth: int, *, own_name: str = "") -> None:
        self._values_searched += 1
        self._values_too_deep += depth > MAX_DEPTH
        if self._has_too_many or depth > MAX_DEPTH:
            return
        if not isinstance(value, str | Mapping | list | tuple):
            return
        # In the query of a URL, other names are secrets.
        key = (id(value), own_name == "query")
        if key in self._searched:
            return
        searched_before = self._values_searched
        too_deep_before = self._values_too_deep
        self._collect_new(value, depth, own_name)
        is_large = self._values_searched - searched_before > _LARGE
        is_whole = self._values_too_deep == too_deep_before
        # Values parsed from a text exist only during this search.
        if is_large and is_whole and not self._is_inside_text:
            self._searched[key] = value

    def _collect_new(self, value: object, depth: int, own_name: str) -> None:
        if isinstance(value, str):
            self._values_searched += len(value) // _VALUE_LENGTH
            self._collect_text(value, depth)
        elif isinstance(value, Mapping):
            secret_names = self._secret_names(value, own_name)
            for name, inner in value.items():
                if not _is_plain(name):
                    self._collect_text(str(name), depth)
                if str(name) in secret_names:
                    self._add_all(inner, depth)
                else:
                    self._collect(inner, depth + 1, own_name=str(name))
        elif isinstance(value, list | tuple):
            for inner in value:
                self._collect(inner, depth + 1)

    def _collect_text(self, text: str, depth: int) -> None:
        parsed = _parsed(text)
        if parsed is None:
            for secret in secrets_in(text):
                self.add(secret)
            return
        was_inside_text = self._is_inside_text
        self._is_inside_text = True
        self._collect(parsed, depth + 1)
        self._is_inside_text = was_inside_text

    def _add_all(self, value: object, depth: int) -> None:
        """Mask all texts and numbers of a value."""
        self._values_searched += 1
        self._values_too_deep += depth > MAX_DEPTH
        if self._has_too_many or depth > MAX_DEPTH:
            return
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, list | tuple):
            for inner in value:
                self._add_all(inner, depth + 1)
        elif isinstance(value, str):
            self.add(value)
            self._collect(value, depth)
        elif len(str(value)) >= MIN_NUMBER_LENGTH:
            self.add(str(value))

    def _masked(self, value: object, depth: int, *, own_name: str = "") -> object:
        if isinstance(value, str):
            return self._masked_text(value, depth)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Mapping | list | tuple) and depth > MAX_DEPTH:
            return MASK
        if isinstance(value, Mapping):
            return self._masked_mapping(value, depth, own_name)
        if isinstance(value, list | tuple):
            return [self._masked(inner, depth + 1) for inner in value]
        # A number may be a secret as well: a code that was sent, for example.
        if str(value) in self._texts:
            return MASK
        return value

    def _masked_mapping(
        self, value: Mapping[Any, object], depth: int, own_name: str
    ) -> dict[str, object]:
        secret_names = self._secret_names(value, own_name)
        masked: dict[str, object] = {}
        for name, inner in value.items():
            text = str(name)
            key = self._without_known(text) if _is_plain(name) else self._masked_text(text, depth)
            # Names that look alike without their secrets are still as many.
            if key in masked:
                key = f"{key} {len(masked)}"
            if inner is not None and text in secret_names:
                masked[key] = MASK
            else:
                masked[key] = self._masked(inner, depth + 1, own_name=text)
        return masked

    def _secret_names(self, value: Mapping[Any, object], own_name: str) -> set[str]:
        """Return the names of a mapping whose values are secrets; `own_name` names the mapping."""
        # The members of `query` are names of a URL: `key` and `sig` are secrets there, and ordinary
        # words elsewhere.
        is_secret = is_query_secret if own_name == "query" else is_secret_name
        names = {str(name) for name in value if name in self._names or is_secret(str(name))}
        # {"header": "Authorization", "value": "…"}: the name of the secret is a value itself.
        if "value" in value and _has_secret_header(value):
            names.add("value")
        return names

    def _masked_text(self, text: str, depth: int) -> str:
        # Only the kept part is searched, and enough behind it for a secret at its end to be whole.
        length = MAX_TEXT_LENGTH + MAX_SECRETS_LENGTH
        is_cut = False
        parsed = _parsed(text)
        # A text that is JSON holds names like any other value.
        if parsed is not None and depth <= MAX_DEPTH:
            part, is_cut = truncate(parsed, length)
            masked = self._masked(part, depth + 1)
            # A text without secrets stays as it was written, if all of it was looked at.
            if is_cut or masked != part:
                text = jsontext.dumps(masked).decode()
        is_cut = is_cut or len(text) > length
        text = masked_by_form(self._without_known(text[:length]))
        if is_cut or len(text) > MAX_TEXT_LENGTH:
            return f"{text[:MAX_TEXT_LENGTH]} …"
        return text

    def _without_known(self, text: str) -> str:
        if self._pattern is None:
            return text
        if not _is_encodable(text):
            return MASK
        return str(self._pattern.sub(MASK, text))


def _is_kept_whole(value: object) -> bool:
    """Tell whether a value without escapes in its texts has none that is cut, and few levels."""
    text = jsontext.dumps(value)
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        return False
    if len(text) <= MAX_TEXT_LENGTH:
        return True
    # No text is longer than the longest piece between two quotes.
    pieces = text.split(b'"')
    return max(map(len, pieces)) <= MAX_TEXT_LENGTH


def _is_plain(name: object) -> bool:
    """Tell whether a name is like nearly all names: no URL, no JSON, and not too long."""
    return isinstance(name, str) and name.isidentifier() and len(name) <= MAX_TEXT_LENGTH


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # halves of characters, which no log can hold either
        return False
    return True


def _has_secret_header(pair: Mapping[Any, object]) -> bool:
    """Tell whether an object with a `value` says that this is a header that holds a secret."""
    names = [pair.get(member) for member in _HEADER_NAMES]
    return any(isinstance(name, str) and is_secret_name(name) for name in names)


def _parsed(text: str) -> object:
    """Return the array or object that a text is as JSON, None for any other text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return jsontext.loads_stored(text)
    except (ValueError, RecursionError):
        return None


def _pattern_of(texts: set[str]) -> Any:
    options = re2.Options()
    options.log_errors = False
    # If one secret is the beginning of another, the longer one is masked; its end would be left
    # otherwise.
    options.longest_match = True
    options.never_capture = True
    options.max_mem = _MAX_PATTERN_BYTES
    # RE2 looks for all of them in one pass over the text.
    return re2.compile("|".join(map(re2.escape, sorted(texts))), options)


class Truncated(NamedTuple):
    """The beginning of a value, and whether anything comes behind it."""

    value: object
    is_cut: bool


@dataclass(slots=True)
class _Budget:
    """The characters that the first part of a value may still take, roughly."""

    left: int
    is_cut: bool = False

    def is_spent(self) -> bool:
        """Tell whether nothing is left for a value that follows, which is cut then."""
        self.is_cut = self.is_cut or self.left <= 0
        return self.is_cut


def truncate(value: object, length: int) -> Truncated:
    """Return the first `length` characters of a value, roughly; no text is cut in the middle."""
    budget = _Budget(length)
    part = _part(value, budget, 0)
    return Truncated(part, budget.is_cut)


def _part(value: object, budget: _Budget, depth: int) -> object:
    if depth > MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        members: dict[object, object] = {}
        for name, inner in value.items():
            if budget.is_spent():
                break
            budget.left -= len(str(name))
            members[name] = _part(inner, budget, depth + 1)
        return members
    if isinstance(value, list | tuple):
        parts = []
        for inner in value:
            if budget.is_spent():
                break
            parts.append(_part(inner, budget, depth + 1))
        return parts
    budget.left -= len(str(value))
    return value

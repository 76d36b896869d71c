"""Where secrets stand: under which names, and where in URLs, headers and other texts."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

import re2

from cms import jsontext
from cms.text_shapes import MASK

# Within a name, without signs and capitals: `X-Api-Key`, `clientSecret`, `refresh_token`.
SECRET_WORDS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
)
# Whole names: as a part, `cookie` would also be in `cookieConsent`.
SECRET_NAMES = frozenset(
    {"authorization", "proxyauthorization", "cookie", "setcookie", "credentials", "otp", "pwd"}
)
QUERY_NAMES = frozenset({"key", "sig", "signature", "auth", "xamzsignature"})
"""Names that are secrets in the query of a URL, beside those that are secrets everywhere."""

_HINT = re.compile(r"[=:]|(?i:\b(?:basic|bearer)\s)")
"""A text without any of these is not searched any further."""

# At least 16 characters: "basic knowledge" is no credential.
_SCHEME = re.compile(r"(?i)\b(basic|bearer)\s+([\w+/=.~-]{16,})")
# The part between :// and @ of an address.
_USERINFO = re.compile(r"(?<=://)([^\s/?#@\"'<>]+)@")
# `?key=…`, `&token=…`: a name and a value in the query of a URL.
_QUERY_ENTRY = re.compile(r"(?<=[?&;])([^\s=&;?#\"'<>]+)=([^\s&;#\"'<>]+)")
# A name begins at a boundary and is never shortened: so the time is linear in the text.
_ENTRY_NAME = re.compile(r"(?<![\w.-])([\w.-]++)\\{0,3}[\"']?\s{0,3}[=:]\s{0,3}")
# A value in quotes, with escaped quotes, or up to the next separator; an end that is cut off counts
# as well.
_ENTRY_VALUE = re.compile(
    r"\\++\"[^\"\\]*+"
    r"|\"(?:[^\"\\]|\\.)*+\"?"
    r"|'[^']*+'?"
    r"|(?:(?:basic|bearer)\s+)?[^\s,;&\"'<>{}\[\]\\]++",
    re.IGNORECASE | re.DOTALL,
)

_BETWEEN = "[^a-z0-9]*"
"""What may stand between the letters of a name: `pass-word` is a name of a secret, too."""

_URL_CREDENTIALS = r"://[^\s/?#\"'<>]+@"
_SCHEME_HINT = "(?:basic|bearer) "


def may_hold_secrets(value: object, names: Collection[str]) -> bool:
    """Tell whether a value must be searched for secrets; `names` are further names of some.

    Nearly all values hold none. One automaton reads the value as JSON, which is many times as fast
    as a walk through names and texts. False is certain: no name and no form of a text in it is one
    of a secret.
    """
    try:
        text = jsontext.dumps(value)
    except TypeError:  # nested too deeply, or no text that can be encoded
        return True
    # Escapes, percent signs and letters beyond ASCII could hide a name from the pattern.
    if b"\\" in text or b"%" in text or not text.isascii():
        return True
    return _hint_pattern(frozenset(names)).search(text) is not None


@lru_cache(maxsize=8)
def _hint_pattern(names: frozenset[str]) -> Any:
    """Return the pattern of all hints: it may match too often, but never too rarely."""
    options = re2.Options()
    options.case_sensitive = False
    options.never_capture = True
    options.log_errors = False
    hints = [
        _URL_CREDENTIALS,
        _SCHEME_HINT,
        *map(_BETWEEN.join, (*SECRET_WORDS, *sorted(SECRET_NAMES))),
        # In the query of a URL, or as names in an object that is one.
        *(f'{_BETWEEN.join(name)}{_BETWEEN}["=]' for name in sorted(QUERY_NAMES)),
        # Values with letters beyond ASCII are searched in any case.
        *(f'"{re.escape(name)}"' for name in sorted(filter(str.isascii, names))),
    ]
    return re2.compile("|".join(hints).encode(), options)


def is_secret_name(name: str) -> bool:
    """Tell whether the value under a name is a secret, whatever it is."""
    # Callers choose names: long ones would fill the memory.
    if len(name) <= 100:
        return _is_secret_name(name)
    return _is_secret_name.__wrapped__(name)


@lru_cache(maxsize=4096)
def _is_secret_name(name: str) -> bool:
    normalised = _normalise_name(name)
    return normalised in SECRET_NAMES or any(word in normalised for word in SECRET_WORDS)


def secrets_in(text: str) -> Iterator[str]:
    """Yield the secrets that stand in a text by its form: in URLs, and behind names of headers."""
    if not _HINT.search(text):
        return
    for match in _USERINFO.finditer(text):
        user, _, password = match[1].partition(":")
        # A token often stands in the place of the user.
        yield password or user
    for match in _QUERY_ENTRY.finditer(text):
        if is_query_secret(match[1]):
            yield match[2]
            yield unquote_plus(match[2])
    for match in _SCHEME.finditer(text):
        yield from forms_of(match[0])


def forms_of(secret: str) -> Iterator[str]:
    """Yield the texts that a secret appears as: itself, its parts, and how others write it."""
    for text in (secret, *_parts(secret)):
        yield text
        yield text.strip()
        # As URLs and JSON write it.
        yield quote(text, safe="")
        yield jsontext.dumps(text).decode()[1:-1]


def _parts(secret: str) -> Iterator[str]:
    """Yield the credentials behind a scheme, also decoded; and the values of cookies."""
    scheme, space, credentials = secret.partition(" ")
    if space and scheme.isalpha():
        yield credentials
        if scheme.lower() == "basic":
            yield from _basic_credentials(credentials)
    # Twenty cookies: a text of many semicolons must not become as many secrets.
    for entry in secret.split(";")[:20]:
        name, equals, value = entry.partition("=")
        if equals and name.strip().isidentifier():
            yield value
    if "%" in secret:
        yield unquote(secret)


def _basic_credentials(encoded: str) -> Iterator[str]:
    try:
        decoded = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield decoded
    # The password alone, too.
    yield decoded.partition(":")[2]


def masked_by_form(text: str) -> str:
    """Return a text without the secrets that its form tells, whether or not they are known."""
    if not _HINT.search(text):
        return text
    text = _USERINFO.sub(f"{MASK}@", text)
    text = _QUERY_ENTRY.sub(_masked_query_entry, text)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    return _without_entries(text)


def _masked_query_entry(match: re.Match[str]) -> str:
    if is_query_secret(match[1]):
        return f"{match[1]}={MASK}"
    return match[0]


def _without_entries(text: str) -> str:
    """Mask the values that stand behind names of secrets and a colon or an equals sign."""
    pieces: list[str] = []
    end = 0
    for name in _ENTRY_NAME.finditer(text):
        # Behind the name of a secret its value may look like another name.
        if name.start() < end or not is_secret_name(name[1]):
            continue
        value = _ENTRY_VALUE.match(text, name.end())
        if value:
            pieces += [text[end : name.end()], MASK]
            end = value.end()
    return "".join([*pieces, text[end:]])


def is_query_secret(name: str) -> bool:
    """Tell whether an entry of the query of a URL is a secret by its name."""
    plain = unquote(name)
    return _normalise_name(plain) in QUERY_NAMES or is_secret_name(plain)


def _normalise_name(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())

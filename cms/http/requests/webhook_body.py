"""Bodies of calls that run flows: JSON, forms, and texts such as XML."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import parse_qsl

import falcon

from cms import jsontext
from cms.errors import Problem, Refused, invalid_payload
from cms.files.media_types import without_parameters
from cms.http.requests.form import MAX_FORM_PARTS, is_form, parts_of
from cms.http.requests.media import is_json, read_body, read_json
from cms.http.requests.request import Request

_TEXT_TYPES = frozenset({"text/plain", "text/xml", "application/xml"})
# Other codecs of Python are not for texts, or take quadratic time.
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16"})
_UNKNOWN_TYPE = Problem(
    "UNSUPPORTED_MEDIA_TYPE", "Send JSON, a form, plain text or XML, with its Content-Type."
)

FormValues = dict[str, object]


def read_webhook_body(request: Request) -> object:
    """Return the value of JSON, the fields of a form by name, or a text; None without a body.

    Raises `Refused`: UNSUPPORTED_MEDIA_TYPE, CONTENT_TOO_LARGE, INVALID_PAYLOAD.
    """
    if is_json(request.content_type):
        return read_json(request)
    media_type = without_parameters(request.content_type)
    raw = read_body(request)
    if not raw:
        return None
    if media_type == falcon.MEDIA_URLENCODED:
        return _urlencoded(raw)
    if is_form(request):
        return _multipart(request, raw)
    if media_type in _TEXT_TYPES or media_type.endswith("+xml"):
        return _text(raw, _charset(request))
    raise Refused(_UNKNOWN_TYPE)


def _urlencoded(raw: bytes) -> FormValues:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FORM_PARTS,
        )
    except UnicodeError:
        raise invalid_payload("The form is not percent-encoded UTF-8") from None
    except ValueError:
        raise invalid_payload(f"The form has more than {MAX_FORM_PARTS} fields") from None
    return _form_values(pairs)


def _multipart(request: Request, raw: bytes) -> FormValues:
    pairs: list[tuple[str, str]] = []
    for part in parts_of(request, raw):
        content = b"".join(part.chunks)
        # Browsers send an empty name for an input without a chosen file.
        if part.filename == "":
            continue
        if part.filename is not None:
            raise invalid_payload("A flow takes no files", field=part.name)
        pairs.append((part.name, _text(content, "utf-8")))
    return _form_values(pairs)


def _form_values(pairs: Iterable[tuple[str, str]]) -> FormValues:
    """Return the fields of a form; one that comes several times is a list."""
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        if "\0" in name or "\0" in value:
            raise invalid_payload(jsontext.NUL_REFUSAL)
        values.setdefault(name, []).append(value)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}


def _charset(request: Request) -> str:
    _, parameters = falcon.parse_header(request.content_type or "")
    return parameters.get("charset", "utf-8").lower()


def _text(raw: bytes, charset: str) -> str:
    if charset not in _CHARSETS:
        raise invalid_payload(f"The charset is one of {', '.join(sorted(_CHARSETS))}")
    try:
        text = raw.decode(charset)
    except UnicodeDecodeError:
        raise invalid_payload(f"The body is not {charset}") from None
    if "\0" in text:
        raise invalid_payload(jsontext.NUL_REFUSAL)
    return text

"""The media type of a content, by its first bytes (after the WHATWG standard for MIME sniffing).

The name of the file and the type that its sender declares are only claims: they decide among the
types that such bytes may have. Libraries tell binary files apart; here it matters which contents a
browser would run. The libraries that were tried take SVG behind a comment or under a prefix, XHTML,
and HTML in UTF-16 for something harmless.
"""

from __future__ import annotations

import codecs
import mimetypes
import re
from collections.abc import Iterable, Sequence

from cms.files.file_names import split_extension
from cms.files.signatures import BRANDS, CONTAINED_TYPES, RIFF_TYPES, SIGNATURES

HEAD_BYTES = 4096
"""The number of first bytes by which the type is recognised."""

UNKNOWN = "application/octet-stream"
MARKUP = frozenset(
    {"text/html", "application/xhtml+xml", "image/svg+xml", "application/xml", "text/xml"}
)

# ASCII, so that no letter of another script counts as one of a tag.
_HTML = re.compile(
    r"<(!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|img|form"
    r"|meta|link|object|embed|base)[\s>/]",
    re.IGNORECASE | re.ASCII,
)
_SVG = re.compile(r"<!doctype\s+svg|<([\w-]+:)?svg[\s>/]", re.IGNORECASE)
_SVG_INSIDE = re.compile(r"<([\w-]+:)?svg[\s>]")
# Bytes that no text has: all controls but tab, line breaks, form feed and escape.
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_TEXT_TYPES = re.compile(
    r"text/[\w.+-]+"
    r"|application/([\w.-]+\+)?(json|xml|yaml)"
    r"|application/(javascript|ecmascript|x-[\w.-]*script|sql|toml|x-yaml|x-sh|x-tex|x-subrip"
    r"|graphql|ld\+json|geo\+json|x-ndjson|x-pem-file|pgp-[\w]+|rtf)"
    r"|model/[\w.+-]+"
)
# RFC 6838: a type and a subtype of up to 127 characters each.
_WELL_FORMED = re.compile(r"[a-z0-9][a-z0-9.+-]{0,126}/[a-z0-9][a-z0-9.+-]{0,126}")
_EXTRA_EXTENSIONS = {
    ".md": "text/markdown",
    ".csv": "text/csv",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".ogg": "audio/ogg",
    ".ogv": "video/ogg",
    ".opus": "audio/ogg",
    ".mkv": "video/x-matroska",
    ".m4a": "audio/mp4",
    ".geojson": "application/geo+json",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".epub": "application/epub+zip",
}
# Without the types that files of the machine add: they differ from machine to machine.
_EXTENSIONS = mimetypes.MimeTypes().types_map[True]
_SNIFFABLE = ("image/", "audio/", "video/", "font/", "text/")
_WITH_SIGNATURE = {media_type for _, media_type in SIGNATURES} | MARKUP


def media_type_of(head: bytes, *, name: str, declared: str | None = None) -> str:
    """Return the media type of a content.

    It is decided by the first bytes, `HEAD_BYTES` of them; the name and the declared type count
    where several types have such bytes.
    """
    claimed_types = _claimed_types(name, declared)
    binary_type = _binary_type(head)
    if binary_type is not None:
        return _contained_type(binary_type, claimed_types)
    text = _text(head)
    if text is None:
        return _unrecognised_type(claimed_types)
    return _markup_type(text) or _text_type(claimed_types)


def charset_of(head: bytes, media_type: str) -> str | None:
    """Return the charset of a text whose first bytes are these; None where they do not tell it."""
    if not media_type.startswith("text/"):
        return None
    if head.startswith(_UTF_16_MARKS):
        return "utf-16"
    # A character may be cut off at the end of the head, but not at the end of the content.
    is_whole = len(head) < HEAD_BYTES
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=is_whole)
    except UnicodeDecodeError:
        return None
    return "utf-8"


def is_allowed(media_type: str, allowed: Iterable[str]) -> bool:
    """Tell whether a list of types, `image/*` and `*/*` among them, has this one."""
    family = media_type.partition("/")[0] + "/*"
    return any(pattern in (media_type, family, "*/*") for pattern in allowed)


def without_parameters(content_type: str | None) -> str:
    """Return the media type of a Content-Type header in lower case; none gives an empty text."""
    return (content_type or "").partition(";")[0].strip().lower()


# Claims of the sender


def _claimed_types(name: str, declared: str | None) -> list[str]:
    """Return the types that a file name's extension and the sender claim: two, one or none."""
    extension = split_extension(name).extension.lower()
    by_name = _EXTRA_EXTENSIONS.get(extension) or _EXTENSIONS.get(extension)
    by_sender = without_parameters(declared)
    claimed_types = []
    # The unknown type claims nothing.
    if by_name is not None and by_name != UNKNOWN:
        claimed_types.append(by_name)
    if _WELL_FORMED.fullmatch(by_sender) and by_sender != UNKNOWN:
        claimed_types.append(by_sender)
    return claimed_types


def _contained_type(container: str, claimed_types: Sequence[str]) -> str:
    """Return the claimed type that has such a container: a document is a ZIP file, for instance."""
    prefixes = CONTAINED_TYPES.get(container, ())
    for media_type in claimed_types:
        if media_type.startswith(prefixes):
            return media_type
    return container


def _unrecognised_type(claimed_types: Sequence[str]) -> str:
    """Return the claimed type of bytes without a known signature."""
    for media_type in claimed_types:
        if _may_lack_signature(media_type):
            return media_type
    return UNKNOWN


def _may_lack_signature(media_type: str) -> bool:
    """Tell whether contents of a type may lack a signature: types with a known one never do."""
    return (
        not media_type.startswith(_SNIFFABLE)
        and media_type not in _WITH_SIGNATURE
        and not _TEXT_TYPES.fullmatch(media_type)
    )


def _text_type(claimed_types: Sequence[str]) -> str:
    for media_type in claimed_types:
        if _TEXT_TYPES.fullmatch(media_type) or media_type in MARKUP:
            return media_type
    return "text/plain"


# Types of the bytes


def _binary_type(head: bytes) -> str | None:
    # MP4, QuickTime, HEIC, AVIF: the box `ftyp` behind four bytes with its length.
    if head[4:8] == b"ftyp":
        return _iso_media_type(head)
    if head[:4] == b"RIFF":
        return RIFF_TYPES.get(head[8:12], UNKNOWN)
    if head[:4] == b"FORM" and head[8:11] == b"AIF":
        return "audio/aiff"
    # A text may begin with these letters too, so what follows them is looked at as well.
    if head[:3] == b"BZh" and head[4:10] == b"1AY&SY":
        return "application/x-bzip2"
    # An archive begins with the name of its first file, which may be anything.
    if head[257:262] == b"ustar":
        return "application/x-tar"
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    for start, media_type in SIGNATURES:
        if head.startswith(start):
            return media_type
    return None


def _iso_media_type(head: bytes) -> str:
    """Return the type of an ISO base media file by its brands: its own, then compatible ones."""
    end = min(int.from_bytes(head[:4], "big"), 64)
    brands = head[8:end]
    for brand, media_type in BRANDS:
        if brands.startswith(brand):
            return media_type
    # A still image may name another brand first, and its own only among the compatible ones.
    if b"avif" in brands:
        return "image/avif"
    if b"heic" in brands:
        return "image/heic"
    return "video/mp4"


def _text(head: bytes) -> str | None:
    """Return the bytes as text where they are text; its last character may be cut."""
    if head.startswith(_UTF_16_MARKS):
        return head.decode("utf-16", "replace")
    if _CONTROL_BYTES.search(head):
        return None
    return head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _markup_type(text: str) -> str | None:
    """Return the type of a text that a browser would take for markup."""
    start = _without_leading_comments(text)
    if start.startswith("<?xml"):
        _, _, content = start.partition("?>")
        return _xml_type(_without_leading_comments(content))
    if _SVG.match(start):
        return "image/svg+xml"
    # HTML may begin with a comment, and what follows it may lie beyond the head.
    if _HTML.match(start) or text.lstrip().startswith("<!--"):
        return "text/html"
    return None


def _xml_type(content: str) -> str:
    """Return the type of XML whose content behind `<?xml … ?>` begins like this."""
    if _SVG.match(content):
        return "image/svg+xml"
    if _HTML.match(content):
        return "application/xhtml+xml"
    # Behind instructions or a document type of its own, an image is still one.
    if _SVG_INSIDE.search(content):
        return "image/svg+xml"
    return "application/xml"


def _without_leading_comments(text: str) -> str:
    text = text.lstrip()
    while text.startswith("<!--"):
        text = text.partition("-->")[2].lstrip()
    return text

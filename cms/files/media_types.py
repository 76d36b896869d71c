"""The media type of a content, by its first bytes (after the WHATWG standard for MIME sniffing).

The type that its sender declares, and the one of the file's name, are only claims: the first one
counts that the bytes do not contradict. Libraries tell binary files apart; here it matters which
contents a browser would run. The libraries that were tried take SVG behind a comment or under a
prefix, XHTML, and HTML in UTF-16 for something harmless.
"""

from __future__ import annotations

import codecs
import mimetypes
import re
from collections.abc import Iterable

from cms.files.file_names import split_extension
from cms.files.signatures import (
    BRANDS,
    CONTAINED_TYPES,
    GENERAL_CONTAINERS,
    RIFF_TYPES,
    SIGNATURES,
    UNSIGNED_TYPES,
)

HEAD_BYTES = 2**16
"""The number of first bytes by which the type is recognised: an image may follow long comments."""

_TEXT_BYTES = 4096
"""The number of first bytes that must be those of a text."""

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
_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
_COMMENT_OR_INSTRUCTION = re.compile(r"\s*(?:<!--.*?-->|<\?.*?\?>)", re.DOTALL)
# Bytes that no text has: all controls but tab, line breaks, form feed and escape.
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_TEXT_TYPES = re.compile(
    r"text/.+|[^/]+/([^/]+\+)?(json|xml|yaml)"
    r"|application/(javascript|ecmascript|x-[\w.-]*script|sql|toml|x-yaml|x-sh|x-tex|x-subrip"
    r"|graphql|x-ndjson|x-pem-file|pgp-\w+)"
)
"""Types whose contents are texts."""

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
    ".glb": "model/gltf-binary",
    ".gltf": "model/gltf+json",
    ".stl": "model/stl",
    ".obj": "model/obj",
    ".3mf": "model/3mf",
    ".dwg": "image/vnd.dwg",
    ".ics": "text/calendar",
    ".vcf": "text/vcard",
    ".gpx": "application/gpx+xml",
    ".kml": "application/vnd.google-earth.kml+xml",
    ".kmz": "application/vnd.google-earth.kmz",
}
# Without the types that files of the machine add: they differ from machine to machine.
_EXTENSIONS = mimetypes.MimeTypes().types_map[True]
_BINARY_FAMILIES = ("image/", "audio/", "video/", "font/")
_TEXTS_IN_THEM = (
    "image/x-xbitmap",
    "image/x-xpixmap",
    "image/x-portable-",
    "audio/mpegurl",
    "audio/x-mpegurl",
    "audio/x-scpls",
)
_SIGNED_TYPES = {
    "audio/aiff",
    "application/x-bzip2",
    "image/bmp",
    *(media_type for _, media_type in (*SIGNATURES, *BRANDS)),
    *RIFF_TYPES.values(),
} - UNSIGNED_TYPES
_ALIASES = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def media_type_of(head: bytes, *, name: str, declared: str | None = None) -> str:
    """Return the media type of a content.

    It is the declared type, else that of the name, unless the first bytes, `HEAD_BYTES` of them,
    contradict it.
    """
    text = None
    recognised = _binary_type(head)
    if recognised is None:
        text = _text(head)
    if text is not None:
        recognised = _markup_type(text)
    for claimed in _claimed_types(name, declared):
        if recognised is not None:
            agrees = claimed == recognised or _has_container(claimed, recognised)
        elif text is not None:
            agrees = _may_be_text(claimed)
        else:
            agrees = _may_be_binary(claimed)
        if agrees:
            return claimed
    if recognised is None and text is not None:
        return "text/plain"
    return recognised or UNKNOWN


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
    """Return the types that the sender and a file name's extension claim: two, one or none."""
    extension = split_extension(name).extension.lower()
    by_name = _EXTRA_EXTENSIONS.get(extension) or _EXTENSIONS.get(extension)
    by_sender = without_parameters(declared)
    claimed_types = []
    for media_type in (_ALIASES.get(by_sender, by_sender), by_name or UNKNOWN):
        # The types of what declares none claim nothing (RFC 7578 has text/plain for forms). Several
        # contents in one are no file: browsers show each of them as what it says it is.
        if media_type in (UNKNOWN, "text/plain") or media_type.startswith("multipart/"):
            continue
        if _WELL_FORMED.fullmatch(media_type):
            claimed_types.append(media_type)
    return claimed_types


def _has_container(media_type: str, container: str) -> bool:
    """Tell whether a type has such a container: a document is a ZIP file, for instance."""
    if container == "application/xml":
        return media_type in ("text/xml", "text/xsl") or media_type.endswith("+xml")
    if media_type.startswith(CONTAINED_TYPES.get(container, ())):
        return True
    is_general = container in GENERAL_CONTAINERS and not media_type.startswith(_BINARY_FAMILIES)
    return is_general and _may_be_binary(media_type)


def _may_be_text(media_type: str) -> bool:
    """Tell whether a text without markup may be of a type."""
    if media_type.startswith(_BINARY_FAMILIES) and media_type not in MARKUP:
        return media_type.startswith(_TEXTS_IN_THEM)
    return not _has_signature(media_type)


def _may_be_binary(media_type: str) -> bool:
    """Tell whether bytes without a known signature, which are no text, may be of a type."""
    return not _has_signature(media_type) and not _TEXT_TYPES.fullmatch(media_type)


def _has_signature(media_type: str) -> bool:
    """Tell whether all contents of a type begin with a known signature."""
    return media_type in _SIGNED_TYPES or any(
        media_type.startswith(CONTAINED_TYPES[container])
        for container in ("application/zip", "application/x-ole-storage")
    )


# Types of the bytes


def _binary_type(head: bytes) -> str | None:
    # MP4, QuickTime, HEIC, AVIF: the box `ftyp` behind four bytes with its length.
    if head[4:8] == b"ftyp":
        return _iso_media_type(head)
    if head[:4] == b"RIFF":
        return RIFF_TYPES.get(head[8:12])
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
    if _CONTROL_BYTES.search(head, 0, _TEXT_BYTES):
        return None
    return head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _markup_type(text: str) -> str | None:
    """Return the type of a text that a browser would take for markup."""
    start = _behind(_COMMENT, text)
    if start.startswith("<?xml"):
        return _xml_type(_behind(_COMMENT_OR_INSTRUCTION, start))
    if _SVG.match(_behind(_COMMENT_OR_INSTRUCTION, start)):
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
    # Behind a document type of its own, an image is still one.
    if content.startswith("<!") and _SVG_INSIDE.search(content):
        return "image/svg+xml"
    return "application/xml"


def _behind(pattern: re.Pattern[str], text: str) -> str:
    """Return what follows all matches of a pattern at the beginning of a text."""
    position = 0
    while match := pattern.match(text, position):
        position = match.end()
    return text[position:].lstrip()

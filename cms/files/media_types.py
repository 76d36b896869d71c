"""The media type of a content, by its first bytes (after the WHATWG standard for MIME sniffing).

The type that a client declares and the name of the file only decide among types that such bytes may
have.
"""

from __future__ import annotations

import codecs
import mimetypes
import re
from collections.abc import Iterable

from cms.files.names import split

HEAD_BYTES = 4096
"""The number of first bytes by which the type is recognised."""

UNKNOWN = "application/octet-stream"
MARKUP = frozenset(
    {"text/html", "application/xhtml+xml", "image/svg+xml", "application/xml", "text/xml"}
)

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"8BPS\0", "image/vnd.adobe.photoshop"),
    (b"\0\0\0\x0cjP  \r\n", "image/jp2"),
    (b"\xff\x0a", "image/jxl"),
    (b"\0\0\0\x0cJXL ", "image/jxl"),
    (b"\0\0\x01\0", "image/vnd.microsoft.icon"),
    (b"%PDF-", "application/pdf"),
    (b"%!PS-", "application/postscript"),
    (b"{\\rtf", "application/rtf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"\xfd7zXZ\0", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"\0asm", "application/wasm"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ\x90\0", "application/vnd.microsoft.portable-executable"),
    (b"ID3\x02", "audio/mpeg"),
    (b"ID3\x03", "audio/mpeg"),
    (b"ID3\x04", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"OggS\0", "application/ogg"),
    (b"MThd\0\0\0\x06", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"FLV\x01", "video/x-flv"),
    (b"\0\0\x01\xba", "video/mpeg"),
    (b"\0\0\x01\xb3", "video/mpeg"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"OTTO", "font/otf"),
    (b"true\0", "font/ttf"),
    (b"\0\x01\0\0\0", "font/ttf"),
    (b"ttcf", "font/collection"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = (
    (b"avif", "image/avif"),
    (b"avis", "image/avif"),
    (b"heic", "image/heic"),
    (b"heix", "image/heic"),
    (b"mif1", "image/heif"),
    (b"qt  ", "video/quicktime"),
    (b"M4A ", "audio/mp4"),
    (b"3gp", "video/3gpp"),
)
_CONTAINED_TYPES: dict[str, tuple[str, ...]] = {
    "application/zip": (
        "application/vnd.openxmlformats-officedocument.",
        "application/vnd.oasis.opendocument.",
        "application/vnd.ms-",
        "application/vnd.android.package-archive",
        "application/vnd.apple.",
        "application/vnd.google-earth.kmz",
        "application/epub+zip",
        "application/java-archive",
        "application/x-zip",
        "model/",
    ),
    "application/x-ole-storage": (
        "application/msword",
        "application/vnd.ms-",
        "application/vnd.visio",
    ),
    "application/ogg": ("audio/ogg", "video/ogg", "audio/opus"),
    "video/webm": ("audio/webm", "video/x-matroska", "audio/x-matroska"),
    "video/mp4": ("audio/mp4", "audio/x-m4a", "video/x-m4v"),
    "image/tiff": ("image/x-",),
    "application/postscript": ("image/x-eps", "application/eps", "application/illustrator"),
    "application/pdf": ("application/illustrator",),
}
"""The types that have another one for a container, by the starts of their names."""

_HTML = re.compile(
    rb"<(!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p|img|form|meta|link|object"
    rb"|embed|base)[\s>/]",
    re.IGNORECASE,
)
_TEXT_TYPES = re.compile(
    r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml)|application/(javascript|ecmascript|x-[\w.-]*script|sql|toml"
    r"|x-yaml|x-sh|x-tex|x-subrip|graphql|ld\+json|geo\+json|x-ndjson|x-pem-file|pgp-[\w]+|rtf)|model/[\w.+-]+"
)
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
# Without what the machine's own files add, which differ.
_EXTENSIONS = mimetypes.MimeTypes().types_map[True]
_SNIFFABLE = ("image/", "audio/", "video/", "font/", "text/")


def media_type_of(head: bytes, *, name: str, declared: str | None = None) -> str:
    """Return the media type of a content by its first bytes (`HEAD_BYTES` of them), its name and
    the declared type.
    """
    guesses = [
        guess for guess in (_by_name(name), _clean_type(declared)) if guess not in (None, UNKNOWN)
    ]
    binary_type = _binary(head)
    if binary_type is not None:
        contained = _CONTAINED_TYPES.get(binary_type, ())
        return next((guess for guess in guesses if guess.startswith(contained)), binary_type)
    text = _text(head)
    if text is None:
        return next((guess for guess in guesses if _may_lack_signature(guess)), UNKNOWN)
    markup_type = _markup(text)
    if markup_type is not None:
        return markup_type
    return next(
        (guess for guess in guesses if _TEXT_TYPES.fullmatch(guess) or guess in MARKUP),
        "text/plain",
    )


def charset_of(head: bytes, kind: str) -> str | None:
    """Return the charset of a text whose first bytes are these; None where they do not tell it."""
    if not kind.startswith("text/"):
        return None
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return None
    return "utf-8"


def is_allowed(kind: str, allowed: Iterable[str]) -> bool:
    """Tell whether a list of types, `image/*` and `*/*` among them, has this one."""
    family = kind.partition("/")[0] + "/*"
    return any(pattern in (kind, family, "*/*") for pattern in allowed)


def _by_name(name: str) -> str | None:
    extension = split(name)[1].lower()
    return _EXTRA_EXTENSIONS.get(extension) or _EXTENSIONS.get(extension)


def _clean_type(declared: str | None) -> str | None:
    media_type = (declared or "").partition(";")[0].strip().lower()
    return media_type if _WELL_FORMED.fullmatch(media_type) else None


def _binary(head: bytes) -> str | None:
    if head[4:8] == b"ftyp":
        brands = head[8 : min(int.from_bytes(head[:4], "big"), 64)]
        return next(
            (kind for brand, kind in _BRANDS if brands.startswith(brand)), _compatible_brand(brands)
        )
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], UNKNOWN)
    if head[:4] == b"FORM" and head[8:11] == b"AIF":
        return "audio/aiff"
    if head[:3] == b"BZh" and head[4:10] == b"1AY&SY":
        return "application/x-bzip2"
    if head[257:262] == b"ustar":
        return "application/x-tar"
    if head[:2] == b"BM" and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    return next((kind for start, kind in _SIGNATURES if head.startswith(start)), None)


def _compatible_brand(brands: bytes) -> str:
    # A still image may name another brand first, and its own only among the compatible ones.
    if b"avif" in brands:
        return "image/avif"
    return "image/heic" if b"heic" in brands else "video/mp4"


def _text(head: bytes) -> str | None:
    """Return the bytes as text where they are text, the last sign of which may be cut."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return head.decode("utf-16", "replace")
    if re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]", head):
        return None
    return head.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _markup(text: str) -> str | None:
    start = _behind_comments(text.lstrip())
    if start.startswith("<?xml"):
        start = _behind_comments(start.partition("?>")[2].lstrip())
        xml = True
    else:
        xml = False
    if re.match(r"<!doctype\s+svg|<([\w-]+:)?svg[\s>/]", start, re.IGNORECASE):
        return "image/svg+xml"
    if _HTML.match(start.encode("utf-8", "replace")[:HEAD_BYTES]):
        return "application/xhtml+xml" if xml else "text/html"
    if xml:
        return "image/svg+xml" if re.search(r"<([\w-]+:)?svg[\s>]", start) else "application/xml"
    return "text/html" if text.lstrip().startswith("<!--") else None


def _behind_comments(text: str) -> str:
    while text.startswith("<!--"):
        text = text.partition("-->")[2].lstrip()
    return text


def _may_lack_signature(guess: str) -> bool:
    """Tell whether contents of a type may lack a signature: types with a known one never do."""
    known = {kind for _, kind in _SIGNATURES} | MARKUP
    return (
        not guess.startswith(_SNIFFABLE) and guess not in known and not _TEXT_TYPES.fullmatch(guess)
    )

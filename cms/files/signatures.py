"""The signatures of binary files: the bytes with which they begin, and their media types."""

from __future__ import annotations

from collections.abc import Mapping

SIGNATURES: tuple[tuple[bytes, str], ...] = (
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
    # An empty archive, which has no entry to begin with.
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
    # Frames without a tag before them: bits for synchronisation, version and layer.
    (b"\xff\xfb", "audio/mpeg"),
    (b"\xff\xf3", "audio/mpeg"),
    (b"\xff\xf2", "audio/mpeg"),
    # The same of AAC, whose layer is 0.
    (b"\xff\xf1", "audio/aac"),
    (b"\xff\xf9", "audio/aac"),
    (b"\xff\xf0", "audio/aac"),
    (b"\xff\xf8", "audio/aac"),
    (b"#!AMR", "audio/amr"),
    (b"fLaC", "audio/flac"),
    (b"OggS\0", "application/ogg"),
    (b"MThd\0\0\0\x06", "audio/midi"),
    (b"\x1a\x45\xdf\xa3", "video/webm"),
    (b"FLV\x01", "video/x-flv"),
    (b"\0\0\x01\xba", "video/mpeg"),
    (b"\0\0\x01\xb3", "video/mpeg"),
    (b"glTF\1\0\0\0", "model/gltf-binary"),
    (b"glTF\2\0\0\0", "model/gltf-binary"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"OTTO", "font/otf"),
    (b"true\0", "font/ttf"),
    (b"\0\x01\0\0\0", "font/ttf"),
    (b"ttcf", "font/collection"),
)
RIFF_TYPES: Mapping[bytes, str] = {
    b"WEBP": "image/webp",
    b"WAVE": "audio/wav",
    b"AVI ": "video/x-msvideo",
}
BRANDS = (
    (b"avif", "image/avif"),
    (b"avis", "image/avif"),
    (b"heic", "image/heic"),
    (b"heix", "image/heic"),
    (b"mif1", "image/heif"),
    (b"qt  ", "video/quicktime"),
    (b"M4A ", "audio/mp4"),
    (b"3gp", "video/3gpp"),
)
UNSIGNED_TYPES = frozenset(
    {"audio/mpeg", "audio/aac", "audio/amr", "video/mpeg", "video/quicktime"}
)
"""The types above whose contents may also begin in another way."""

GENERAL_CONTAINERS = frozenset(
    {
        "application/zip",
        "application/gzip",
        "application/x-bzip2",
        "application/x-xz",
        "application/zstd",
        "application/x-tar",
        "application/x-ole-storage",
        "application/vnd.sqlite3",
    }
)
"""The types on which programs build formats of their own."""

CONTAINED_TYPES: Mapping[str, tuple[str, ...]] = {
    "application/zip": (
        "application/vnd.openxmlformats-officedocument.",
        "application/vnd.oasis.opendocument.",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.ms-word",
        "application/vnd.android.package-archive",
        "application/vnd.google-earth.kmz",
        "application/epub+zip",
        "application/java-archive",
        "application/x-zip",
    ),
    "application/x-ole-storage": (
        "application/msword",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.ms-outlook",
        "application/vnd.visio",
    ),
    "application/ogg": ("audio/ogg", "video/ogg", "audio/opus"),
    "video/webm": ("audio/webm", "video/x-matroska", "audio/x-matroska"),
    "video/mp4": (
        "audio/mp4",
        "audio/x-m4",
        "video/x-m4",
        "video/3gpp",
        "audio/3gpp",
        "application/mp4",
        "image/x-canon-cr3",
    ),
    "audio/mpeg": ("audio/mp3", "audio/flac", "audio/x-flac", "audio/aac", "audio/x-aac"),
    "audio/aac": ("audio/x-aac", "audio/vnd.dlna.adts", "audio/x-hx-aac-adts"),
    "image/tiff": ("image/x-", "image/dng"),
    "image/vnd.microsoft.icon": ("image/x-icon",),
    "application/postscript": ("image/x-eps", "application/eps", "application/illustrator"),
    "application/pdf": ("application/illustrator",),
}
"""The types that have another one for a container, by the starts of their names.

A tag of ID3 may stand before AAC and FLAC, and otherwise begins MP3.
"""

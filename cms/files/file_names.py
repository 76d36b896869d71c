"""Names of files, cleaned so that they can be shown, sent in a header and written to any disk."""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

MAX_NAME_LENGTH = 255
EXTENSION_ON_DISK = r"\.[a-z0-9]+"
"""The pattern of extensions in storage, in ASCII: some locations take no other characters."""
MAX_EXTENSION_LENGTH = 20

_CONTROLS = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of control characters, line breaks, and halves of characters."""

# They show a name in another order than its letters have. Other invisible characters belong to
# scripts and emoji: joiners, tags, variation selectors.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_FORBIDDEN = re.compile(r'[<>:"|?*]')
"""Characters that Windows takes in no name."""


def clean_name(text: str) -> str:
    """Return the last part of a name or path without control characters, cut to its extension.

    Returns `file` when nothing is left.
    """
    last_part = re.split(r"[/\\]", text)[-1]
    # Composed, because systems write the same accents in different ways.
    letters = unicodedata.normalize("NFC", "".join(filter(_is_kept, last_part)))
    # Windows takes no dot at the end, and a dot at the start hides a file elsewhere.
    name = _FORBIDDEN.sub("_", letters).strip(" .")
    if len(name) <= MAX_NAME_LENGTH:
        return name or "file"
    stem, extension = split_extension(name)
    return stem[: MAX_NAME_LENGTH - len(extension)].rstrip(" .") + extension


def _is_kept(character: str) -> bool:
    return unicodedata.category(character) not in _CONTROLS and character not in _BIDI_CONTROLS


class NameParts(NamedTuple):
    """The stem of a name, and its extension with the dot."""

    stem: str
    extension: str


def split_extension(name: str) -> NameParts:
    """Return the parts of a name; the extension is empty for one that is too long."""
    stem, dot, extension = name.rpartition(".")
    # What follows the last dot of a sentence is no extension.
    if stem and 0 < len(extension) <= MAX_EXTENSION_LENGTH:
        return NameParts(stem, dot + extension)
    return NameParts(name, "")


def extension_on_disk(name: str) -> str:
    """Return the extension that the content gets in its storage."""
    extension = split_extension(name).extension.lower()
    if re.fullmatch(EXTENSION_ON_DISK, extension):
        return extension
    return ".bin"


def title_of(name: str) -> str:
    """Return the title of a file that was sent without one: `My photo 1` for `my-photo_1.jpg`."""
    words = re.sub(r"[-_\s]+", " ", split_extension(name).stem).strip() or name
    return words[:1].upper() + words[1:]

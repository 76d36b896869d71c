"""Names of files: what clients send made fit to be shown, sent in a header and written to any disk."""

from __future__ import annotations

import re
import unicodedata

MAX_NAME_LENGTH = 255
MAX_EXTENSION_LENGTH = 20

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories that are not drawn or turn what follows around, such as line breaks and the right-to-left override."""

_FORBIDDEN = re.compile(r'[<>:"|?*]')


def clean_name(said: str) -> str:
    """Return the last part of a name or path, without what is not drawn and not too long; `file` when nothing is left.

    The ending stays when the name is cut.
    """
    bare = re.split(r"[/\\]", unicodedata.normalize("NFC", said))[-1]
    seen = "".join(sign for sign in bare if unicodedata.category(sign) not in _INVISIBLE)
    name = _FORBIDDEN.sub("_", seen).strip(" .")
    if len(name) <= MAX_NAME_LENGTH:
        return name or "file"
    stem, extension = split(name)
    return stem[: MAX_NAME_LENGTH - len(extension)].rstrip(" .") + extension


def split(name: str) -> tuple[str, str]:
    """Return a name's stem and its ending with the dot; what is too long for an ending is none."""
    stem, dot, extension = name.rpartition(".")
    return (
        (stem, dot + extension)
        if stem and 0 < len(extension) <= MAX_EXTENSION_LENGTH
        else (name, "")
    )


def extension_on_disk(name: str) -> str:
    """Return the ending that the content gets in its storage."""
    extension = split(name)[1].lower()
    return extension if re.fullmatch(r"\.[a-z0-9]+", extension) else ".bin"


def title_of(name: str) -> str:
    """Return the title of a file that came without one: `my-photo_1.jpg` is `My photo 1`."""
    words = re.sub(r"[-_\s]+", " ", split(name)[0]).strip() or name
    return words[:1].upper() + words[1:]

"""Names of files: what clients send made fit to be shown, sent in a header and written to any disk."""

from __future__ import annotations

import re
import unicodedata

LONGEST = 255
LONGEST_ENDING = 20

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories that are not drawn or turn what follows around, such as line breaks and the right-to-left override."""

_FORBIDDEN = re.compile(r'[<>:"|?*]')


def clean_name(said: str) -> str:
    """Return the last part of a name or path, without what is not drawn and not too long; `file` when nothing is left.

    The ending stays when the name is cut.
    """
    bare = re.split(r"[/\\]", unicodedata.normalize("NFC", said))[-1]
    seen = "".join(sign for sign in bare if unicodedata.category(sign) not in _UNSEEN)
    name = _FORBIDDEN.sub("_", seen).strip(" .")
    if len(name) <= LONGEST:
        return name or "file"
    stem, ending = split(name)
    return stem[: LONGEST - len(ending)].rstrip(" .") + ending


def split(name: str) -> tuple[str, str]:
    """Return a name's stem and its ending with the dot; what is too long for an ending is none."""
    stem, dot, ending = name.rpartition(".")
    return (stem, dot + ending) if stem and 0 < len(ending) <= LONGEST_ENDING else (name, "")


def ending_on_disk(name: str) -> str:
    """Return the ending that the content gets in its storage."""
    ending = split(name)[1].lower()
    return ending if re.fullmatch(r"\.[a-z0-9]+", ending) else ".bin"


def title_of(name: str) -> str:
    """Return the title of a file that came without one: `my-photo_1.jpg` is `My photo 1`."""
    words = re.sub(r"[-_\s]+", " ", split(name)[0]).strip() or name
    return words[:1].upper() + words[1:]

"""Which licences packages may have, and how metadata that is no SPDX expression is read."""

from __future__ import annotations

from typing import Final

ALLOWED: Final = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "ZPL-2.1",
    }
)
"""Licences that ask for no more than their notice. `BSD` stands for one of that family."""

_LGPL = "LGPL: an own package that is imported unchanged, and can be replaced by another version"
_MPL = "MPL: asks for the source of changed files only, and no file is changed"

REASONS: Final = {
    "certifi": _MPL,
    "hypothesis": f"{_MPL}; tests only",
    "ldap3": f"{_LGPL}; only with the extra `ldap`",
    "orjson": _MPL,
    "pathspec": f"{_MPL}; a part of mypy, for development only",
    "psycopg": _LGPL,
    "psycopg-binary": f"{_LGPL}; the libpq in it has the PostgreSQL licence",
    "psycopg-pool": _LGPL,
    "pygal": f"{_LGPL}",
}
"""Packages under other licences, and why each may be used."""

NAMED: Final = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU LGPL v3+": "LGPL-3.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "LGPL v3": "LGPL-3.0-only",
    "LGPL-3.0-only": "LGPL-3.0-only",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "MPL-2.0": "MPL-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "PSFL": "PSF-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "ZPL 2.1": "ZPL-2.1",
}
"""What metadata says in other words than SPDX: in the field `License` or in a classifier."""

STATED: Final = {
    "async-timeout": "Apache-2.0",
    "colorama": "BSD-3-Clause",
    "legacy-cgi": "PSF-2.0",
    "pywin32": "PSF-2.0",
    "tzdata": "Apache-2.0",
}
"""Packages that are not installed on every system and Python, with what their own archives say."""

"""Window sizes of zlib (`wbits`) that say how its data are framed."""

from __future__ import annotations

GZIP = 31
"""A header and a checksum of gzip."""

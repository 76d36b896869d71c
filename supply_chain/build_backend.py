"""The build backend: setuptools, with archives whose bytes depend on the sources alone.

Setuptools puts into archives the modes of files, and into the sdist also their times and owners, so
that two checkouts of one commit give different ones.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

EARLIEST: Final = 315_532_800
"""The first second of 1980, in seconds since 1970: no member of a zip file is older."""

FILE_MODE: Final = 0o644
FOLDER_MODE: Final = 0o755

Settings = Mapping[str, Any] | None


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel, with one time and mode for all files."""
    name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    _rewrite_zip(Path(wheel_directory, name))
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build an sdist, with one time, mode and owner for all files."""
    name: str = build_meta.build_sdist(sdist_directory, config_settings)
    _rewrite_tar(Path(sdist_directory, name))
    return name


def _build_time() -> int:
    """The time of all members: SOURCE_DATE_EPOCH, else the earliest possible."""
    return max(int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST)), EARLIEST)


def _rewrite_zip(file: Path) -> None:
    written = io.BytesIO()
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(written, "w") as target:
        for name in sorted(source.namelist()):
            target.writestr(_zip_member(name), source.read(name))
    file.write_bytes(written.getvalue())


def _zip_member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, time.gmtime(_build_time())[:6])
    member.compress_type = zipfile.ZIP_DEFLATED
    member.create_system = 3  # Unix
    member.external_attr = FILE_MODE << 16
    return member


def _rewrite_tar(file: Path) -> None:
    written = io.BytesIO()
    with (
        tarfile.open(file) as source,
        gzip.GzipFile("", "wb", fileobj=written, mtime=_build_time()) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            target.addfile(_tar_member(member), source.extractfile(member))
    file.write_bytes(written.getvalue())


def _tar_member(member: tarfile.TarInfo) -> tarfile.TarInfo:
    made = tarfile.TarInfo(member.name)
    made.type = member.type
    made.size = member.size
    made.mtime = _build_time()
    made.mode = FOLDER_MODE if member.isdir() else FILE_MODE
    return made

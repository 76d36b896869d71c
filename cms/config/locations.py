"""Storage locations of files: the settings `STORAGE_<NAME>_…` for each of STORAGE_LOCATIONS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from cms.config.driver_options import missing_options, named_settings
from cms.config.settings import BOOLEAN, DRIVER, ENDPOINT, TEXT, Setting, mask_all


@dataclass(frozen=True, slots=True)
class Location:
    """One storage location; each field is the setting of that name behind `STORAGE_<NAME>_`.

    `root` is an absolute folder with the driver `local`, else the prefix of every path.
    """

    name: str
    driver: str = "local"
    root: str = ""
    bucket: str | None = None
    region: str | None = None
    endpoint: str | None = None
    force_path_style: bool | None = None
    server_side_encryption: str | None = None
    key: str | None = field(default=None, repr=False)
    secret: str | None = field(default=None, repr=False)
    key_filename: str | None = None
    container_name: str | None = None
    account_name: str | None = None
    account_key: str | None = field(default=None, repr=False)

    def variable_name(self, option: str) -> str:
        """Return the name of the variable that sets an option."""
        return f"STORAGE_{self.name.upper()}_{option.upper()}"


DEFAULT_REGION = "us-east-1"
"""Amazon's oldest region, which other services of the kind s3 take for any."""

OPTIONS: tuple[Setting, ...] = (
    Setting("STORAGE_<NAME>_DRIVER", DRIVER, "the kind of storage", "local"),
    Setting(
        "STORAGE_<NAME>_ROOT",
        TEXT,
        "the folder, or the prefix within the bucket",
        unset="DATA_DIR/uploads (local), none (others)",
    ),
    Setting("STORAGE_<NAME>_BUCKET", TEXT, "the bucket (s3, gcs)", unset="needed by s3 and gcs"),
    Setting("STORAGE_<NAME>_REGION", TEXT, "its region (s3)", unset=DEFAULT_REGION),
    Setting(
        "STORAGE_<NAME>_ENDPOINT",
        ENDPOINT,
        "the service (s3, azure, gcs)",
        unset="the vendor's own",
    ),
    Setting(
        "STORAGE_<NAME>_FORCE_PATH_STYLE",
        BOOLEAN,
        "the bucket in the path, not in the host name (s3)",
        unset="true where an endpoint is set",
    ),
    Setting(
        "STORAGE_<NAME>_SERVER_SIDE_ENCRYPTION",
        TEXT,
        "AES256 or aws:kms (s3)",
        unset="the bucket's own",
    ),
    Setting(
        "STORAGE_<NAME>_KEY",
        TEXT,
        "the access key (s3)",
        unset="the machine's own role",
        mask=mask_all,
    ),
    Setting(
        "STORAGE_<NAME>_SECRET",
        TEXT,
        "its secret (s3)",
        unset="the machine's own role",
        mask=mask_all,
    ),
    Setting(
        "STORAGE_<NAME>_KEY_FILENAME",
        TEXT,
        "the service account's file (gcs)",
        unset="the machine's own role",
    ),
    Setting(
        "STORAGE_<NAME>_CONTAINER_NAME", TEXT, "the container (azure)", unset="needed by azure"
    ),
    Setting("STORAGE_<NAME>_ACCOUNT_NAME", TEXT, "the account (azure)", unset="needed by azure"),
    Setting(
        "STORAGE_<NAME>_ACCOUNT_KEY",
        TEXT,
        "its key (azure)",
        unset="the machine's own role",
        mask=mask_all,
    ),
)
"""The options of a location; `<NAME>` stands for its name in capitals."""

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "s3": ("bucket",),
    "gcs": ("bucket",),
    "azure": ("container_name", "account_name"),
}


def options_of(name: str) -> dict[str, Setting]:
    """Return the settings of a location, by the fields of `Location` that they fill."""
    return named_settings(OPTIONS, "STORAGE_<NAME>_", name)


def with_absolute_root(location: Location, *, uploads: Path, folder: Path) -> Location:
    """Return a location with an absolute folder, or with a prefix without slashes at its ends.

    Without a root of its own, the folder is `uploads`.
    """
    if location.driver != "local":
        return replace(location, root=location.root.strip("/"))
    root = uploads
    if location.root:
        # Not `resolve`: a link that its owner turns elsewhere later shall be followed then.
        root = Path(os.path.abspath(folder / Path(location.root).expanduser()))
    return replace(location, root=str(root))


def location_problems(location: Location) -> Iterator[str]:
    """Yield a sentence for each option that the driver needs and that is not set."""
    return missing_options(location, _NEEDED)

"""Locations in the clouds that no test can reach open by their settings alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from cms.config import load
from cms.files.storage import Storages

CLOUDS = {
    "gcs": {"STORAGE_CLOUD_BUCKET": "files"},
    "azure": {
        "STORAGE_CLOUD_CONTAINER_NAME": "files",
        "STORAGE_CLOUD_ACCOUNT_NAME": "me",
        "STORAGE_CLOUD_ACCOUNT_KEY": "c2VjcmV0",
    },
}


@pytest.mark.parametrize("driver", CLOUDS)
def test_a_location_in_a_cloud_opens_by_its_settings(driver: str, tmp_path: Path) -> None:
    environ = {"STORAGE_LOCATIONS": "cloud", "STORAGE_CLOUD_DRIVER": driver, **CLOUDS[driver]}
    config = load(
        {"DATABASE_URL": "postgresql:///nowhere", "DATA_DIR": str(tmp_path), **environ},
        folder=tmp_path,
    )
    storages = Storages.from_config(config)
    assert storages.default is storages.requested("cloud")
    assert storages.default.folder is None  # nothing of it lies on this machine

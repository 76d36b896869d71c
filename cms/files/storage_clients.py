"""The clients of storage locations, by the driver of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store

from cms.config.locations import DEFAULT_REGION, Location
from cms.mappings import without_none

_CLIENT: Mapping[str, Any] = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=60),
    "timeout": timedelta(days=1),  # for a whole transfer, which takes as long as its client does
}
_RETRIES: Mapping[str, Any] = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}


def open_client(location: Location) -> ObjectStore:
    """Return the client of a location; it connects at its first use."""
    return _OPENERS[location.driver](location)


def _local(location: Location) -> ObjectStore:
    # automatic_cleanup removes folders that have become empty, such as those of derivatives.
    return LocalStore(location.root, mkdir=True, automatic_cleanup=True)


def _s3(location: Location) -> ObjectStore:
    settings: dict[str, object] = {
        "region": location.region or DEFAULT_REGION,
        "endpoint": location.endpoint,
        "access_key_id": location.key,
        "secret_access_key": location.secret,
        "server_side_encryption": location.server_side_encryption,
    }
    # Servers other than Amazon's rarely have a host name for each bucket.
    by_path = location.force_path_style
    if by_path is None:
        by_path = bool(location.endpoint)
    settings["virtual_hosted_style_request"] = not by_path
    return S3Store(location.bucket, **_options(location, settings))


def _gcs(location: Location) -> ObjectStore:
    settings = {"service_account": location.key_filename, "base_url": location.endpoint}
    return GCSStore(location.bucket, **_options(location, settings))


def _azure(location: Location) -> ObjectStore:
    settings = {
        "account_name": location.account_name,
        "account_key": location.account_key,
        "endpoint": location.endpoint,
    }
    return AzureStore(location.container_name, **_options(location, settings))


def _options(location: Location, settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the options of a client: the settings of its service, and those that all take."""
    allows_http = (location.endpoint or "").startswith("http://")
    return {
        "config": without_none(settings),
        "prefix": location.root or None,
        "client_options": {**_CLIENT, "allow_http": allows_http},
        "retry_config": _RETRIES,
    }


_OPENERS: Mapping[str, Callable[[Location], ObjectStore]] = {
    "local": _local,
    "s3": _s3,
    "gcs": _gcs,
    "azure": _azure,
}

"""Files as clients see them: who may, which content, under which name (specification, section 4.8)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from cachebox import LRUCache

from cms import jsontext
from cms.access.policy import ADMIN, ALL_FIELDS, Actor, Policy
from cms.config import Config
from cms.database.statements import statement
from cms.errors import not_found
from cms.files.derivatives import Original, derivative_of
from cms.files.image_pool import ImagePool
from cms.files.storage import Storages
from cms.files.stored_content import StoredContent, find_content
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import Item, fetch_item
from cms.schema.model import Version
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.identity import Identity
from cms.store.store import Store
from cms.transforms.steps import Focus
from cms.transforms.transform import (
    CENTER,
    FORMAT_BY_MEDIA_TYPE,
    MEDIA_TYPE_BY_FORMAT,
    NO_TRANSFORM,
    PARAMETERS,
    ResolvedTransform,
    TransformRules,
    parse_transform,
    resolve_transform,
    transform_rules,
)

_READ = ("system_files", "read")
_READ_REQUEST = ReadRequest(
    "system_files",
    "fields=id,storage,filename_disk,filename_download,type,charset,modified_on,focal_point_x,focal_point_y",
)
MAX_CACHED_TRANSFORMS = 500
_BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as one request wants it. `tag` stands for its very bytes."""

    original: Original
    wanted: ResolvedTransform
    filename: str
    media_type: str
    modified: datetime
    tag: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is sent for an asset."""

    content: StoredContent
    filename: str
    media_type: str


@dataclass(frozen=True, slots=True)
class _AssetSettings:
    """What the settings say of assets, with the transforms that were understood under it."""

    rules: TransformRules
    public: frozenset[str]
    transforms: LRUCache[Hashable, ResolvedTransform] = field(
        default_factory=lambda: LRUCache(MAX_CACHED_TRANSFORMS)
    )


class Assets:
    """The assets of one application; `close` ends its child processes."""

    def __init__(self, store: Store, storages: Storages, config: Config) -> None:
        self._store = store
        self._storages = storages
        self._image_pool = ImagePool(config)
        self._max_side = config.assets_transform_image_max_dimension
        self._settings: LRUCache[Version, _AssetSettings] = LRUCache(2)
        self.close = self._image_pool.close

    def asset(
        self, identity: Identity, key: str, said: Mapping[str, object], *, accept: str
    ) -> Asset:
        """Return a file as the parameters want it.

        Raises `Refused`: FORBIDDEN or NOT_FOUND as for its row, ILLEGAL_ASSET_TRANSFORMATION.
        """

        def work(context: RequestContext) -> tuple[Item, ResolvedTransform]:
            settings, actor = self._asset_settings(context), context.actor
            policy = ADMIN if key.lower() in settings.public else _content_policy(context)
            seen = replace(context, actor=Actor(policy, actor.user, actor.role))
            row = fetch_item(self._store, seen, _READ_REQUEST, key=key)
            return row, _transform(row, said, accept, settings)

        return self._asset(*self._store.run_read(identity, work))

    def delivery(self, asset: Asset) -> Delivery:
        """Return what is sent for an asset, made now where it is not there.

        Raises FileNotFoundError without a content: it may have been exchanged since the row was read.
        """
        original, wanted = asset.original, asset.wanted
        if not wanted.key:
            return Delivery(
                find_content(original.storage, original.path), asset.filename, asset.media_type
            )
        found = derivative_of(self._store, self._image_pool, original, wanted)
        name = f"{asset.filename.rpartition('.')[0] or asset.filename}.{found.format}"
        return Delivery(found.content, name, MEDIA_TYPE_BY_FORMAT[found.format])

    def _asset_settings(self, context: RequestContext) -> _AssetSettings:
        """Return what the settings say, read once for a version of the rights, which a change of them moves."""

        def read() -> _AssetSettings:
            rows = self._store.database.fetch(statement("find_asset_settings"))
            structure, access, allowed, presets, public = rows[0]
            check_version(context.snapshot, Version(structure, access))
            listed = json.loads(presets) if presets else []
            return _AssetSettings(
                transform_rules(allowed, listed, maximum=self._max_side), frozenset(public)
            )

        return self._settings.setdefault_with(context.snapshot.version, read)

    def _asset(self, row: Item, wanted: ResolvedTransform) -> Asset:
        path, media_type = row["filename_disk"], row["type"] or _BINARY
        if not path:
            raise not_found("file")
        if row["charset"] and media_type.startswith("text/"):
            media_type = f"{media_type}; charset={row['charset']}"
        tag = f"{path} {wanted.key}"  # each content of a file has a path of its own
        return Asset(
            Original(row["id"], self._storages.existing(row["storage"]), path),
            wanted,
            row["filename_download"],
            media_type,
            datetime.fromisoformat(row["modified_on"]),
            blake2b(tag.encode(), digest_size=16).hexdigest(),
        )


def _transform(
    row: Item, said: Mapping[str, object], accept: str, settings: _AssetSettings
) -> ResolvedTransform:
    """Return the settled transform of a row's content; the same words under the same settings are read once."""
    media_type, focus = row["type"], _focal_point(row)

    def read() -> ResolvedTransform:
        transform = parse_transform(said, settings.rules)
        if transform == NO_TRANSFORM or media_type not in FORMAT_BY_MEDIA_TYPE:
            return ResolvedTransform()
        return resolve_transform(transform, media_type, focus=focus, accept=accept)

    asked = tuple((name, _hashable(said[name])) for name in PARAMETERS if name in said)
    if not asked:
        return ResolvedTransform()
    return settings.transforms.setdefault_with((asked, media_type, focus, accept), read)


def _content_policy(context: RequestContext) -> Policy:
    """Return the policy under which contents are read: who may read anything of a file's row may read its content."""
    policy = context.actor.policy
    if policy.is_admin:
        return policy
    name = f"{policy.name} contents"

    def widened() -> Policy:
        grants = [grant for grant in policy.grants.get(_READ, ()) if grant.fields]
        whole = tuple(replace(grant, fields=frozenset({ALL_FIELDS})) for grant in grants)
        return replace(policy, name=name, grants=MappingProxyType({**policy.grants, _READ: whole}))

    return context.snapshot.policies.setdefault_with(name, widened)


def _focal_point(row: Mapping[str, Any]) -> Focus | None:
    x, y = (
        _number(row[name], default)
        for name, default in zip(("focal_point_x", "focal_point_y"), CENTER, strict=True)
    )
    return None if (x, y) == CENTER else (x, y)


def _number(value: object, default: float) -> float:
    """Return a number of a row, which comes as ready JSON."""
    return default if value is None else float(jsontext.dumps(value))


def _hashable(said: object) -> Hashable:
    return said if isinstance(said, str) else repr(said)

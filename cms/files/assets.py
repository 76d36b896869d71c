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
from cms.errors import not_found
from cms.files.derivatives import Original, derived
from cms.files.served import Served, find
from cms.files.storage import Storages
from cms.files.workshop import Workshop
from cms.schema.model import Version
from cms.store.counters import check_version
from cms.store.reads import Ask, Item, row_of
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store
from cms.transforms.steps import Focus
from cms.transforms.wanted import (
    MEDIA_TYPES,
    MIDDLE,
    NOTHING,
    PARAMETERS,
    TRANSFORMED,
    Rules,
    Wanted,
    parse_transform,
    rules_of,
    settled,
)

_READ = ("system_files", "read")
_ASK = Ask(
    "system_files",
    "fields=id,storage,filename_disk,filename_download,type,charset,modified_on,focal_point_x,focal_point_y",
)
TRANSFORMS_KEPT = 500
_BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as one request wants it. `tag` stands for its very bytes."""

    original: Original
    wanted: Wanted
    filename: str
    media_type: str
    modified: datetime
    tag: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is sent for an asset."""

    content: Served
    filename: str
    media_type: str


@dataclass(frozen=True, slots=True)
class _Said:
    """What the settings say of assets, with the transforms that were understood under it."""

    rules: Rules
    public: frozenset[str]
    transforms: LRUCache[Hashable, Wanted] = field(default_factory=lambda: LRUCache(TRANSFORMS_KEPT))


class Assets:
    """The assets of one application; `close` ends its child processes."""

    def __init__(self, store: Store, storages: Storages, config: Config) -> None:
        self._store = store
        self._storages = storages
        self._workshop = Workshop(config)
        self._most = config.assets_transform_image_max_dimension
        self._settings: LRUCache[Version, _Said] = LRUCache(2)
        self.close = self._workshop.close

    def asset(self, identity: Identity, key: str, said: Mapping[str, object], *, accept: str) -> Asset:
        """Return a file as the parameters want it.

        Raises `Refused`: FORBIDDEN or NOT_FOUND as for its row, ILLEGAL_ASSET_TRANSFORMATION.
        """

        def work(scene: Scene) -> tuple[Item, Wanted]:
            settings, actor = self._said(scene), scene.actor
            policy = ADMIN if key.lower() in settings.public else _of_contents(scene)
            seen = replace(scene, actor=Actor(policy, actor.user, actor.role))
            row = row_of(self._store, seen, _ASK, key=key)
            return row, _wanted(row, said, accept, settings)

        return self._asset(*self._store.reading(identity, work))

    def delivery(self, asset: Asset) -> Delivery:
        """Return what is sent for an asset, made now where it is not there.

        Raises FileNotFoundError without a content: it may have been exchanged since the row was read.
        """
        original, wanted = asset.original, asset.wanted
        if not wanted.key:
            return Delivery(find(original.storage, original.path), asset.filename, asset.media_type)
        found = derived(self._store, self._workshop, original, wanted)
        name = f"{asset.filename.rpartition('.')[0] or asset.filename}.{found.format}"
        return Delivery(found.content, name, MEDIA_TYPES[found.format])

    def _said(self, scene: Scene) -> _Said:
        """Return what the settings say, read once for a version of the rights, which a change of them moves."""

        def read() -> _Said:
            rows = self._store.database.fetch(statement("find_asset_settings"))
            structure, access, allowed, presets, public = rows[0]
            check_version(scene.snapshot, Version(structure, access))
            listed = json.loads(presets) if presets else []
            return _Said(rules_of(allowed, listed, most=self._most), frozenset(public))

        return self._settings.setdefault_with(scene.snapshot.version, read)

    def _asset(self, row: Item, wanted: Wanted) -> Asset:
        path, media_type = row["filename_disk"], row["type"] or _BINARY
        if not path:
            raise not_found("file")
        if row["charset"] and media_type.startswith("text/"):
            media_type = f"{media_type}; charset={row['charset']}"
        tag = f"{path} {wanted.key}"  # each content of a file has a path of its own
        return Asset(
            Original(row["id"], self._storages.holding(row["storage"]), path),
            wanted,
            row["filename_download"],
            media_type,
            datetime.fromisoformat(row["modified_on"]),
            blake2b(tag.encode(), digest_size=16).hexdigest(),
        )


def _wanted(row: Item, said: Mapping[str, object], accept: str, settings: _Said) -> Wanted:
    """Return the settled transform of a row's content; the same words under the same settings are read once."""
    media_type, focus = row["type"], _focus(row)

    def read() -> Wanted:
        transform = parse_transform(said, settings.rules)
        if transform == NOTHING or media_type not in TRANSFORMED:
            return Wanted()
        return settled(transform, media_type, focus=focus, accept=accept)

    asked = tuple((name, _text(said[name])) for name in PARAMETERS if name in said)
    if not asked:
        return Wanted()
    return settings.transforms.setdefault_with((asked, media_type, focus, accept), read)


def _of_contents(scene: Scene) -> Policy:
    """Return the policy under which contents are read: who may read anything of a file's row may read its content."""
    policy = scene.actor.policy
    if policy.admin:
        return policy
    name = f"{policy.name} contents"

    def widened() -> Policy:
        grants = [grant for grant in policy.grants.get(_READ, ()) if grant.fields]
        whole = tuple(replace(grant, fields=frozenset({ALL_FIELDS})) for grant in grants)
        return replace(policy, name=name, grants=MappingProxyType({**policy.grants, _READ: whole}))

    return scene.snapshot.policies.setdefault_with(name, widened)


def _focus(row: Mapping[str, Any]) -> Focus | None:
    x, y = (_number(row[name], usual) for name, usual in zip(("focal_point_x", "focal_point_y"), MIDDLE, strict=True))
    return None if (x, y) == MIDDLE else (x, y)


def _number(value: object, usual: float) -> float:
    """Return a number of a row, which comes as ready JSON."""
    return usual if value is None else float(jsontext.dumps(value))


def _text(said: object) -> Hashable:
    return said if isinstance(said, str) else repr(said)

"""Files as clients see them: the right to read one, its content, and its name (docs/assets.md)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple

from cachebox import LRUCache

from cms import jsontext
from cms.access.policy import ADMIN, ALL_FIELDS, Actor, Policy
from cms.config import Config
from cms.database.statements import statement
from cms.errors import not_found
from cms.files.derivatives import Derivatives, Original
from cms.files.image_pool import ImagePool
from cms.files.media_types import UNKNOWN
from cms.files.storage import Storages
from cms.files.stored_content import StoredContent, find_content
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import Item, fetch_prepared_item
from cms.schema.model import Version
from cms.schema.system import FILES
from cms.schema.types.texts import parse_uuid
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.identity import Identity
from cms.store.snapshot import PreparedRead
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

MAX_CACHED_TRANSFORMS = 500
MAX_CACHED_ASSETS = 1_000
MAX_CACHED_FORM_LENGTH = 1_000
"""Characters of the parameters and of `Accept`, of which clients could send any number."""

_READ = (FILES, "read")
_READ_REQUEST = ReadRequest(
    FILES,
    "fields=id,storage,filename_disk,filename_download,type,charset,modified_on"
    ",focal_point_x,focal_point_y",
)
_content_columns = itemgetter(
    "id", "storage", "filename_disk", "filename_download", "type", "charset", "modified_on"
)


class Asset(NamedTuple):
    """A file in the form that one request asks for; `tag` changes with its bytes."""

    original: Original
    transform: ResolvedTransform
    filename: str
    media_type: str
    modified: datetime
    tag: str


class _RequestedForm(NamedTuple):
    """The form in which a request asks for a content; `values` are those of its `PARAMETERS`."""

    parameters: Mapping[str, object]
    values: tuple[object, ...]
    accept: str

    @property
    def is_cached(self) -> bool:
        """Whether the form is short enough to be the key of a cache."""
        length = len(self.accept)
        for value in self.values:
            if value is None:
                continue
            # A parameter that is sent twice is a list.
            if not isinstance(value, str):
                return False
            length += len(value)
        return length <= MAX_CACHED_FORM_LENGTH


class AssetDelivery(NamedTuple):
    """The content of an asset, with the name and the media type under which it is sent."""

    content: StoredContent
    filename: str
    media_type: str


@dataclass(frozen=True, slots=True)
class _AssetSettings:
    """The settings of assets, with caches of the transforms and assets that they resulted in."""

    rules: TransformRules
    public: frozenset[str]
    transforms: LRUCache[Hashable, ResolvedTransform] = field(
        default_factory=lambda: LRUCache(MAX_CACHED_TRANSFORMS)
    )
    assets: LRUCache[Hashable, Asset] = field(default_factory=lambda: LRUCache(MAX_CACHED_ASSETS))


class Assets:
    """The assets of one application."""

    def __init__(
        self, store: Store, storages: Storages, config: Config, image_pool: ImagePool
    ) -> None:
        self._store = store
        self._storages = storages
        self._derivatives = Derivatives(store, image_pool, keeps_folders=not config.assets_sendfile)
        self._max_side = config.assets_transform_image_max_dimension
        # Two: a request that began before a change may still be under way.
        self._settings: LRUCache[Version, _AssetSettings] = LRUCache(2)

    def asset(
        self,
        identity: Identity,
        key: str,
        parameters: Mapping[str, object],
        *,
        accept: str,
        from_primary: bool = False,
    ) -> Asset:
        """Return a file in the form that the parameters ask for.

        Raises `Refused`: FORBIDDEN or NOT_FOUND as for its row, ILLEGAL_ASSET_TRANSFORMATION.
        """
        form = _RequestedForm(parameters, tuple(map(parameters.get, PARAMETERS)), accept)
        reads = self._store.primary_reads if from_primary else self._store.reads
        for attempt in reads(identity):
            with attempt as context:
                asset = self._find(key, form, context)
        return asset

    def _find(self, key: str, form: _RequestedForm, context: RequestContext) -> Asset:
        settings = self._asset_settings(context)
        policy = context.actor.policy
        # Files that the settings show, such as the project's logo, are public. UUIDs in either case
        # name the same row.
        if key.lower() in settings.public:
            policy = ADMIN
        prepared = self._prepared_read(context, policy)
        row = fetch_prepared_item(self._store, context, prepared, key=_file_id(key))
        focus = _focal_point(row)
        if not form.is_cached:
            return self._asset(row, _resolve(row["type"], focus, form, settings.rules))
        # All that an asset depends on, besides the settings.
        cache_key = (_content_columns(row), focus, form.values, form.accept)
        return settings.assets.setdefault_with(
            cache_key, lambda: self._asset(row, _transform(row["type"], focus, form, settings))
        )

    def delivery(self, asset: Asset) -> AssetDelivery:
        """Return the content of an asset; a transformed image is made now if it does not exist yet.

        Raises FileNotFoundError where the content is gone: the file may have got another one since
        its row was read.
        """
        original = asset.original
        if not asset.transform.key:
            content = find_content(original.storage, original.path)
            return AssetDelivery(content, asset.filename, asset.media_type)
        derivative = self._derivatives.find_or_make(original, asset.transform)
        # The name ends with the format that the image has become.
        stem = asset.filename.rpartition(".")[0] or asset.filename
        media_type = MEDIA_TYPE_BY_FORMAT[derivative.format]
        return AssetDelivery(derivative.content, f"{stem}.{derivative.format}", media_type)

    def _prepared_read(self, context: RequestContext, policy: Policy) -> PreparedRead:
        """Return the read of a row whose content a policy may see, prepared once a version.

        Raises `Refused` FORBIDDEN where the policy may see none.
        """
        prepared: PreparedRead = context.snapshot.derived.setdefault_with(
            ("read for contents", policy), partial(self._prepare_read, context, policy)
        )
        return prepared

    def _prepare_read(self, context: RequestContext, policy: Policy) -> PreparedRead:
        actor = Actor(_content_policy(policy), context.actor.user, context.actor.role)
        return prepare_read(self._store, context._replace(actor=actor), _READ_REQUEST, keyed=True)

    def _asset_settings(self, context: RequestContext) -> _AssetSettings:
        """Return the settings of assets, read once a version: a change of settings moves it."""
        return self._settings.setdefault_with(
            context.snapshot.version, partial(self._read_settings, context)
        )

    def _read_settings(self, context: RequestContext) -> _AssetSettings:
        rows = context.fetch(statement("find_asset_settings"), ())
        structure, access, flows, allowed, presets, public = rows[0]
        # Kept under the version of the snapshot, so they must be of that version.
        check_version(context.snapshot, Version(structure, access, flows))
        preset_list = json.loads(presets or "[]")
        rules = transform_rules(allowed, preset_list, maximum=self._max_side)
        return _AssetSettings(rules, frozenset(public))

    def _asset(self, row: Item, transform: ResolvedTransform) -> Asset:
        path = row["filename_disk"]
        media_type = row["type"] or UNKNOWN
        # A row that another program wrote may have no content.
        if not path:
            raise not_found("file")
        if row["charset"] and media_type.startswith("text/"):
            media_type = f"{media_type}; charset={row['charset']}"
        # Each content of a file has a path of its own, so the path stands for the bytes.
        tag = f"{path} {transform.key}"
        return Asset(
            Original(row["id"], self._storages.existing(row["storage"]), path),
            transform,
            row["filename_download"],
            media_type,
            datetime.fromisoformat(row["modified_on"]),
            blake2b(tag.encode(), digest_size=16).hexdigest(),
        )


def _file_id(key: str) -> str:
    try:
        return parse_uuid(key)
    except ValueError:
        raise not_found() from None


def _transform(
    media_type: str, focus: Focus | None, form: _RequestedForm, settings: _AssetSettings
) -> ResolvedTransform:
    """Return the resolved transform of a content, from the cache where it was read before."""
    resolve = partial(_resolve, media_type, focus, form, settings.rules)
    return settings.transforms.setdefault_with(
        (form.values, media_type, focus, form.accept), resolve
    )


def _resolve(
    media_type: str, focus: Focus | None, form: _RequestedForm, rules: TransformRules
) -> ResolvedTransform:
    transform = parse_transform(form.parameters, rules)
    # Parameters are checked for any file, but only images are transformed.
    if transform == NO_TRANSFORM or media_type not in FORMAT_BY_MEDIA_TYPE:
        return ResolvedTransform()
    return resolve_transform(transform, media_type, focus=focus, accept=form.accept)


def _content_policy(policy: Policy) -> Policy:
    """Return the policy for contents: with any field of a file, a caller may read its content."""
    if policy.is_admin:
        return policy
    widened_grants = []
    for grant in policy.grants.get(_READ, ()):
        # A grant of no field gives no right to contents either.
        if grant.fields:
            widened_grants.append(replace(grant, fields=frozenset({ALL_FIELDS})))
    # No name of a caller's policy holds a space.
    widened = policy.with_grants(f"{policy.name} contents", {_READ: tuple(widened_grants)})
    if policy.shared is None:
        return widened
    public = _content_policy(policy.shared.public)
    return replace(widened, shared=replace(policy.shared, public=public))


def _focal_point(row: Mapping[str, Any]) -> Focus | None:
    x = _coordinate(row["focal_point_x"], center=CENTER[0])
    y = _coordinate(row["focal_point_y"], center=CENTER[1])
    # With the center as its focus an image is the same as without any, and so must be the key.
    if (x, y) == CENTER:
        return None
    return x, y


def _coordinate(value: object, *, center: float) -> float:
    """Return a coordinate of a row, where numbers are pieces of JSON text."""
    if value is None:
        return center
    return float(jsontext.dumps(value))

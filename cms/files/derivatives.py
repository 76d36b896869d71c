"""Transformed images: stored beside their originals, made once for all (docs/assets.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, cast

from cachebox import LRUCache

from cms.database.statements import statement
from cms.files.image_pool import ImagePool
from cms.files.storage import CHUNK_BYTES, Storage
from cms.files.stored_content import StoredContent, find_content, local_file
from cms.store.store import Store
from cms.transforms.transform import FALLBACK_FORMAT, ResolvedTransform

MAX_KEPT_BYTES = 4 * 2**20
"""Bytes of derivatives that a process keeps in memory, with what each one takes by itself."""

ENTRY_BYTES = 700
"""The names and objects of a derivative: a small one takes most of its memory by them."""

_DerivativeKey = tuple[str, str, str]
"""A storage location, the path of the original in it, and the key of the transform."""


class Original(NamedTuple):
    """The content of a file: the file's id, its storage location, and the path in it."""

    id: str
    storage: Storage
    path: str


class Derivative(NamedTuple):
    """A transformed image and its format."""

    content: StoredContent
    format: str


class Derivatives:
    """Finds and makes derivatives; small ones that were asked for last stay in memory.

    Each content of a file has a path of its own, so a derivative never changes. Whether its file
    still has that content is for the caller to know. A proxy that sends the files of folders needs
    them on the disk: then nothing of folders is kept (`keeps_folders`).
    """

    def __init__(self, store: Store, image_pool: ImagePool, *, keeps_folders: bool) -> None:
        self._store = store
        self._image_pool = image_pool
        self._keeps_folders = keeps_folders
        self._kept: LRUCache[_DerivativeKey, Derivative] = LRUCache(
            MAX_KEPT_BYTES, getsizeof=_kept_bytes
        )

    def find_or_make(self, original: Original, resolved: ResolvedTransform) -> Derivative:
        """Return the derivative of an original, and make it if it does not exist.

        Others who ask for it at the same time, on any machine, wait and get the same one.
        Raises `Refused` ILLEGAL_ASSET_TRANSFORMATION, and FileNotFoundError without the original.
        """
        key = (original.storage.name, original.path, resolved.key)
        # The library's types forget that there may be none.
        kept = cast("Derivative | None", self._kept.get(key))
        if kept is not None:
            return kept
        # The first look takes no lock: nearly all requests are for an image that exists.
        derivative = _find(original, resolved) or _make(
            self._store, self._image_pool, original, resolved
        )
        is_kept = self._keeps_folders or original.storage.folder is None
        if is_kept and derivative.content.size <= CHUNK_BYTES:
            derivative = derivative._replace(content=derivative.content.loaded())
            self._kept[key] = derivative
        return derivative


def _kept_bytes(_key: _DerivativeKey, derivative: Derivative) -> int:
    return ENTRY_BYTES + derivative.content.size


def forget_derivatives(storage: Storage, path: str) -> None:
    """Remove the derivatives of a content that is gone, or no longer its file's.

    Call it once the change of the row has committed: a request that makes a derivative meanwhile
    looks at the row last, and removes its derivative itself.
    """
    storage.delete([content.path for content in storage.list(_folder(path))])


def _folder(path: str) -> str:
    """Return the folder of a content's derivatives, which can be listed by itself."""
    return f"{path.rpartition('.')[0] or path}__"


def _path(original: Original, resolved: ResolvedTransform, image_format: str) -> str:
    return f"{_folder(original.path)}/{resolved.key}.{image_format}"


def _find(original: Original, resolved: ResolvedTransform) -> Derivative | None:
    possible_formats: tuple[str, ...] = (resolved.transform.format or "",)
    if resolved.transform.format == FALLBACK_FORMAT:
        # Which of the two it became depends on whether the image is transparent.
        possible_formats = ("jpg", "png")
    for possible_format in possible_formats:
        path = _path(original, resolved, possible_format)
        try:
            return Derivative(find_content(original.storage, path), possible_format)
        except FileNotFoundError:
            continue
    return None


def _make(
    store: Store, image_pool: ImagePool, original: Original, resolved: ResolvedTransform
) -> Derivative:
    """Make a derivative under a lock of the database, unless somebody has made it meanwhile."""
    name = f"{original.storage.name}/{_path(original, resolved, '')}"
    with store.database.transaction() as transaction:
        transaction.execute(statement("lock_derivative"), (name,))
        # A process that held the lock before may have made it.
        derivative = _find(original, resolved)
        if derivative is not None:
            return derivative
        with (
            local_file(original.storage, original.path) as source,
            TemporaryDirectory(prefix="cms-transform-") as folder,
        ):
            target = Path(folder, "transformed")
            image_format = image_pool.render(source, target, resolved.transform, name=name)
            path = _path(original, resolved, image_format)
            # The database connection is held meanwhile: it holds the lock, and so keeps other
            # machines from the same work.
            original.storage.put(path, _chunks(target))
        content = find_content(original.storage, path)
        # The file may have changed meanwhile, with its derivatives removed before this one was
        # there.
        if not transaction.execute(statement("find_current_content"), (original.id, original.path)):
            original.storage.delete([path])
        return Derivative(content, image_format)


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as content:
        while chunk := content.read(CHUNK_BYTES):
            yield chunk

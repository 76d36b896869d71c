"""Transformed images, kept beside their originals and made once, whoever asks and wherever (decisions, section 7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cms.database.statements import statement
from cms.files.image_pool import ImagePool
from cms.files.storage import Storage
from cms.files.stored_content import CHUNK_BYTES, StoredContent, file_path, find_content
from cms.store.store import Store
from cms.transforms.transform import FALLBACK_FORMAT, ResolvedTransform


@dataclass(frozen=True, slots=True)
class Original:
    """The content of a file: the file's id, its storage location, and the path in it."""

    id: str
    storage: Storage
    path: str


@dataclass(frozen=True, slots=True)
class Derivative:
    """A transformed image, with the format that it has."""

    content: StoredContent
    format: str


def derivative_of(
    store: Store, workshop: ImagePool, original: Original, wanted: ResolvedTransform
) -> Derivative:
    """Return the derivative that is there, or make it;
    Whoever asks for it at the same time, on whatever machine, waits and is served the same one.
    Raises `Refused` ILLEGAL_ASSET_TRANSFORMATION, and FileNotFoundError without the original.
    """
    return _find(original, wanted) or _make(store, workshop, original, wanted)


def forget_derivatives(storage: Storage, path: str) -> None:
    """Remove the derivatives of a content that is gone, or no longer its file's.

    To be called when the change of the row has committed: one that is being made meanwhile looks at the row last.
    """
    storage.delete([found.path for found in storage.list(_folder(path))])


def _folder(path: str) -> str:
    """Return where the derivatives of a content lie: beside it, and in a folder, which alone can be listed quickly."""
    return f"{path.rpartition('.')[0] or path}__"


def _path(original: Original, wanted: ResolvedTransform, image_format: str) -> str:
    return f"{_folder(original.path)}/{wanted.key}.{image_format}"


def _find(original: Original, wanted: ResolvedTransform) -> Derivative | None:
    image_format = wanted.transform.format or ""
    for made in ("jpg", "png") if image_format == FALLBACK_FORMAT else (image_format,):
        try:
            return Derivative(find_content(original.storage, _path(original, wanted, made)), made)
        except FileNotFoundError:
            continue
    return None


def _make(
    store: Store, workshop: ImagePool, original: Original, wanted: ResolvedTransform
) -> Derivative:
    """Make a derivative under a lock of the database, unless somebody has made it meanwhile."""
    name = f"{original.storage.name}/{_path(original, wanted, '')}"
    with store.database.transaction() as transaction:
        transaction.execute(statement("lock_derivative"), (name,))
        if found := _find(original, wanted):
            return found
        with _source(original) as source, TemporaryDirectory(prefix="cms-transform-") as folder:
            target = Path(folder, "made")
            image_format = workshop.render(source, target, wanted.transform, name=name)
            path = _path(original, wanted, image_format)
            original.storage.put(path, _chunks(target))
        content = find_content(original.storage, path)
        if not transaction.execute(statement("find_current_content"), (original.id, original.path)):
            original.storage.delete(
                [path]
            )  # the file has changed meanwhile, and its derivatives are forgotten
        return Derivative(content, image_format)


@contextmanager
def _source(original: Original) -> Iterator[Path]:
    """Give the original as a file on this machine."""
    folder = original.storage.folder
    if folder is not None:
        path = Path(file_path(folder, original.path))
        path.stat()
        yield path
        return
    with TemporaryDirectory(prefix="cms-original-") as temporary:
        copy = Path(temporary, "original")
        with copy.open("wb") as file:
            file.writelines(original.storage.get(original.path))
        yield copy


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk

"""The memory that the derivatives take which a process keeps."""

from __future__ import annotations

import tracemalloc
from typing import Any, cast

import pytest

from cms.config.locations import Location
from cms.files import derivatives
from cms.files.derivatives import Derivative, Derivatives, Original
from cms.files.storage import Storage
from cms.files.stored_content import StoredContent
from cms.transforms.transform import ResolvedTransform

NOTHING = cast("Any", None)
STORAGE = Storage(Location("local", "local", "/nowhere"))
MAX_BYTES = 2**18
STEM = "/00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("size", [0, 40])
def test_derivatives_of_few_bytes_are_bounded_by_their_memory(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    def find(original: Original, resolved: ResolvedTransform) -> Derivative:
        path = f"{original.path}__/{resolved.key}.webp"
        return Derivative(StoredContent(STORAGE, path, size, size * b"%"), "webp")

    monkeypatch.setattr(derivatives, "_find", find)
    monkeypatch.setattr(derivatives, "MAX_KEPT_BYTES", MAX_BYTES)
    kept = Derivatives(NOTHING, NOTHING, keeps_folders=True)
    tracemalloc.start()
    try:
        for number in range(1_000):
            original = Original(str(number), STORAGE, f"{number:06}{STEM}")
            kept.find_or_make(original, ResolvedTransform(key=f"{number:032}"))
        assert tracemalloc.get_traced_memory()[0] < MAX_BYTES
    finally:
        tracemalloc.stop()

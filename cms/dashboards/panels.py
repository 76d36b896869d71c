"""A panel as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

Data = Mapping[str, object]
"""The data of a panel; its members depend on the type of the panel."""


class Panel(NamedTuple):
    """A panel as it is stored."""

    id: str
    type: str
    options: Mapping[str, Any]
    name: str | None = None
    color: str | None = None

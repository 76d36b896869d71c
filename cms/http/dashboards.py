"""/dashboards and /panels: what they show."""

from __future__ import annotations

import re

import falcon

from cms.dashboards.panel_data import answer_dashboard, answer_panel, draw_panel
from cms.dashboards.pictures import THEMES, Picture
from cms.errors import invalid_query
from cms.http.requests.request import Request
from cms.store.store import Store

MIN_PIXELS = 100
MAX_PIXELS = 4_000
_DIGITS = re.compile(r"[0-9]{1,5}")


class DashboardDataResource:
    """The data of all panels of a dashboard."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        response.data = answer_dashboard(self._store, request.identity, key)


class PanelDataResource:
    """The data of one panel, or a picture of them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        identity = request.identity
        if _is_picture(request):
            response.data = draw_panel(self._store, identity, key, _picture(request))
            response.content_type = "image/svg+xml"
            # Nothing in a picture runs or loads anything, wherever it is shown.
            response.set_header(
                "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"
            )
        else:
            response.data = answer_panel(self._store, identity, key)


def _is_picture(request: Request) -> bool:
    picture_format = request.get_param("format", default="json")
    if picture_format not in ("json", "svg"):
        raise invalid_query("format is json or svg", parameter="format")
    return picture_format == "svg"


def _picture(request: Request) -> Picture:
    """Return the picture that the parameters ask for; raises `Refused` INVALID_QUERY."""
    theme = request.get_param("theme", default="light")
    if theme not in THEMES:
        raise invalid_query(f"theme is one of {', '.join(THEMES)}", parameter="theme")
    return Picture(THEMES[theme], _pixels(request, "width", 640), _pixels(request, "height", 360))


def _pixels(request: Request, parameter: str, default: int) -> int:
    text = request.get_param(parameter)
    if text is None:
        return default
    if not _DIGITS.fullmatch(text) or not MIN_PIXELS <= int(text) <= MAX_PIXELS:
        reason = f"{parameter} is a whole number from {MIN_PIXELS} to {MAX_PIXELS}"
        raise invalid_query(reason, parameter=parameter)
    return int(text)

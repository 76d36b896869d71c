"""/auth and /users/me: who is there (specification, sections 4.3 and 4.11)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import falcon

from cms.auth import sessions
from cms.auth.sessions import Issuer
from cms.errors import invalid_payload
from cms.http.media import fields, send
from cms.http.request import caller_of
from cms.http.tags import send_one
from cms.store.reads import read_me
from cms.store.store import Store


class Login:
    def __init__(self, store: Store, issuer: Issuer, most: int) -> None:
        self._store = store
        self._issuer = issuer
        self._most = most

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = fields(request, most=self._most)
        found = sessions.login(
            self._store,
            self._issuer,
            email=text_of(payload, "email"),
            password=text_of(payload, "password"),
            caller=caller_of(request),
        )
        send(response, asdict(found))


class Refresh:
    def __init__(self, store: Store, issuer: Issuer, most: int) -> None:
        self._store = store
        self._issuer = issuer
        self._most = most

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        token = text_of(fields(request, most=self._most), "refresh_token")
        send(response, asdict(sessions.refresh(self._store, self._issuer, refresh_token=token)))


class Logout:
    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        token = text_of(fields(request, most=self._most), "refresh_token")
        sessions.logout(self._store, refresh_token=token)
        response.status = falcon.HTTP_204


class Me:
    """The current user."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        send_one(request, response, read_me(self._store, request.context.identity, request.query_string))


def text_of(payload: Mapping[str, object], key: str) -> str:
    """Return a text that must be there; raises `Refused` INVALID_PAYLOAD."""
    found = payload.get(key)
    if not isinstance(found, str) or not found:
        raise invalid_payload(f'"{key}" must be a text', field=key)
    return found

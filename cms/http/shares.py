"""/shares: logins by a share, its public properties, invitations by mail."""

from __future__ import annotations

from collections.abc import Mapping

import falcon

from cms.auth import share_logins
from cms.auth.mail_links import MailLink
from cms.auth.sessions import Issuer, Mode
from cms.auth.share_logins import ShareCredentials, ShareInvitation, parse_id
from cms.errors import invalid_payload
from cms.http.answers.envelope import send
from cms.http.auth import mode_of, session_body
from cms.http.middleware.rate_limit import count_account
from cms.http.requests.cookies import Cookies
from cms.http.requests.media import (
    check_texts,
    idempotency_key_of,
    optional_text,
    read_json_object,
    required_text,
)
from cms.http.requests.request import Request
from cms.store.store import Store


class ShareLoginResource:
    def __init__(self, store: Store, issuer: Issuer, cookies: Cookies) -> None:
        self._store = store
        self._issuer = issuer
        self._cookies = cookies

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        check_texts(payload, "share", optional=("password",))
        credentials = ShareCredentials(
            required_text(payload, "share"), optional_text(payload, "password")
        )
        # Not as it was sent: an id has any number of spellings.
        count_account(request, parse_id(credentials.share) or credentials.share)
        mode = mode_of(payload) or Mode.JSON
        issued = share_logins.login(
            self._store, self._issuer, credentials, mode=mode, client=request.client
        )
        self._cookies.set_session(request, response, issued)
        # As /auth answers: tokens are not kept by any cache.
        response.set_header("Cache-Control", "no-store")
        send(response, session_body(issued))


class ShareInfoResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        send(response, share_logins.info(self._store, key))


class ShareInviteResource:
    def __init__(self, store: Store, link: MailLink) -> None:
        self._store = store
        self._link = link

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        identity = request.identity
        url = optional_text(payload, self._link.url_field)
        invitation = ShareInvitation(required_text(payload, "share"), _emails(payload), url)
        share_logins.invite(
            self._store, self._link, identity, invitation, idempotency=idempotency_key_of(request)
        )
        response.status = falcon.HTTP_204


def _emails(payload: Mapping[str, object]) -> list[str]:
    value = payload.get("emails")
    if not isinstance(value, list) or not all(isinstance(email, str) for email in value):
        raise invalid_payload('"emails" must be an array of addresses', field="emails")
    return value

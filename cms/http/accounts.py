"""Accounts by letter: password resets, invitations, registrations (specification, sections 4.3 and 4.11)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import falcon

from cms.auth import invitations, password_reset, registration
from cms.auth.invitations import Invitation
from cms.auth.links import MailLink
from cms.auth.password_reset import NewPassword
from cms.errors import abbreviated, invalid_payload, invalid_query
from cms.http.media import (
    check_texts,
    idempotency_key_of,
    optional_text,
    read_json_object,
    required_text,
    send,
)
from cms.store.store import Store


class _MailLinkResource:
    """What all of these work with."""

    def __init__(self, store: Store, link: MailLink, max_bytes: int) -> None:
        self._store = store
        self._link = link
        self._max_bytes = max_bytes


class ResetRequestResource(_MailLinkResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer the same whoever it is: only the owner of the address learns whether there is an account."""
        payload = read_json_object(request, max_bytes=self._max_bytes)
        url = optional_text(payload, self._link.url_field)
        password_reset.request_reset(
            self._store, self._link, email=required_text(payload, "email"), url=url
        )
        response.status = falcon.HTTP_204


class PasswordResetResource(_MailLinkResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        new_password = _new_password(
            read_json_object(request, max_bytes=self._max_bytes), status="active"
        )
        password_reset.set_password(
            self._store, self._link, new_password, client=request.context.client
        )
        response.status = falcon.HTTP_204


class AcceptInviteResource(_MailLinkResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Accept an invitation by choosing a password."""
        new_password = _new_password(
            read_json_object(request, max_bytes=self._max_bytes), status="invited"
        )
        password_reset.set_password(
            self._store,
            self._link,
            new_password,
            client=request.context.client,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class InviteResource(_MailLinkResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = read_json_object(request, max_bytes=self._max_bytes)
        identity = request.context.identity  # who may not call at all is told nothing of the body
        url = optional_text(payload, self._link.url_field)
        invitation = Invitation(_emails(payload), _role_id(payload), url)
        invitations.invite(
            self._store, self._link, identity, invitation, idempotency=idempotency_key_of(request)
        )
        response.status = falcon.HTTP_204


class RegisterResource(_MailLinkResource):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = read_json_object(request, max_bytes=self._max_bytes)
        check_texts(
            payload, "email", "password", optional=("first_name", "last_name", self._link.url_field)
        )
        form = registration.RegistrationForm(
            required_text(payload, "email"),
            required_text(payload, "password"),
            optional_text(payload, "first_name"),
            optional_text(payload, "last_name"),
            optional_text(payload, self._link.url_field),
        )
        registration.register(
            self._store,
            self._link,
            form,
            client=request.context.client,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class VerifyEmailResource:
    def __init__(self, store: Store, link: MailLink) -> None:
        self._store = store
        self._link = link

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Open the account whose link was followed, and say so: a person may be looking at it."""
        token = request.get_param("token")
        if not token:
            raise invalid_query('"token" is missing', parameter="token")
        registration.verify(self._store, self._link, token=token, client=request.context.client)
        send(response, {"status": "active"})

    def on_head(self, request: falcon.Request, response: falcon.Response) -> None:
        """Open nothing: programs that look into mail ask where a link leads."""


def _new_password(payload: Mapping[str, object], *, status: str) -> NewPassword:
    check_texts(payload, "token", "password")
    return NewPassword(required_text(payload, "token"), required_text(payload, "password"), status)


def _emails(payload: Mapping[str, object]) -> list[str]:
    said = payload.get("email")
    found = said if isinstance(said, list) else [said]
    texts = [email for email in found if isinstance(email, str)]
    if len(texts) < len(found):
        raise invalid_payload('"email" must be an address or an array of addresses', field="email")
    return texts


def _role_id(payload: Mapping[str, object]) -> str:
    said = required_text(payload, "role")
    try:
        return str(uuid.UUID(said))
    except ValueError:
        raise invalid_payload(
            '"role" must be the id of a role', field="role", value=abbreviated(said)
        ) from None

"""Accounts by mail: password resets, invitations, registrations."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import falcon

from cms.auth import invitations, password_reset, registration
from cms.auth.invitations import Invitation
from cms.auth.mail_links import MailLink
from cms.auth.password_reset import NewPassword
from cms.errors import abbreviated, invalid_payload, invalid_query
from cms.http.answers.envelope import send
from cms.http.middleware.rate_limit import count_account
from cms.http.requests.media import (
    check_texts,
    idempotency_key_of,
    optional_text,
    read_json_object,
    required_text,
)
from cms.http.requests.request import Request
from cms.store.store import Store


class _MailLinkResource:
    """Base of the resources that send or follow a link in a mail."""

    def __init__(self, store: Store, link: MailLink) -> None:
        self._store = store
        self._link = link


class ResetRequestResource(_MailLinkResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        """Mail a link; the answer is always the same.

        Only the owner of the address may learn whether there is an account.
        """
        payload = read_json_object(request)
        url = optional_text(payload, self._link.url_field)
        email = required_text(payload, "email")
        count_account(request, email)
        password_reset.request_reset(self._store, self._link, email=email, url=url)
        response.status = falcon.HTTP_204


class PasswordResetResource(_MailLinkResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        new_password = _new_password(read_json_object(request), status="active")
        password_reset.set_password(self._store, self._link, new_password, client=request.client)
        response.status = falcon.HTTP_204


class AcceptInviteResource(_MailLinkResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        """Accept an invitation by choosing a password."""
        new_password = _new_password(read_json_object(request), status="invited")
        password_reset.set_password(
            self._store,
            self._link,
            new_password,
            client=request.client,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class InviteResource(_MailLinkResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        # Before the body is checked: a caller with a bad token gets no answer about its contents.
        identity = request.identity
        url = optional_text(payload, self._link.url_field)
        invitation = Invitation(_emails(payload), _role_id(payload), url)
        invitations.invite(
            self._store, self._link, identity, invitation, idempotency=idempotency_key_of(request)
        )
        response.status = falcon.HTTP_204


class RegisterResource(_MailLinkResource):
    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
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
        count_account(request, form.email)
        registration.register(
            self._store,
            self._link,
            form,
            client=request.client,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class VerifyEmailResource:
    def __init__(self, store: Store, link: MailLink) -> None:
        self._store = store
        self._link = link

    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Activate the account of the link."""
        token = request.get_param("token")
        if not token:
            raise invalid_query('"token" is missing', parameter="token")
        registration.verify(self._store, self._link, token=token, client=request.client)
        # The link may be open in a browser, which would show nothing for 204.
        send(response, {"status": "active"})

    def on_head(self, request: Request, response: falcon.Response) -> None:
        """Activate nothing: programs that scan mail send HEAD to find out where a link leads."""


def _new_password(payload: Mapping[str, object], *, status: str) -> NewPassword:
    check_texts(payload, "token", "password")
    return NewPassword(required_text(payload, "token"), required_text(payload, "password"), status)


def _emails(payload: Mapping[str, object]) -> list[str]:
    value = payload.get("email")
    values = value if isinstance(value, list) else [value]
    emails = [email for email in values if isinstance(email, str)]
    if len(emails) < len(values):
        raise invalid_payload('"email" must be an address or an array of addresses', field="email")
    return emails


def _role_id(payload: Mapping[str, object]) -> str:
    text = required_text(payload, "role")
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise invalid_payload(
            '"role" must be the id of a role', field="role", value=abbreviated(text)
        ) from None

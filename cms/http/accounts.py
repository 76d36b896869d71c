"""Accounts by letter: password resets, invitations, registrations (specification, sections 4.3 and 4.11)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import falcon

from cms.auth import invitations, registration, renewal
from cms.auth.invitations import Invitation
from cms.auth.links import Link
from cms.auth.renewal import Choice
from cms.errors import invalid_payload, invalid_query, shown
from cms.http.media import check_texts, fields, once_of, optional_text, send, text_of
from cms.store.store import Store


class _ByLetter:
    """What all of these work with."""

    def __init__(self, store: Store, link: Link, most: int) -> None:
        self._store = store
        self._link = link
        self._most = most


class RequestReset(_ByLetter):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer the same whoever it is: only the owner of the address learns whether there is an account."""
        payload = fields(request, most=self._most)
        url = optional_text(payload, self._link.named)
        renewal.request_reset(self._store, self._link, email=text_of(payload, "email"), url=url)
        response.status = falcon.HTTP_204


class Reset(_ByLetter):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        choice = _choice(fields(request, most=self._most), status="active")
        renewal.set_password(self._store, self._link, choice, caller=request.context.caller)
        response.status = falcon.HTTP_204


class AcceptInvite(_ByLetter):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Accept an invitation by choosing a password."""
        choice = _choice(fields(request, most=self._most), status="invited")
        renewal.set_password(self._store, self._link, choice, caller=request.context.caller, once=once_of(request))
        response.status = falcon.HTTP_204


class Invite(_ByLetter):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = fields(request, most=self._most)
        identity = request.context.identity  # who may not call at all is told nothing of the body
        url = optional_text(payload, self._link.named)
        invitation = Invitation(_emails(payload), _role(payload), url)
        invitations.invite(self._store, self._link, identity, invitation, once=once_of(request))
        response.status = falcon.HTTP_204


class Register(_ByLetter):
    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = fields(request, most=self._most)
        check_texts(payload, "email", "password", optional=("first_name", "last_name", self._link.named))
        form = registration.Form(
            text_of(payload, "email"),
            text_of(payload, "password"),
            optional_text(payload, "first_name"),
            optional_text(payload, "last_name"),
            optional_text(payload, self._link.named),
        )
        registration.register(self._store, self._link, form, caller=request.context.caller, once=once_of(request))
        response.status = falcon.HTTP_204


class VerifyEmail:
    def __init__(self, store: Store, link: Link) -> None:
        self._store = store
        self._link = link

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Open the account whose link was followed, and say so: a person may be looking at it."""
        token = request.get_param("token")
        if not token:
            raise invalid_query('"token" is missing', parameter="token")
        registration.verify(self._store, self._link, token=token, caller=request.context.caller)
        send(response, {"status": "active"})

    def on_head(self, request: falcon.Request, response: falcon.Response) -> None:
        """Open nothing: programs that look into mail ask where a link leads."""


def _choice(payload: Mapping[str, object], *, status: str) -> Choice:
    check_texts(payload, "token", "password")
    return Choice(text_of(payload, "token"), text_of(payload, "password"), status)


def _emails(payload: Mapping[str, object]) -> list[str]:
    said = payload.get("email")
    found = said if isinstance(said, list) else [said]
    texts = [email for email in found if isinstance(email, str)]
    if len(texts) < len(found):
        raise invalid_payload('"email" must be an address or an array of addresses', field="email")
    return texts


def _role(payload: Mapping[str, object]) -> str:
    said = text_of(payload, "role")
    try:
        return str(uuid.UUID(said))
    except ValueError:
        raise invalid_payload('"role" must be the id of a role', field="role", value=shown(said)) from None

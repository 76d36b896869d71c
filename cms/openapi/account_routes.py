"""The routes of logins, sessions, accounts and rights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cms.openapi.json_schemas import (
    EMAIL,
    FLAG,
    INTEGER,
    OBJECT,
    TEXT,
    UUID,
    any_of,
    array_of,
    described,
    nullable,
    object_of,
    one_of_texts,
    texts,
)
from cms.openapi.operation import JSON, Answer, Body, PathItem, data, json_body, read, send, write
from cms.schema.system import choices_of

_MODES = choices_of("system_sessions", "mode")
_MODE = one_of_texts(_MODES)
_PASSWORD = described(TEXT, "A password.")
_TOKENS = data(
    object_of({"expires": INTEGER}, {"access_token": TEXT, "refresh_token": TEXT}),
    "The tokens, as far as the mode puts them into the body; `expires` is in milliseconds.",
)
_SESSION = json_body(object_of(optional={"refresh_token": TEXT, "mode": _MODE}), is_required=False)
_REDIRECT = Answer("The browser goes on to another page.", status=302)
_OTHER_LOGINS = Answer(
    "The ways to log in besides the password.",
    {JSON: object_of({"data": array_of(OBJECT), "disableDefault": FLAG})},
)
_LOGIN = object_of(
    {"password": _PASSWORD},
    {
        "email": TEXT,
        "identifier": TEXT,
        "otp": TEXT,
        "mode": one_of_texts((*_MODES, "ldap")),
    },
)
_ABILITIES = data(OBJECT, "What the caller may do, by collection and action.")

ACCOUNT_ROUTES: Mapping[str, PathItem] = MappingProxyType(
    {
        "/auth": {"get": read("List the login providers", _OTHER_LOGINS)},
        "/auth/login": {"post": send("Log in", _LOGIN, _TOKENS)},
        "/auth/login/{provider}": {
            "get": read("Log in by another service", _REDIRECT, parameters=("redirect",)),
            "post": send(
                "Log in by a directory, or confirm a login with a second factor",
                object_of(
                    optional={
                        "identifier": TEXT,
                        "email": TEXT,
                        "password": _PASSWORD,
                        "otp": TEXT,
                        "mode": _MODE,
                    }
                ),
                _TOKENS,
            ),
        },
        "/auth/login/{provider}/callback": {
            "get": read(
                "Finish a login by another service",
                _TOKENS,
                _REDIRECT,
                parameters=("state", "code"),
            )
        },
        "/auth/login/{provider}/acs": {
            "post": send(
                "Take the answer of a provider of SAML",
                Body(
                    {
                        "application/x-www-form-urlencoded": texts(
                            "SAMLResponse", optional=("RelayState",)
                        )
                    }
                ),
                replace(_REDIRECT, status=303),
            )
        },
        "/auth/login/{provider}/metadata": {
            "get": read(
                "Describe this service to a provider of SAML",
                Answer("The description.", {"application/samlmetadata+xml": TEXT}),
            )
        },
        "/auth/login/{provider}/slo": {
            "get": read(
                "Log out at a provider of SAML",
                _REDIRECT,
                Answer("The sessions have ended.", status=204),
            )
        },
        "/auth/refresh": {"post": send("Refresh a session", _SESSION, _TOKENS)},
        "/auth/logout": {
            "post": send(
                "End a session",
                _SESSION,
                Answer("The session has ended.", status=204),
                data(texts("logout_url"), "The session has ended; the provider has one as well."),
                parameters=("all",),
            )
        },
        "/auth/password/request": {
            "post": send(
                "Mail a link that resets a password",
                object_of({"email": EMAIL}, {"reset_url": TEXT}),
            )
        },
        "/auth/password/reset": {"post": send("Set a password", texts("token", "password"))},
        "/users/invite": {
            "post": write(
                "Invite users by mail",
                object_of(
                    {"email": any_of(EMAIL, array_of(EMAIL)), "role": UUID}, {"invite_url": TEXT}
                ),
            )
        },
        "/users/invite/accept": {"post": write("Accept an invitation", texts("token", "password"))},
        "/users/register": {
            "post": write(
                "Register",
                object_of(
                    {"email": EMAIL, "password": _PASSWORD},
                    {"first_name": TEXT, "last_name": TEXT, "verification_url": TEXT},
                ),
            )
        },
        "/users/register/verify-email": {
            "get": read("Activate an account", data(texts("status")), parameters=("token",))
        },
        "/users/me/track/page": {
            "patch": write("Note the page that the current user has opened", texts("last_page"))
        },
        "/users/me/tfa/generate": {
            "post": send(
                "Make a secret for a second factor",
                object_of(optional={"password": nullable(_PASSWORD)}),
                data(texts("secret", "otpauth_url")),
            )
        },
        "/users/me/tfa/enable": {
            "post": write("Turn the second factor on", texts("secret", "otp"))
        },
        "/users/me/tfa/disable": {"post": write("Turn the second factor off", texts("otp"))},
        "/users/me/tfa/recovery-codes": {
            "post": write(
                "Make new recovery codes",
                object_of(optional={"password": nullable(_PASSWORD)}),
                data(array_of(TEXT)),
            )
        },
        "/permissions/me": {"get": read("Tell what the caller may do", _ABILITIES)},
        "/permissions/me/{collection}": {
            "get": read("Tell what the caller may do with a singleton", data(OBJECT))
        },
        "/permissions/me/{collection}/{key}": {
            "get": read("Tell what the caller may do with one item", data(OBJECT))
        },
        "/permissions/explain": {
            "get": read(
                "Explain the rights of a user",
                data(array_of(OBJECT)),
                parameters=("required_user", "collection", "action"),
                is_for_admins=True,
            )
        },
        "/shares/auth": {
            "post": send(
                "Log in by a share",
                object_of({"share": TEXT}, {"password": nullable(_PASSWORD), "mode": _MODE}),
                _TOKENS,
            )
        },
        "/shares/info/{key}": {"get": read("Tell what a share is of", data(OBJECT))},
        "/shares/invite": {
            "post": write(
                "Mail the link of a share",
                object_of({"share": TEXT, "emails": array_of(EMAIL)}, {"share_url": TEXT}),
            )
        },
    }
)

"""Logins by SAML 2.0: the request to the identity provider, its answer, and single logout.

python3-saml checks signatures and documents. It accepts answers without audience, recipient, end or
the id of the request; this module requires them.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from lxml.etree import LxmlError
from onelogin.saml2.auth import OneLogin_Saml2_Auth
from onelogin.saml2.constants import OneLogin_Saml2_Constants as Constants
from onelogin.saml2.errors import OneLogin_Saml2_Error, OneLogin_Saml2_ValidationError
from onelogin.saml2.idp_metadata_parser import OneLogin_Saml2_IdPMetadataParser
from onelogin.saml2.logout_request import OneLogin_Saml2_Logout_Request
from onelogin.saml2.response import OneLogin_Saml2_Response
from onelogin.saml2.settings import OneLogin_Saml2_Settings
from onelogin.saml2.xml_utils import OneLogin_Saml2_XML
from xmlsec import Error as XmlSecurityError
from xmlsec import Key, constants

from cms import jsontext
from cms.auth import tokens
from cms.config.providers import Provider
from cms.database.statements import statement
from cms.errors import Refused
from cms.sso.browser_login import BegunLogin, ConfirmedUser, LoginState, not_begun
from cms.sso.profile import Profile, profile_from_claims
from cms.sso.provider_errors import ProviderError, login_refused, provider_failed
from cms.sso.saml_security import check_security
from cms.store.store import Store

MAX_MESSAGE_BYTES = 1 << 20
MAX_REQUEST_ID = 200
"""Those of this service are far shorter."""
CLOCK_SKEW = timedelta(seconds=Constants.ALLOWED_CLOCK_DRIFT)
SESSION_LIFE = timedelta(days=365)
"""For the address that ends a session at the provider; the session may end long before."""

NAME_ID = "NameID"
"""The claim under which the NameID stands."""
_LOGOUT = "logout at a provider"
_REFUSALS = (
    OneLogin_Saml2_Error,
    OneLogin_Saml2_ValidationError,
    LxmlError,
    XmlSecurityError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
)
"""Errors that the libraries raise for malformed messages."""


class ServiceAddresses(NamedTuple):
    """The addresses of this service at which a provider answers."""

    entity: str
    answers: str
    finish: str
    logout: str

    @classmethod
    def of(cls, public_url: str, provider: str) -> ServiceAddresses:
        base = f"{public_url}/auth/login/{provider}"
        return cls(f"{base}/metadata", f"{base}/acs", f"{base}/callback", f"{base}/slo")


class EndedSession(NamedTuple):
    """The user whom a provider logs out, and the browser's next address; None for an answer."""

    name_id: str | None
    url: str | None


class SamlClient:
    """Logs users in at one identity provider."""

    def __init__(self, provider: Provider, store: Store, *, public_url: str, secret: str) -> None:
        self._provider = provider
        self._store = store
        self._secret = secret
        self.addresses = ServiceAddresses.of(public_url, provider.name)
        self._settings = OneLogin_Saml2_Settings(
            _toolkit_settings(provider, self.addresses), sp_validation_only=False
        )

    def begin(self, redirect: str | None) -> BegunLogin:
        """Return where a browser begins the login."""
        state = LoginState.begin(self._provider.name, redirect)
        exchange = self._exchange(self.addresses.answers)
        url = exchange.login(return_to=state.id)
        return BegunLogin(str(url), state._replace(request=exchange.get_last_request_id()))

    def take_answer(self, message: str) -> None:
        """Check an answer and keep what it says for the browser that began the login.

        Raises `Refused` INVALID_CREDENTIALS, also for an answer that came before, whichever machine
        took it, and SERVICE_UNAVAILABLE for one that does not say who the user is.
        """
        try:
            answer = self._checked_answer(message)
            request, end = _subject_of(answer, self.addresses)
            assertion = str(answer.get_assertion_id())
            expires = end + CLOCK_SKEW
            profile = profile_from_claims(self._provider, _claims_of(answer))
        except ProviderError as error:
            raise provider_failed(self._provider, error) from None
        except _REFUSALS as error:
            # The text of the libraries names elements and times, and the message of the status,
            # which anybody may have written: so only its beginning is logged.
            reason = str(error)[:200] or type(error).__name__
            raise login_refused(self._provider, reason) from None
        logout = {
            "name": answer.get_nameid(),
            "format": answer.get_nameid_format(),
            "index": answer.get_session_index(),
        }
        kept = {**asdict(profile), "logout": logout}
        values = (
            self._provider.name,
            assertion,
            request,
            jsontext.dumps(kept).decode(),
            expires,
        )
        if not self._store.database.fetch_primary(statement("keep_saml_answer"), values):
            raise login_refused(self._provider, "the answer was sent before")

    def confirmed_user(self, state: LoginState, answer: Mapping[str, str]) -> ConfirmedUser:
        """Return the user of the answer that was kept for a login, once."""
        rows = self._store.database.fetch_primary(
            statement("use_saml_answer"), (self._provider.name, state.request)
        )
        if not rows:
            raise not_begun()
        kept = cast(dict[str, Any], jsontext.loads_stored(rows[0][0]))
        logout_url = self._logout_url(kept.pop("logout"))
        kept["groups"] = tuple(kept["groups"])
        return ConfirmedUser(Profile(**kept), logout_url)

    def metadata(self) -> bytes:
        """Return the description of this service that a provider reads."""
        document = self._settings.get_sp_metadata()
        if isinstance(document, bytes):
            return document
        return str(document).encode()

    def renewed_token(self, token: str) -> str | None:
        """Return None: SAML has no refresh tokens."""

    def check(self) -> None:
        """Nothing can be asked of an identity provider: browsers carry all messages."""

    def reach(self) -> None:
        """Nothing can be asked, as for `check`."""

    # Single logout

    def logout_request_url(self, token: str) -> str:
        """Return where a browser ends the session at the provider, for the token of a session."""
        try:
            subject = tokens.read_signed(
                _LOGOUT, token, secret=self._secret, required=("provider", "name")
            )
        except Refused:
            raise not_begun() from None
        if subject["provider"] != self._provider.name:
            raise not_begun()
        url = self._exchange(self.addresses.logout).logout(
            name_id=subject["name"],
            session_index=subject.get("index"),
            name_id_format=subject.get("format"),
        )
        return str(url)

    def ended_session(self, parameters: Mapping[str, str]) -> EndedSession:
        """Return the session that a logout message ends; raises `Refused` INVALID_CREDENTIALS."""
        # The toolkit takes messages that nobody has signed.
        if "Signature" not in parameters or not _is_small(parameters):
            raise login_refused(self._provider, "a message of logout is not signed, or too long")
        exchange = self._exchange(self.addresses.logout, parameters)
        try:
            url = exchange.process_slo(keep_local_session=True)
            name = None
            if "SAMLRequest" in parameters and not exchange.get_errors():
                name = self._logged_out_name(exchange.get_last_request_xml())
        except _REFUSALS as error:
            raise login_refused(self._provider, str(error)[:200]) from None
        if exchange.get_errors():
            raise login_refused(self._provider, ", ".join(exchange.get_errors())[:200])
        return EndedSession(name, url)

    def _logged_out_name(self, message: str) -> str:
        """Return the NameID of a request of logout whose signature has been checked.

        Raises ValueError for a request to another address, or of another time: otherwise somebody
        who has seen one could send it again for ever.
        """
        request = OneLogin_Saml2_XML.to_etree(message)
        if request.get("Destination") != self.addresses.logout:
            raise ValueError("the request of logout is for another address")
        if abs(datetime.now(UTC) - _time(request.get("IssueInstant"))) > CLOCK_SKEW:
            raise ValueError("the request of logout is not of now")
        if self._provider.identifier_key != NAME_ID:
            raise ValueError("the users are not known by the NameID, which a logout names")
        key = self._settings.get_sp_key()
        return str(OneLogin_Saml2_Logout_Request.get_nameid(message, key))

    def _logout_url(self, subject: Mapping[str, Any]) -> str | None:
        if not self._settings.get_idp_slo_url():
            return None
        claims = {**subject, "provider": self._provider.name}
        token = tokens.sign(_LOGOUT, claims, secret=self._secret, life=SESSION_LIFE)
        return f"{self.addresses.logout}?session={token}"

    # The toolkit

    def _exchange(
        self, address: str, parameters: Mapping[str, str] | None = None
    ) -> OneLogin_Saml2_Auth:
        return OneLogin_Saml2_Auth(_request_at(address, parameters or {}), self._settings)

    def _checked_answer(self, message: str) -> OneLogin_Saml2_Response:
        if len(message) > MAX_MESSAGE_BYTES:
            raise ValueError("the answer is too long")
        # This comes first, because the constructor decrypts.
        check_security(OneLogin_Saml2_XML.to_etree(base64.b64decode(message)))
        answer = OneLogin_Saml2_Response(self._settings, message)
        if answer.decrypted_document is not None:
            check_security(answer.decrypted_document)
        answer.is_valid(_request_at(self.addresses.answers, {}), raise_exceptions=True)
        # The toolkit takes every address that begins with this one.
        if answer.document.get("Destination", self.addresses.answers) != self.addresses.answers:
            raise ValueError("the answer is for another address")
        return answer


def _toolkit_settings(provider: Provider, addresses: ServiceAddresses) -> Mapping[str, Any]:
    """Return the toolkit's settings; raises `ProviderError` for metadata that cannot be read."""
    try:
        idp = OneLogin_Saml2_IdPMetadataParser.parse(
            provider.idp_metadata,
            required_sso_binding=Constants.BINDING_HTTP_REDIRECT,
            required_slo_binding=Constants.BINDING_HTTP_REDIRECT,
        )["idp"]
    except _REFUSALS as error:
        variable = provider.variable_name("idp_metadata")
        raise ProviderError(f"{variable} is no metadata ({type(error).__name__})") from None
    has_certificate = "x509cert" in idp or idp.get("x509certMulti", {}).get("signing")
    if "singleSignOnService" not in idp or not has_certificate:
        variable = provider.variable_name("idp_metadata")
        raise ProviderError(f"{variable} has no certificate, or names no address by HTTP-Redirect")
    _check_keys(provider)
    signs = bool(provider.sp_private_key)
    return {
        "strict": True,
        "sp": {
            "entityId": _entity_of(provider) or addresses.entity,
            "assertionConsumerService": {
                "url": addresses.answers,
                "binding": Constants.BINDING_HTTP_POST,
            },
            "singleLogoutService": {
                "url": addresses.logout,
                "binding": Constants.BINDING_HTTP_REDIRECT,
            },
            "NameIDFormat": Constants.NAMEID_UNSPECIFIED,
            "x509cert": provider.sp_certificate,
            "privateKey": provider.sp_private_key,
        },
        "idp": idp,
        "security": {
            "authnRequestsSigned": signs,
            "logoutRequestSigned": signs,
            "logoutResponseSigned": signs,
            "wantAttributeStatement": False,
            "requestedAuthnContext": False,
            "rejectDeprecatedAlgorithm": True,
            # Some providers send an attribute once for each value.
            "allowRepeatAttributeName": True,
            "signatureAlgorithm": Constants.RSA_SHA256,
            "digestAlgorithm": Constants.SHA256,
        },
    }


def _check_keys(provider: Provider) -> None:
    """Raise `ProviderError` for a key or a certificate that cannot be used."""
    kinds = {
        "sp_private_key": constants.KeyDataFormatPem,
        "sp_certificate": constants.KeyDataFormatCertPem,
    }
    for option, kind in kinds.items():
        text = getattr(provider, option)
        try:
            if text:
                Key.from_memory(text, kind)
        except _REFUSALS:
            raise ProviderError(f"{provider.variable_name(option)} is not PEM") from None


def _entity_of(provider: Provider) -> str | None:
    """Return the name that the metadata of this service gives it."""
    if not provider.sp_metadata:
        return None
    try:
        name = OneLogin_Saml2_XML.to_etree(provider.sp_metadata).get("entityID")
    except _REFUSALS as error:
        variable = provider.variable_name("sp_metadata")
        raise ProviderError(f"{variable} is no metadata ({type(error).__name__})") from None
    return str(name) if name else None


def _request_at(address: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a request as the toolkit wants it: at the public address, whatever proxies say."""
    parts = urlsplit(address)
    return {
        "https": "on" if parts.scheme == "https" else "off",
        "http_host": parts.netloc,
        "script_name": parts.path,
        "get_data": dict(parameters),
        "post_data": {},
    }


def _subject_of(
    answer: OneLogin_Saml2_Response, addresses: ServiceAddresses
) -> tuple[str, datetime]:
    """Return the request that the one confirmed subject answers, and until when it counts.

    Raises ValueError if a required value is missing.
    """
    request = answer.get_in_response_to()
    if not request or len(request) > MAX_REQUEST_ID:
        raise ValueError("nobody has asked for the answer")
    if not answer.get_audiences():
        raise ValueError("the assertion names no audience")
    path = "/saml:Subject/saml:SubjectConfirmation/saml:SubjectConfirmationData"
    # If only the assertion is signed, nothing else says which request the answer belongs to.
    # The toolkit's own way to the assertion whose signature it has checked.
    for data in answer._query_assertion(path):
        end = data.get("NotOnOrAfter")
        is_for_this = data.get("InResponseTo") == request
        if end and is_for_this and data.get("Recipient") == addresses.answers:
            return request, _time(end)
    raise ValueError("no subject is confirmed for this address, this request and a time")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _claims_of(answer: OneLogin_Saml2_Response) -> Mapping[str, object]:
    """Return the attributes as claims: a list for several values, else the value."""
    claims: dict[str, object] = {}
    # Friendly names first, so that they hide no full name.
    for attributes in (answer.get_friendlyname_attributes(), answer.get_attributes()):
        for name, values in attributes.items():
            claims[name] = values[0] if len(values) == 1 else list(values)
    claims[NAME_ID] = answer.get_nameid()
    # The organisation vouches for what its own directory says.
    claims["email_verified"] = True
    return claims


def _is_small(parameters: Mapping[str, str]) -> bool:
    """Tell whether the messages are small once they are unpacked."""
    for name in ("SAMLRequest", "SAMLResponse"):
        try:
            packed = base64.b64decode(parameters.get(name, ""))
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
            unpacker.decompress(packed, MAX_MESSAGE_BYTES)
        except (zlib.error, binascii.Error, ValueError):
            return False
        if unpacker.unconsumed_tail:
            return False
    return True

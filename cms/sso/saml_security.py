"""The parts of XML signatures and XML encryption that answers of SAML may use.

The library for both does much more than SAML needs, and does it before it checks a signature: it
reads files that a message names, and evaluates expressions that take hours. So a message may use
only the features listed here (SAML 2.0 Core, sections 5.4 and 6).
"""

from __future__ import annotations

import re
from typing import Any

_DS = "http://www.w3.org/2000/09/xmldsig#"
_DS_MORE = "http://www.w3.org/2001/04/xmldsig-more#"
_DS_PSS = "http://www.w3.org/2007/05/xmldsig-more#"
_ENC = "http://www.w3.org/2001/04/xmlenc#"
_ENC_11 = "http://www.w3.org/2009/xmlenc11#"
_EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
_INCLUSIVE = "http://www.w3.org/TR/2001/REC-xml-c14n-20010315"
_DS_11 = "http://www.w3.org/2009/xmldsig11#"

# fmt: off
_NAMES = {
    _DS: frozenset(
        {
            "Signature", "SignedInfo", "CanonicalizationMethod", "SignatureMethod", "Reference",
            "Transforms", "Transform", "DigestMethod", "DigestValue", "SignatureValue",
            "KeyInfo", "KeyName", "KeyValue", "RSAKeyValue", "Modulus", "Exponent",
            "X509Data", "X509Certificate", "X509SubjectName", "X509IssuerSerial",
            "X509IssuerName", "X509SerialNumber", "X509SKI", "RetrievalMethod",
        }
    ),
    _ENC: frozenset(
        {
            "EncryptedData", "EncryptedKey", "EncryptionMethod", "OAEPparams", "CipherData",
            "CipherValue", "ReferenceList", "DataReference", "CarriedKeyName",
        }
    ),
    _ENC_11: frozenset({"MGF"}),
    _EXCLUSIVE: frozenset({"InclusiveNamespaces"}),
    _DS_11: frozenset[str](),
}
# fmt: on
"""The elements that a message may have, by their namespaces; of other namespaces, all."""

_HASHES = ("sha256", "sha384", "sha512")
_DIGESTS = frozenset({f"{_ENC}sha256", f"{_DS_MORE}sha384", f"{_ENC}sha512"})
_SIGNATURES = frozenset(
    {f"{_DS_MORE}{kind}-{name}" for kind in ("rsa", "ecdsa") for name in _HASHES}
    | {f"{_DS_PSS}{name}-rsa-MGF1" for name in _HASHES}
)
_EXCLUSIVE_FORMS = frozenset({_EXCLUSIVE, f"{_EXCLUSIVE}WithComments"})
_ALGORITHMS = {
    "CanonicalizationMethod": _EXCLUSIVE_FORMS | {_INCLUSIVE, f"{_INCLUSIVE}#WithComments"},
    "Transform": _EXCLUSIVE_FORMS | {f"{_DS}enveloped-signature"},
    "SignatureMethod": _SIGNATURES,
    "EncryptionMethod": frozenset(
        {f"{_ENC}aes{bits}-cbc" for bits in (128, 192, 256)}
        | {f"{_ENC_11}aes{bits}-gcm" for bits in (128, 192, 256)}
        | {f"{_ENC}rsa-oaep-mgf1p", f"{_ENC_11}rsa-oaep"}
    ),
    "MGF": frozenset({f"{_ENC_11}mgf1{name}" for name in ("sha1", *_HASHES)}),
}
"""The algorithms of each element that names one; `DigestMethod` depends on what it stands in."""

_PLAIN_REFERENCE = re.compile(r"#[\w.-]+")
_MAX_TRANSFORMS = 2


def check_security(document: Any) -> None:
    """Raise ValueError for an element or algorithm that no answer needs, and for odd signatures."""
    for element in document.iter():
        # Comments and the like have functions for tags.
        if isinstance(element.tag, str):
            namespace, _, name = element.tag.rpartition("}")
            allowed = _NAMES.get(namespace[1:])
            if allowed is not None:
                _check_element(element, name, allowed)
    for signature in document.iter(f"{{{_DS}}}Signature"):
        _check_signature(signature)


def _check_element(element: Any, name: str, allowed: frozenset[str]) -> None:
    if name not in allowed:
        raise ValueError(f"{name} is not for answers of SAML")
    # Neither a file nor an expression.
    if not _PLAIN_REFERENCE.fullmatch(element.get("URI", "#_")):
        raise ValueError(f"{name} names no element of the document")
    algorithms = _ALGORITHMS.get(name)
    if name == "DigestMethod":
        algorithms = _digests_in(element.getparent())
    if algorithms is not None and element.get("Algorithm") not in algorithms:
        raise ValueError(f"{name} names an algorithm that is not taken")


def _digests_in(parent: Any) -> frozenset[str]:
    # In the padding of encryption SHA-1 is the default, and does no harm.
    if parent is not None and parent.tag == f"{{{_ENC}}}EncryptionMethod":
        return _DIGESTS | {f"{_DS}sha1"}
    return _DIGESTS


def _check_signature(signature: Any) -> None:
    """Raise ValueError unless a signature is over the whole element that it stands in."""
    parent = signature.getparent()
    references = list(signature.iter(f"{{{_DS}}}Reference"))
    identifier = None if parent is None else parent.get("ID")
    if len(references) != 1 or not identifier or references[0].get("URI") != f"#{identifier}":
        raise ValueError("a signature is not that of the element around it")
    if len(list(signature.iter(f"{{{_DS}}}Transform"))) > _MAX_TRANSFORMS:
        raise ValueError("a signature has too many transforms")

"""What an answer of SAML may have in it of signatures and encryption is listed; all else is refused
before anything is computed.
"""

from __future__ import annotations

import re

import pytest
from lxml import etree

from cms.sso.saml_security import check_security

DS = "http://www.w3.org/2000/09/xmldsig#"
ENC = "http://www.w3.org/2001/04/xmlenc#"
ENC_11 = "http://www.w3.org/2009/xmlenc11#"
EXCLUSIVE = "http://www.w3.org/2001/10/xml-exc-c14n#"
RSA_SHA256 = "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256"
SIGNED = f"""
<r ID="a"><Signature xmlns="{DS}"><SignedInfo>
<CanonicalizationMethod Algorithm="{EXCLUSIVE}"/><SignatureMethod Algorithm="{RSA_SHA256}"/>
<Reference URI="#a"><Transforms><Transform Algorithm="{DS}enveloped-signature"/>
<Transform Algorithm="{EXCLUSIVE}"><c:InclusiveNamespaces xmlns:c="{EXCLUSIVE}" PrefixList="x"/>
</Transform></Transforms><DigestMethod Algorithm="{ENC}sha256"/><DigestValue>x</DigestValue>
</Reference></SignedInfo><SignatureValue>x</SignatureValue>
<KeyInfo><X509Data><X509Certificate>x</X509Certificate></X509Data></KeyInfo></Signature></r>"""
ENCRYPTED = f"""
<r><EncryptedData xmlns="{ENC}"><EncryptionMethod Algorithm="{ENC_11}aes256-gcm"/>
<k:KeyInfo xmlns:k="{DS}"><EncryptedKey Id="k"><EncryptionMethod Algorithm="{ENC}rsa-oaep-mgf1p">
<k:DigestMethod Algorithm="{DS}sha1"/></EncryptionMethod><CipherData><CipherValue>x</CipherValue>
</CipherData></EncryptedKey><k:RetrievalMethod URI="#k"/></k:KeyInfo>
<CipherData><CipherValue>x</CipherValue></CipherData></EncryptedData></r>"""
XPATH = f"""<Transform Algorithm="http://www.w3.org/TR/1999/REC-xpath-19991116">
<XPath xmlns="{DS}">count(//*)</XPath></Transform>"""

ATTACKS = [
    (SIGNED, 'URI="#a"', 'URI="file:///etc/passwd"'),
    (SIGNED, 'URI="#a"', 'URI="http://127.0.0.1/"'),
    (SIGNED, 'URI="#a"', 'URI=""'),
    (SIGNED, 'URI="#a"', ""),
    (SIGNED, 'URI="#a"', 'URI="#b"'),
    (SIGNED, 'URI="#a"', 'URI="#xpointer(//*)"'),
    (SIGNED, 'ID="a"', ""),
    (SIGNED, "</SignedInfo>", '<Reference URI="#a"/></SignedInfo>'),
    (SIGNED, "<SignatureValue>", "<Object><Manifest/></Object><SignatureValue>"),
    (SIGNED, "<Transforms>", f"<Transforms>{XPATH}"),
    (SIGNED, "<Transforms>", f'<Transforms><Transform Algorithm="{EXCLUSIVE}"/>'),
    (SIGNED, f"{DS}enveloped-signature", "http://www.w3.org/TR/1999/REC-xslt-19991116"),
    (SIGNED, RSA_SHA256, f"{DS}rsa-sha1"),
    (SIGNED, RSA_SHA256, f"{DS}hmac-sha1"),
    (SIGNED, RSA_SHA256, "http://www.w3.org/2001/04/xmldsig-more#ecdsa-sha1"),
    (SIGNED, f"{ENC}sha256", f"{DS}sha1"),
    (SIGNED, f'Algorithm="{RSA_SHA256}"', ""),
    (SIGNED, "<KeyInfo>", '<KeyInfo><RetrievalMethod URI="file:///etc/passwd"/>'),
    (
        SIGNED,
        "<KeyInfo>",
        '<KeyInfo><DEREncodedKeyValue xmlns="http://www.w3.org/2009/xmldsig11#"/>',
    ),
    (ENCRYPTED, "<CipherValue>x</CipherValue>", '<CipherReference URI="file:///etc/passwd"/>'),
    (ENCRYPTED, "#k", "#xpointer(//*)"),
    (ENCRYPTED, f"{ENC}rsa-oaep-mgf1p", f"{ENC}rsa-1_5"),
    (ENCRYPTED, f"{ENC_11}aes256-gcm", f"{ENC}tripledes-cbc"),
    (ENCRYPTED, '<EncryptedKey Id="k">', f'<DerivedKey xmlns="{ENC_11}"/><EncryptedKey Id="k">'),
]


@pytest.mark.parametrize("text", [SIGNED, ENCRYPTED, "<r><!-- x --><?x y?></r>"])
def test_what_answers_have_is_taken(text: str) -> None:
    check_security(etree.fromstring(text))


@pytest.mark.parametrize(("text", "part", "replacement"), ATTACKS)
def test_anything_else_is_refused(text: str, part: str, replacement: str) -> None:
    assert part in text
    changed = re.sub(re.escape(part), lambda _: replacement, text, count=1)
    with pytest.raises(ValueError, match=r"."):
        check_security(etree.fromstring(changed))

// An identity provider of SAML, made of samlp: `node identity_provider.cjs KEY CERTIFICATE`.
// It prints its port, logs everybody in as the user of its options, and takes new options by POST /options.
"use strict";
const fs = require("fs");
const express = require("express");
const samlp = require("samlp");

const [key, cert] = process.argv.slice(2).map((path) => fs.readFileSync(path, "utf8"));
const ISSUER = "urn:test:idp";
let current = {};

class Claims {
  constructor(user) {
    this.user = user;
  }
  getClaims() {
    return this.user.attributes;
  }
  getNameIdentifier() {
    return { nameIdentifier: this.user.id, nameIdentifierFormat: this.user.format };
  }
}

const app = express();
app.use(express.json({ limit: "1mb" }));
app.post("/options", (request, response) => {
  current = request.body;
  response.sendStatus(204);
});
app.get("/metadata", samlp.metadata({ issuer: ISSUER, cert, redirectEndpointPath: "/sso", postEndpointPath: "/sso", logoutEndpointPaths: { redirect: "/slo" } }));
app.get("/sso", (request, response, next) => {
  samlp.auth({
    issuer: ISSUER,
    key,
    cert,
    checkSignature: Boolean(current.requestCert),
    signatureNamespacePrefix: "ds",
    signingCert: current.requestCert,
    profileMapper: (user) => new Claims(user),
    getUserFromRequest: () => current.user,
    recipient: current.acs,
    destination: current.acs,
    getPostURL: (audience, dom, incoming, done) => done(null, current.acs),
    sessionIndex: "_session_1",
    ...current.saml,
  })(request, response, next);
});
app.get("/slo", (request, response) => {
  response.json({ seen: Object.keys(request.query) });
});
app.use((error, request, response, next) => {
  response.status(500).type("text").send(String(error));
});
const server = app.listen(0, "127.0.0.1", () => console.log(server.address().port));

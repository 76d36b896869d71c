// Runs oidc-provider, a certified OpenID Connect provider, for the tests.
//
// Each line of standard input is JSON: {clients, keys, accounts, port}. The first starts a provider
// on this port of the loopback address, 0 for any; the next ones put another provider, with other
// keys, clients or accounts, on the same port. Each is answered with a line {"issuer"}.

import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

const HOST = "127.0.0.1";
const SCOPE = "openid profile email groups";

let handle = null;
const server = createServer((request, response) => handle(request, response));

function configuration({ clients, keys, accounts }) {
  return {
    clients,
    jwks: { keys },
    claims: {
      openid: ["sub"],
      email: ["email", "email_verified"],
      profile: ["given_name", "family_name"],
      groups: ["groups"],
    },
    scopes: SCOPE.split(" "),
    pkce: { required: () => true },
    features: {
      devInteractions: { enabled: false },
      rpInitiatedLogout: { enabled: true },
    },
    enabledJWA: { idTokenSigningAlgValues: ["RS256", "ES256", "PS256"] },
    // Each serves once: whoever brings it again has lost the grant.
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    rotateRefreshToken: true,
    cookies: { keys: ["only-for-tests"] },
    ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, RefreshToken: 600, Session: 600 },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) =>
      id in accounts ? { accountId: id, claims: () => ({ sub: id, ...accounts[id] }) } : undefined,
    // Nobody is asked for consent.
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({
        clientId: oidc.client.clientId,
        accountId: oidc.session.accountId,
      });
      grant.addOIDCScope(SCOPE);
      await grant.save();
      return grant;
    },
  };
}

async function bodyOf(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return new URLSearchParams(Buffer.concat(chunks).toString());
}

/** The page where users log in: a form with the id of an account; without one they refuse. */
async function interact(provider, request, response) {
  await provider.interactionDetails(request, response);
  if (request.method !== "POST") {
    response.setHeader("Content-Type", "text/html");
    response.end('<form method="post"><input name="account"></form>');
    return;
  }
  const accountId = (await bodyOf(request)).get("account");
  const result = accountId ? { login: { accountId } } : { error: "access_denied" };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

/** A description of the user as some OAuth 2 services have it: for any token, and with a number as id. */
async function profile(provider, accounts, request, response) {
  const value = (request.headers.authorization ?? "").replace(/^Bearer /, "");
  const token = await provider.AccessToken.find(value);
  response.setHeader("Content-Type", "application/json");
  if (!token) {
    response.statusCode = 401;
    response.end('{"message": "Bad credentials"}');
    return;
  }
  response.end(JSON.stringify(accounts[token.accountId].profile ?? {}));
}

function start(settings, port) {
  const issuer = `http://${HOST}:${port}`;
  const provider = new Provider(issuer, configuration(settings));
  const rest = provider.callback();
  handle = async (request, response) => {
    try {
      if (request.url.startsWith("/interaction/")) await interact(provider, request, response);
      else if (request.url === "/profile") await profile(provider, settings.accounts, request, response);
      else await rest(request, response);
    } catch (error) {
      response.statusCode = 500;
      response.end(String(error));
    }
  };
  console.log(JSON.stringify({ issuer }));
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const settings = JSON.parse(line);
  if (server.listening) start(settings, server.address().port);
  else server.listen(settings.port, HOST, () => start(settings, server.address().port));
}).on("close", () => process.exit(0));

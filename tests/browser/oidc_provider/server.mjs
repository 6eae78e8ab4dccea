// An OpenID Connect provider on loopback: `node server.mjs PORT REDIRECT_URI ACCOUNTS_FILE`.
// It requires PKCE. The JSON file maps names to claims and is read at each sign-in, so that tests can change groups.
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";

import { Provider } from "oidc-provider";

const [port, redirectUri, accountsFile] = process.argv.slice(2);
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: "test" };

function findAccount(_context, id) {
  const claims = JSON.parse(readFileSync(accountsFile, "utf8"))[id];
  return claims && { accountId: id, claims: () => ({ sub: id, ...claims }) };
}

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: "gymweb", client_secret: "a-secret-of-the-test", redirect_uris: [redirectUri] }],
  claims: { openid: ["sub", "groups"], profile: ["preferred_username"], email: ["email", "email_verified"] },
  cookies: { keys: [randomBytes(32).toString("hex")] },
  findAccount,
  jwks: { keys: [key] },
  pkce: { required: () => true },
});
provider.listen(Number(port), "127.0.0.1");

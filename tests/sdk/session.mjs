// A client of the SDK with an administrator's rights, and what the parts need of it. It notes which commands run.
// Arguments: the package of the SDK, the address of the service, an administrator's address and password,
// the service's log, in which its mails are.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';

const [, , packageName, address, administrator, secret, logFile] = process.argv;
export const sdk = await import(packageName);
export const url = address;
export const email = administrator;
export const password = secret;

/** The names of all commands that were sent. */
export const sent = new Set();

/** Whether this version takes the arguments of a login in an object: from 20 on it does. */
const takesObjects = sdk.login.length === 1;
const credentials = (address, text) => (takesObjects ? [{ email: address, password: text }] : [address, text]);

/** Log a client in by address and password. */
export const logIn = (user, address, text, ...options) => user.login(...credentials(address, text), ...options);

/** The arguments of the commands of logins, as this version takes them. */
export const forLogin = (address, text, mode) => [...credentials(address, text), { mode }];
export const forRefresh = (mode, token) => (takesObjects ? [{ mode, refresh_token: token }] : [mode, token]);
export const forLogout = (mode, token) => (takesObjects ? [{ mode, refresh_token: token }] : [token, mode]);

/** A client for a login of its own; a timer to refresh it would keep this process alive. */
export const newClient = () =>
  sdk.createDirectus(url).with(sdk.authentication('json', { autoRefresh: false })).with(sdk.rest());

export const client = sdk.createDirectus(url).with(sdk.authentication('json')).with(sdk.rest());
await logIn(client, email, password);

/** The command of this name; a wrapper such as withToken is noted by its own name. */
export function command(name, ...args) {
  sent.add(name);
  return sdk[name](...args);
}

export const ask = (name, ...args) => client.request(command(name, ...args));
export const askAs = (user, name, ...args) => user.request(command(name, ...args));
export const has = (name) => name in sdk;

/** An error of the service with this code is the answer to a command. */
export async function refused(code, name, ...args) {
  await assert.rejects(ask(name, ...args), (error) => {
    assert.equal(error.errors?.[0]?.extensions.code, code, JSON.stringify(error));
    return true;
  });
}

assert.partialEqual = (actual, expected) =>
  assert.deepEqual(Object.fromEntries(Object.keys(expected).map((key) => [key, actual[key]])), expected);

let tables = 0;

export async function table(...fields) {
  const collection = `sdk_things_${++tables}`;
  await ask('createCollection', {
    collection,
    meta: { sort_field: 'position' },
    schema: {},
    fields: [
      { field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } },
      { field: 'title', type: 'string' },
      { field: 'position', type: 'integer' },
      ...fields,
    ],
  });
  return collection;
}

/** Create, read, change and delete rows by the commands of one collection of the service. */
export async function lifecycle(name, plural, body, change, otherBody = body) {
  const one = await ask(`create${name}`, body);
  const [other] = await ask(`create${plural}`, [otherBody]);
  assert.notEqual(one.id, other.id);
  assert.partialEqual(await ask(`read${name}`, one.id), body);
  const list = await ask(`read${plural}`, { filter: { id: { _in: [one.id, other.id] } }, sort: ['id'] });
  assert.equal(list.length, 2);
  const changed = await ask(`update${name}`, one.id, change, { fields: ['id', ...Object.keys(change)] });
  assert.deepEqual(changed, { id: one.id, ...change });
  assert.equal((await ask(`update${plural}`, [one.id, other.id], change)).length, 2);
  if (has(`update${plural}Batch`)) {
    await ask(`update${plural}Batch`, [{ id: one.id, ...change }, { id: other.id, ...change }]);
  }
  await ask(`delete${name}`, one.id);
  await ask(`delete${plural}`, [other.id]);
  await refused('NOT_FOUND', `read${name}`, one.id);
}


/** The token of the link in the last mail to somebody, once it is in the log. */
export async function mailedToken(recipient) {
  for (let tries = 0; tries < 300; tries += 1) {
    const lines = (await readFile(logFile, 'utf8')).split('\n').filter((line) => line.includes(`mail to ${recipient}`));
    const token = lines.at(-1)?.match(/[?&]token=([\w.~-]+)/)?.[1];
    if (token) return token;
    await pause(100);
  }
  throw new Error(`no mail came to ${recipient}`);
}

/** The code of an authenticator app (RFC 6238); `steps` are half minutes from now. */
export function oneTimeCode(base32, steps = 0) {
  const bits = [...base32].map((letter) => 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'.indexOf(letter).toString(2).padStart(5, '0'));
  const key = Buffer.from(bits.join('').match(/.{8}/g).map((byte) => parseInt(byte, 2)));
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 30_000) + steps));
  const digest = createHmac('sha1', key).update(counter).digest();
  const code = digest.readUInt32BE(digest.at(-1) & 15) & 0x7fffffff;
  return String(code % 1_000_000).padStart(6, '0');
}

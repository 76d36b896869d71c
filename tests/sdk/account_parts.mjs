// People: logins, accounts by mail, second factors, roles and permissions; and the rows, files and shares of them.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import {
  ask, askAs, email, forLogin, forLogout, forRefresh, has, lifecycle, logIn, mailedToken, newClient, oneTimeCode,
  password, refused, sdk, table, url,
} from './session.mjs';

const SECRET = 'a secret that is long enough';
const anonymous = sdk.createDirectus(url).with(sdk.rest());
let people = 0;

/** Make a role whose users may read and change users; return its key. */
async function newRole() {
  const { id: role } = await ask('createRole', { name: `Role ${++people}` });
  for (const action of ['read', 'update']) {
    await ask('createPermission', { role, collection: 'system_users', action, permissions: {}, fields: ['*'] });
  }
  return role;
}

/** Make a user who may log in; return the address. */
async function newPerson(role = null) {
  const address = `person-${++people}@example.com`;
  await ask('createUser', { email: address, password: SECRET, role });
  return address;
}

async function loggedIn(address) {
  const user = newClient();
  await logIn(user, address, SECRET);
  return user;
}

const BYTES = Uint8Array.of(0, 255, 1, 254);

/** An upload; what the SDK reads as text would not come as bytes. */
function upload(title) {
  const form = new FormData();
  form.append('title', title);
  form.append('file', new Blob([BYTES], { type: 'application/octet-stream' }), `${title}.bin`);
  return form;
}

const hasBytes = (buffer) => assert.deepEqual(new Uint8Array(buffer), BYTES);

export const parts = {
  async logins() {
    const tokens = await askAs(anonymous, 'login', ...forLogin(email, password, 'json'));
    assert.ok(tokens.access_token && tokens.refresh_token && tokens.expires > 0);
    const renewed = await askAs(anonymous, 'refresh', ...forRefresh('json', tokens.refresh_token));
    assert.notEqual(renewed.refresh_token, tokens.refresh_token);
    await askAs(anonymous, 'logout', ...forLogout('json', renewed.refresh_token));
    await assert.rejects(askAs(anonymous, 'refresh', ...forRefresh('json', renewed.refresh_token)));
    assert.deepEqual(await ask('readProviders'), []);
  },

  async password_resets() {
    const address = await newPerson(await newRole());
    await askAs(anonymous, 'passwordRequest', address);
    await askAs(anonymous, 'passwordReset', await mailedToken(address), `${SECRET} 2`);
    const user = newClient();
    await logIn(user, address, `${SECRET} 2`);
    assert.equal((await askAs(user, 'readMe', { fields: ['email'] })).email, address);
  },

  async invitations() {
    await ask('inviteUser', 'guest@example.com', await newRole());
    await askAs(anonymous, 'acceptUserInvite', await mailedToken('guest@example.com'), SECRET);
    await loggedIn('guest@example.com');
  },

  async registrations() {
    const terms = { public_registration: true, public_registration_verify_email: true };
    await ask('updateSettings', { ...terms, public_registration_role: await newRole() });
    await askAs(anonymous, 'registerUser', 'new@example.com', SECRET, { first_name: 'New' });
    await askAs(anonymous, 'registerUserVerify', await mailedToken('new@example.com'));
    const user = await loggedIn('new@example.com');
    assert.equal((await askAs(user, 'readMe', { fields: ['first_name'] })).first_name, 'New');
  },

  async second_factors() {
    const address = await newPerson();
    const user = await loggedIn(address);
    const { secret, otpauth_url: link } = await askAs(user, 'generateTwoFactorSecret', SECRET);
    assert.match(link, /^otpauth:\/\/totp\//);
    await askAs(user, 'enableTwoFactor', secret, oneTimeCode(secret, -1));
    await assert.rejects(logIn(newClient(), address, SECRET));
    await logIn(newClient(), address, SECRET, { otp: oneTimeCode(secret) });
    await askAs(user, 'disableTwoFactor', oneTimeCode(secret, 1));
    await loggedIn(address);
  },

  async users() {
    const body = { email: 'one@example.com', first_name: 'Ann' };
    await lifecycle('User', 'Users', body, { first_name: 'Bea' }, { ...body, email: 'two@example.com' });
    const user = await loggedIn(await newPerson(await newRole()));
    const changed = await askAs(user, 'updateMe', { first_name: 'Cid' }, { fields: ['first_name'] });
    assert.deepEqual(changed, { first_name: 'Cid' });
  },

  async roles() {
    await lifecycle('Role', 'Roles', { name: 'Editors', icon: 'edit' }, { name: 'Writers' });
  },

  async permissions() {
    const collection = await table();
    const role = await newRole();
    const body = { role, collection, action: 'read', permissions: {}, fields: ['*'] };
    await lifecycle('Permission', 'Permissions', body, { fields: ['id'] }, { ...body, action: 'update' });
    await ask('createItem', collection, { title: 'a' });
    await ask('createPermission', body);
    const user = await loggedIn(await newPerson(role));
    const item = await askAs(user, 'readItemPermissions', collection, 1);
    assert.equal(item.update.access, false);
    if (has('readUserPermissions')) {
      const rights = (await askAs(user, 'readUserPermissions'))[collection];
      assert.deepEqual([rights.read.access, rights.update.access], ['full', 'none']);
    }
  },

  async folders() {
    await lifecycle('Folder', 'Folders', { name: 'Pictures' }, { name: 'Photos' });
  },

  async files() {
    const one = await ask('uploadFiles', upload('one'));
    assert.partialEqual(one, { title: 'one', type: 'application/octet-stream', filename_download: 'one.bin' });
    const other = await ask('uploadFiles', upload('other'));
    const keys = [one.id, other.id];
    assert.equal((await ask('readFile', one.id)).title, 'one');
    assert.equal((await ask('readFiles', { filter: { id: { _in: keys } } })).length, 2);
    assert.equal((await ask('updateFile', one.id, { title: 'changed' })).title, 'changed');
    const titles = (files) => files.map(({ title }) => title);
    assert.deepEqual(titles(await ask('updateFiles', keys, { title: 'both' })), ['both', 'both']);
    const batch = keys.map((id, number) => ({ id, title: `number ${number}` }));
    assert.deepEqual(titles(await ask('updateFilesBatch', batch)), ['number 0', 'number 1']);
    hasBytes(await ask('readAssetArrayBuffer', one.id));
    hasBytes(await (await ask('readAssetBlob', one.id)).arrayBuffer());
    hasBytes(await new Response(await ask('readAssetRaw', one.id)).arrayBuffer());
    await ask('deleteFile', one.id);
    await ask('deleteFiles', [other.id]);
    await refused('NOT_FOUND', 'readFile', one.id);
  },

  async file_imports() {
    const server = createServer((request, response) => response.setHeader('Content-Type', 'text/plain').end('far'));
    await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
    try {
      const address = `http://127.0.0.1:${server.address().port}/far.txt`;
      const file = await ask('importFile', address, { title: 'Far' });
      assert.partialEqual(file, { title: 'Far', type: 'text/plain', filename_download: 'far.txt' });
    } finally {
      server.close();
    }
  },

  async share_rows() {
    const collection = await table();
    await ask('createItem', collection, { title: 'shared' });
    const body = { collection, item: '1', name: 'Link', role: await newRole() };
    await lifecycle('Share', 'Shares', body, { name: 'Other' });
  },

  async operation_rows() {
    const { id: flow } = await ask('createFlow', { name: 'Rows', trigger: 'manual', options: {} });
    const body = { flow, name: 'Note', key: 'one', type: 'log', position_x: 1, position_y: 1, options: { message: 'x' } };
    await lifecycle('Operation', 'Operations', body, { name: 'Write' }, { ...body, key: 'other' });
  },

  async translation_rows() {
    const body = { language: 'fr-FR', key: 'one', value: 'Un' };
    await lifecycle('Translation', 'Translations', body, { value: 'Une' }, { ...body, key: 'other' });
  },

  async server() {
    assert.equal(await ask('serverPing'), 'pong');
    const description = await ask('readOpenApiSpec');
    assert.match(description.openapi, /^3\./);
    assert.ok(description.paths['/server/ping']);
  },
};

// Runs the composables of nuxt-directus against a service, with a few lines in place of Nuxt.
// Arguments: the address of the service, an administrator's address and password, the service's log.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { register } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';

const app = new URL('nuxt_app.mjs', import.meta.url).href;
const resolve = `export const resolve = (name, context, next) =>
  name === '#app' ? { url: ${JSON.stringify(app)}, shortCircuit: true } : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(resolve)}`);
const composables = new URL('node_modules/nuxt-directus/dist/runtime/composables/', import.meta.url);
const use = async (name) => (await import(new URL(`useDirectus${name}.mjs`, composables).href))[`useDirectus${name}`]();

const [, , url, email, password, logFile] = process.argv;
const auth = await use('Auth');
const tokens = await use('Token');
const items = await use('Items');
const collection = 'blog_posts';
const refused = (status, call) => assert.rejects(call, (error) => error.statusCode === status);

// Logins.
assert.equal((await auth.login({ email, password })).user.email, email);
const before = tokens.refreshToken.value;
await tokens.refreshTokens();
assert.notEqual(tokens.refreshToken.value, before);
tokens.expires.value = 0; // the next call refreshes by itself
assert.equal((await auth.fetchUser()).value.email, email);

// Items.
const made = await items.createItems({
  collection,
  items: [{ title: 'Ants', views: 5, author: { name: 'Ann' } }, { title: 'Bees', views: 9 }, { title: 'Crabs', views: 7 }],
});
assert.deepEqual(made.map((post) => post.title), ['Ants', 'Bees', 'Crabs']);
const params = { fields: ['title', 'views'], sort: ['-views'], filter: { views: { _gt: 5 } }, limit: 1, meta: '*' };
const page = await items.getItems({ collection, params });
assert.deepEqual(page.data, [{ title: 'Bees', views: 9 }]);
assert.equal(page.meta.filter_count, 2);
const second = { sort: '-views', page: 2, limit: 2, fields: 'title' };
assert.deepEqual(await items.getItems({ collection, params: second }), [{ title: 'Ants' }]);
const deep = { fields: ['name', 'posts.title'], deep: { posts: { _filter: { views: { _lt: 6 } } } } };
assert.deepEqual(await items.getItems({ collection: 'authors', params: deep }), [{ name: 'Ann', posts: [{ title: 'Ants' }] }]);
const id = made[0].id;
assert.equal((await items.updateItem({ collection, id, item: { views: 6 } })).views, 6);
assert.deepEqual(await items.getItemById({ collection, id, params: { fields: ['author.name'] } }), { author: { name: 'Ann' } });
await items.deleteItems({ collection, items: made.slice(1).map((post) => post.id) });
assert.equal((await items.getItems({ collection })).length, 1);
assert.equal((await items.getSingletonItem({ collection: 'front' })).motto, null);

// History.
const revisions = await use('Revisions');
const ofItem = { collection: { _eq: collection }, item: { _eq: String(id) } };
const [change, creation] = await revisions.getRevisions({ params: { filter: ofItem, sort: ['-id'] } });
assert.deepEqual([creation.data.title, change.delta], ['Ants', { views: 6 }]);
assert.equal((await revisions.getRevisionById({ id: change.id })).item, String(id));

// Structure.
const structure = await use('Collections');
await structure.createCollection({ collection: 'shelves', schema: {}, meta: { note: 'x' } });
await structure.updateCollection({ collection: 'shelves', meta: { note: 'Of books.' } });
assert.equal((await structure.getCollection({ collection: 'shelves' })).meta.note, 'Of books.');
assert.ok((await structure.getCollections()).some((entry) => entry.collection === 'shelves'));
await structure.deleteCollection({ collection: 'shelves' });
await refused(404, structure.getCollection({ collection: 'shelves' }));

// Files, and their addresses with a token in them.
const files = await use('Files');
const text = new File(['Hello.'], 'hello.txt', { type: 'text/plain' });
const uploaded = await files.uploadFiles(text, { title: 'Greeting', tags: ['a'] });
assert.deepEqual([uploaded.title, uploaded.tags, uploaded.filesize], ['Greeting', ['a'], 6]);
const several = await files.uploadFiles([text, text]);
assert.equal(several.length, 2);
const found = await files.getFiles({ params: { filter: { title: { _eq: 'Greeting' } }, limit: 1 } });
assert.equal(found[0].id, uploaded.id);
assert.equal(await (await fetch(files.getThumbnail(uploaded.id))).text(), 'Hello.');
await files.deleteFiles(several.map((file) => file.id));
await files.deleteFiles(uploaded.id);

// People.
const users = await use('Users');
const [ann] = await users.createUsers({ users: [{ email: 'ann@example.com', password: 'ann has a long password' }] });
assert.equal((await users.updateUser({ id: ann.id, user: { first_name: 'Ann' } })).first_name, 'Ann');
assert.equal((await users.getUserById({ id: ann.id })).email, 'ann@example.com');
assert.equal((await users.getUsers({ params: { filter: { first_name: { _eq: 'Ann' } }, meta: 'filter_count' } })).meta.filter_count, 1);
const notifications = await use('Notifications');
const notification = await notifications.createNotification({ notification: { recipient: ann.id, subject: 'Hello' } });
assert.equal((await notifications.getNotificationByKey({ id: notification.id })).subject, 'Hello');
await notifications.deleteNotification({ notifications: [notification.id] });
const role = (await auth.fetchUser()).value.role;
await auth.inviteUser({ email: 'bob@example.com', role });
await auth.acceptInvite({ token: await mailed('bob@example.com'), password: 'bob has a long password' });
await auth.requestPasswordReset({ email: 'ann@example.com' });
await auth.resetPassword({ token: await mailed('ann@example.com'), password: 'ann has another password' });
await auth.login({ email: 'ann@example.com', password: 'ann has another password' });
await refused(403, items.getItems({ collection }));
await auth.logout();
await auth.login({ email: 'bob@example.com', password: 'bob has a long password' });
await users.deleteUsers({ users: [ann.id] });
await auth.logout();
assert.equal(tokens.token.value, null);

/** The token of the link in the last mail to somebody, once it is in the log. */
async function mailed(recipient) {
  for (let tries = 0; tries < 300; tries += 1) {
    const lines = (await readFile(logFile, 'utf8')).split('\n').filter((line) => line.includes(`mail to ${recipient}`));
    const token = lines.at(-1)?.match(/[?&]token=([\w.~-]+)/)?.[1];
    if (token) return token;
    await pause(100);
  }
  throw new Error(`no mail came to ${recipient}`);
}

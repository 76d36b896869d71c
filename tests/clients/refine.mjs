// Runs the data provider and the login of refine-directus against a service.
// Arguments: the address of the service, an administrator's address and password.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const { AuthHelper, authentication, createDirectus, dataProvider, rest } = createRequire(import.meta.url)(
  '@tspvivek/refine-directus',
);

const [, , url, email, password] = process.argv;
const client = createDirectus(url).with(authentication('json', { autoRefresh: false })).with(rest());
const login = AuthHelper(client);
const provider = dataProvider(client);
const resource = 'blog_posts';

await assert.rejects(login.login(email, 'wrong'), (error) => error.errors[0].extensions.code === 'INVALID_CREDENTIALS');
assert.ok((await login.login(email, password)).access_token);
assert.ok(await login.getToken());
assert.deepEqual(await login.me({ fields: ['email', 'role.admin_access'] }), { email, role: { admin_access: true } });

const titles = async (request) => {
  const { data, total } = await provider.getList({ resource, ...request });
  return [data.map((post) => post.title), total];
};
const filter = (field, operator, value) => ({ field, operator, value });

// It has createMany, too, which makes one object of the rows, with their numbers as names of fields.
const make = async (variables) => (await provider.create({ resource, variables })).data;
const ants = await make({ title: 'Ants', views: 5, status: 'draft' });
const bees = await make({ title: 'Bees', views: 9, status: 'published', author: { name: 'Ann' } });
const crabs = await make({ title: 'Crabs', views: 7, status: 'published' });
assert.deepEqual([ants.title, bees.views, crabs.status], ['Ants', 9, 'published']);

// Lists: sorted, in pages, filtered.
const sorters = [{ field: 'views', order: 'desc' }];
assert.deepEqual(await titles({ sorters }), [['Bees', 'Crabs', 'Ants'], 3]);
assert.deepEqual(await titles({ sorters, pagination: { current: 2, pageSize: 2 } }), [['Ants'], 3]);
assert.deepEqual(await titles({ sorters, pagination: { mode: 'off' } }), [['Bees', 'Crabs', 'Ants'], 3]);
assert.deepEqual(await titles({ sorters, filters: [filter('views', 'gt', 6)] }), [['Bees', 'Crabs'], 2]);
assert.deepEqual(await titles({ filters: [filter('author.name', 'eq', 'Ann')] }), [['Bees'], 1]);
assert.deepEqual(await titles({ filters: [filter('title', 'startswiths', 'cr')] }), [['Crabs'], 1]);
assert.deepEqual(await titles({ filters: [filter('search', 'eq', 'bees')] }), [['Bees'], 1]);
const either = { operator: 'or', value: [filter('title', 'eq', 'Ants'), filter('views', 'between', [8, 10])] };
assert.deepEqual(await titles({ filters: [either], sorters }), [['Bees', 'Ants'], 2]);
const nested = await provider.getList({ resource, sorters, meta: { fields: ['title', 'author.name'] } });
assert.deepEqual(nested.data[0], { title: 'Bees', author: { name: 'Ann' } });
assert.equal((await provider.getList({ resource: 'authors', meta: { noStatus: true } })).total, 1);

// One item, and several by their keys.
assert.equal((await provider.getOne({ resource, id: crabs.id })).data.title, 'Crabs');
assert.deepEqual((await provider.getOne({ resource, id: bees.id, meta: { fields: ['author.name'] } })).data, {
  author: { name: 'Ann' },
});
const many = await provider.getMany({ resource, ids: [bees.id, crabs.id], meta: { fields: ['title'] } });
assert.deepEqual(many.data, [{ title: 'Bees' }, { title: 'Crabs' }]);

// Changes and deletions.
assert.equal((await provider.update({ resource, id: crabs.id, variables: { views: 8 } })).data.views, 8);
const changed = await provider.updateMany({ resource, ids: [bees.id, crabs.id], variables: { status: 'draft' } });
assert.deepEqual(changed.data.map((post) => post.status), ['draft', 'draft']);
await provider.deleteOne({ resource, id: ants.id });
await provider.deleteMany({ resource, ids: [bees.id] });
assert.deepEqual(await titles({}), [['Crabs'], 1]);
await assert.rejects(provider.getOne({ resource, id: bees.id }), /no such item/);

// The service's own collections by their names in Directus, and calls of any other kind.
const users = await provider.getList({ resource: 'directus_users', meta: { fields: ['email'] }, filters: [filter('email', 'eq', email)] });
assert.deepEqual(users, { data: [{ email }], total: 1 });
const custom = await provider.custom({ url: '/server/ping', method: 'get' });
assert.equal(custom.data, 'pong');
await login.logout();
await assert.rejects(provider.getOne({ resource, id: crabs.id }));

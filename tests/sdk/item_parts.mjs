// Collections, fields, relations and items.
import assert from 'node:assert/strict';
import { ask, client, command, has, refused, sdk, table } from './session.mjs';

export const parts = {
  async collections() {
    const collection = await table();
    const other = await table();
    const changed = await ask('updateCollection', collection, { meta: { note: 'Noted' } });
    assert.equal(changed.meta.note, 'Noted');
    const batch = [collection, other].map((name) => ({ collection: name, meta: { icon: 'star' } }));
    await ask('updateCollectionsBatch', batch);
    const list = await ask('readCollections');
    const icons = list.filter((one) => [collection, other].includes(one.collection)).map(({ meta }) => meta.icon);
    assert.deepEqual(icons, ['star', 'star']);
    await ask('deleteCollection', other);
    assert.ok(!(await ask('readCollections')).some((one) => one.collection === other));
  },

  async fields() {
    const collection = await table();
    const made = await ask('createField', collection, { field: 'price', type: 'decimal', meta: { note: 'net' } });
    assert.partialEqual(made, { collection, field: 'price', type: 'decimal' });
    const read = await ask('readField', collection, 'price');
    assert.equal(read.meta.note, 'net');
    assert.equal((await ask('updateField', collection, 'price', { meta: { note: 'gross' } })).meta.note, 'gross');
    if (has('updateFields')) {
      const batch = ['price', 'title'].map((field) => ({ field, meta: { note: `of ${field}` } }));
      const notes = (await ask('updateFields', collection, batch)).map(({ meta }) => meta.note);
      assert.deepEqual(notes, ['of price', 'of title']);
    }
    assert.ok((await ask('readFields')).some((one) => one.collection === collection && one.field === 'price'));
    await ask('deleteField', collection, 'price');
    const left = await ask('readFieldsByCollection', collection);
    assert.deepEqual(left.map(({ field }) => field).sort(), ['id', 'position', 'title']);
  },

  async relations() {
    const target = await table();
    const collection = await table({ field: 'parent', type: 'integer' });
    const body = { collection, field: 'parent', related_collection: target, meta: { one_field: 'children' } };
    const names = { collection, field: 'parent', related_collection: target };
    assert.partialEqual(await ask('createRelation', body), names);
    assert.partialEqual(await ask('readRelation', collection, 'parent'), names);
    const [only] = await ask('readRelationByCollection', collection);
    assert.partialEqual(only, names);
    const changed = await ask('updateRelation', collection, 'parent', { meta: { one_field: 'offspring' } });
    assert.equal(changed.meta.one_field, 'offspring');
    const created = await ask('createItem', target, { title: 'a', offspring: [{ title: 'b' }] }, { fields: ['*', { offspring: ['title'] }] });
    assert.deepEqual(created.offspring, [{ title: 'b' }]);
    assert.ok((await ask('readRelations')).some((one) => one.collection === collection));
    await ask('deleteRelation', collection, 'parent');
    assert.ok(!(await ask('readRelations')).some((one) => one.collection === collection));
  },

  async items() {
    const collection = await table();
    const one = await ask('createItem', collection, { title: 'a' });
    assert.partialEqual(one, { id: 1, title: 'a' });
    const several = await ask('createItems', collection, [{ title: 'b' }, { title: 'c' }]);
    assert.deepEqual(several.map(({ id }) => id), [2, 3]);
    assert.partialEqual(await ask('readItem', collection, 1), { id: 1, title: 'a' });
    assert.partialEqual(await ask('updateItem', collection, 1, { title: 'd' }), { id: 1, title: 'd' });
    const updated = await ask('updateItems', collection, [1, 2], { title: 'e' });
    assert.deepEqual(updated.map(({ title }) => title), ['e', 'e']);
    const batch = await ask('updateItemsBatch', collection, [{ id: 1, title: 'f' }, { id: 3, title: 'g' }]);
    assert.deepEqual(batch.map(({ title }) => title), ['f', 'g']);
    await ask('deleteItem', collection, 1);
    await ask('deleteItems', collection, { filter: { title: { _eq: 'e' } } });
    const left = await ask('readItems', collection, { fields: ['id', 'title'] });
    assert.deepEqual(left, [{ id: 3, title: 'g' }]);
    await refused('NOT_FOUND', 'readItem', collection, 1);
  },

  async keysOfSeveralColumns() {
    const collection = 'sdk_lines';
    await ask('createItem', collection, { document: 'a/b', line: 1, title: 'one' });
    // A key in a path is one text, and an array in a body.
    const key = `${encodeURIComponent('a/b')},1`;
    assert.partialEqual(await ask('readItem', collection, key), { document: 'a/b', line: 1 });
    assert.partialEqual(await ask('updateItem', collection, key, { title: 'two' }), { title: 'two' });
    const [changed] = await ask('updateItems', collection, [['a/b', 1]], { title: 'three' });
    assert.equal(changed.title, 'three');
    await ask('deleteItems', collection, [['a/b', 1]]);
    await refused('NOT_FOUND', 'readItem', collection, key);
  },

  async singletons() {
    const collection = await table();
    await ask('updateCollection', collection, { meta: { singleton: true } });
    assert.equal((await ask('updateSingleton', collection, { title: 'Only' })).title, 'Only');
    assert.equal((await ask('readSingleton', collection)).title, 'Only');
  },

  async wrappers() {
    const token = await client.getToken();
    const anonymous = sdk.createDirectus(client.url).with(sdk.rest());
    const me = await anonymous.request(command('withToken', token, sdk.readMe({ fields: ['id'] })));
    assert.match(me.id, /^[0-9a-f-]{36}$/);
    const headers = { Authorization: `Bearer ${token}` };
    const options = (request) => ({ ...request, headers: { ...request.headers, ...headers } });
    assert.deepEqual(await anonymous.request(command('withOptions', sdk.readMe({ fields: ['id'] }), options)), me);
  },
};

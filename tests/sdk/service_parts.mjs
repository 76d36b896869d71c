// What the service keeps beside items, and the tools around items.
import assert from 'node:assert/strict';
import { ask, client, command, email, has, lifecycle, refused, sdk, table } from './session.mjs';

export const parts = {
  async dashboards() {
    await lifecycle('Dashboard', 'Dashboards', { name: 'Sales', icon: 'sell', color: '#6644FF', note: 'n' }, { name: 'Sold' });
    const panels = [{ type: 'label', options: { text: 'Hi' }, position_x: 1, position_y: 1, width: 2, height: 2 }];
    const { id } = await ask('createDashboard', { name: 'With panels', panels });
    const read = await ask('readDashboard', id, { fields: ['*', { panels: ['*'] }] });
    assert.deepEqual(read.panels[0].options, { text: 'Hi' });
  },

  async panels() {
    const { id: dashboard } = await ask('createDashboard', { name: 'Panels' });
    const body = { dashboard, name: 'Total', type: 'label', options: { text: 'a' }, position_x: 1, position_y: 1, width: 4, height: 4, show_header: true };
    await lifecycle('Panel', 'Panels', body, { width: 8 });
    await refused('FAILED_VALIDATION', 'createPanel', { ...body, type: 'pie-chart', options: {} });
  },

  async notifications() {
    const { id: recipient } = await ask('readMe', { fields: ['id'] });
    await lifecycle('Notification', 'Notifications', { recipient, subject: 'Hello', message: 'text' }, { status: 'archived' });
  },

  async presets() {
    const body = { collection: 'articles', bookmark: 'Mine', layout: 'tabular', layout_query: { tabular: { page: 2 } }, filter: null };
    await lifecycle('Preset', 'Presets', body, { bookmark: 'Yours' });
  },

  async translations() {
    await ask('createTranslation', { language: 'de-DE', key: 'first', value: 'Erstes' });
    const [row] = await ask('readTranslations', { filter: { key: { _eq: 'first' } } });
    assert.partialEqual(await ask('readTranslation', row.id), { language: 'de-DE', value: 'Erstes' });
    assert.equal((await ask('updateTranslation', row.id, { value: 'Anderes' })).value, 'Anderes');
    await ask('deleteTranslation', row.id);
  },

  async comments() {
    const collection = await table();
    await ask('createItem', collection, { title: 'a' });
    const made = await ask('createComment', { collection, item: '1', comment: 'First' });
    assert.equal(made.comment, 'First');
    await ask('updateComment', made.id, { comment: 'Second' });
    if (has('readComments')) {
      const filter = { collection: { _eq: collection } };
      assert.deepEqual((await ask('readComments', { filter, fields: ['comment'] })), [{ comment: 'Second' }]);
      assert.equal((await ask('readComment', made.id)).comment, 'Second');
    }
    await ask('deleteComment', made.id);
  },

  async severalComments() {
    // Commands of the newer versions alone.
    if (!has('createComments')) return;
    const collection = await table();
    await ask('createItem', collection, { title: 'a' });
    const bodies = ['First', 'Second', 'Third'].map((comment) => ({ collection, item: '1', comment }));
    const made = await ask('createComments', bodies);
    assert.deepEqual(made.map(({ comment }) => comment), ['First', 'Second', 'Third']);
    const [first, second, third] = made.map(({ id }) => id);
    const changed = await ask('updateComments', [first, second], { comment: 'Changed' }, { fields: ['id', 'comment'] });
    assert.deepEqual(changed, [{ id: first, comment: 'Changed' }, { id: second, comment: 'Changed' }]);
    const found = await ask('updateComments', { filter: { id: { _eq: third } } }, { comment: 'Found' });
    assert.deepEqual(found.map(({ comment }) => comment), ['Found']);
    if (has('updateCommentsBatch')) {
      const batch = [{ id: first, comment: 'One' }, { id: second, comment: 'Two' }];
      const both = await ask('updateCommentsBatch', batch, { fields: ['comment'] });
      assert.deepEqual(both, [{ comment: 'One' }, { comment: 'Two' }]);
    }
    await ask('deleteComments', [first, second]);
    await ask('deleteComments', { filter: { id: { _eq: third } } });
    assert.deepEqual(await ask('readComments', { filter: { collection: { _eq: collection } } }), []);
  },

  async history() {
    const collection = await table();
    await ask('createItem', collection, { title: 'before' });
    await ask('updateItem', collection, 1, { title: 'after' });
    const ofItem = { collection: { _eq: collection } };
    const activities = await ask('readActivities', { filter: ofItem, sort: ['id'], fields: ['id', 'action'] });
    assert.deepEqual(activities.map(({ action }) => action), ['create', 'update']);
    assert.equal((await ask('readActivity', activities[0].id)).item, '1');
    const revisions = await ask('readRevisions', { filter: ofItem, sort: ['id'], fields: ['id', 'data', 'delta'] });
    assert.deepEqual(revisions[1].delta, { title: 'after' });
    const revision = await ask('readRevision', revisions[0].id);
    assert.equal(revision.data.title, 'before');
    await ask('customEndpoint', { path: `/utils/revert/${revision.id}`, method: 'POST' });
    assert.equal((await ask('readItem', collection, 1)).title, 'before');
  },

  async flows() {
    const body = { name: 'Echo', status: 'active', trigger: 'webhook', options: { method: 'POST', async: false } };
    await lifecycle('Flow', 'Flows', body, { name: 'Sound' });
    const flow = await ask('createFlow', body);
    const operation = await ask('createOperation', {
      flow: flow.id, name: 'Greet', key: 'greet', type: 'transform', position_x: 2, position_y: 2,
      options: { json: { hello: '{{$trigger.body.name}}' } },
    });
    await ask('updateOperation', operation.id, { name: 'Greet them' });
    assert.equal((await ask('readOperations', { filter: { flow: { _eq: flow.id } } })).length, 1);
    await ask('updateFlow', flow.id, { operation: operation.id });
    const read = await ask('readFlow', flow.id, { fields: ['id', { operations: ['key'] }] });
    assert.deepEqual(read.operations, [{ key: 'greet' }]);
    assert.deepEqual(await ask('triggerFlow', 'POST', flow.id, { name: 'Ann' }), { hello: 'Ann' });
    await ask('updateFlow', flow.id, { options: { method: 'GET', async: false, return: '$trigger' } });
    const triggered = await ask('triggerFlow', 'GET', flow.id, { name: 'Ben' });
    assert.equal(triggered.query.name, 'Ben');
    await ask('deleteOperation', operation.id);
    await ask('deleteFlow', flow.id);
  },

  async hashes() {
    // Commands of the older versions alone.
    if (!has('generateHash')) return;
    const hash = await ask('generateHash', 'secret');
    assert.match(hash, /^\$argon2id\$/);
    assert.equal(await ask('verifyHash', 'secret', hash), true);
    assert.equal(await ask('verifyHash', 'other', hash), false);
  },

  async random() {
    assert.equal((await ask('randomString')).length, 32);
    assert.equal((await ask('randomString', 7)).length, 7);
    await refused('INVALID_QUERY', 'randomString', 501);
  },

  async sort() {
    const collection = await table();
    await ask('createItems', collection, [{ title: 'a' }, { title: 'b' }, { title: 'c' }]);
    await ask('utilitySort', collection, 3, 1);
    const items = await ask('readItems', collection, { sort: ['position'] });
    assert.deepEqual(items.map(({ title }) => title), ['c', 'a', 'b']);
  },

  async imports() {
    const collection = await table();
    const form = new FormData();
    form.append('file', new Blob(['title\nä\nb\n'], { type: 'text/csv' }), 'things.csv');
    await ask('utilsImport', collection, form);
    const items = await ask('readItems', collection, { fields: ['title'] });
    assert.deepEqual(items, [{ title: 'ä' }, { title: 'b' }]);
  },

  async exports() {
    const collection = await table();
    await ask('createItems', collection, [{ title: 'ä' }, { title: 'b' }]);
    await ask('utilsExport', collection, 'csv', { fields: ['title'], sort: ['-title'] }, { title: 'Exported', filename_download: `${collection}.csv` });
    const [file] = await ask('readFiles', { filter: { filename_download: { _eq: `${collection}.csv` } } });
    assert.partialEqual(file, { title: 'Exported', type: 'text/csv' });
    const text = await new Response(await ask('readAssetRaw', file.id)).text();
    assert.deepEqual(text.trim().split(/\r?\n/), ['title', 'ä', 'b']);
  },

  async cache() {
    await ask('clearCache');
  },

  async settings() {
    assert.equal((await ask('readSettings')).id, 1);
    const changed = await ask('updateSettings', { project_name: 'By the SDK', project_color: '#112233' });
    assert.partialEqual(changed, { project_name: 'By the SDK', project_color: '#112233' });
    assert.equal((await ask('serverInfo')).project.project_name, 'By the SDK');
    await refused('FAILED_VALIDATION', 'updateSettings', { project_color: 'red' });
  },

  async basics() {
    assert.equal((await ask('readMe', { fields: ['email'] })).email, email);
    assert.equal((await ask('serverHealth')).status, 'ok');
    const collection = await table();
    await ask('createItems', collection, [{ title: 'a' }, { title: 'b' }]);
    const [{ count }] = await ask('aggregate', collection, { aggregate: { count: '*' } });
    assert.equal(Number(count), 2);
    const searched = await client.request(command('withSearch', sdk.readItems(collection, { filter: { title: { _eq: 'b' } } })));
    assert.equal(searched[0].title, 'b');
    assert.equal((await ask('readCollection', collection)).collection, collection);
    assert.ok((await ask('readFieldsByCollection', collection)).length >= 3);
    await ask('deleteItems', collection, [1, 2]);
    assert.deepEqual(await ask('readItems', collection), []);
    await client.refresh();
    await ask('readMe');
  },

  async schema() {
    const snapshot = await ask('schemaSnapshot');
    assert.ok(snapshot.version && snapshot.collections && snapshot.fields && snapshot.relations);
    const collection = await table();
    const later = await ask('schemaSnapshot');
    await ask('deleteCollection', collection);
    const diff = await ask('schemaDiff', later);
    assert.ok(diff.hash && diff.diff.collections.length === 1);
    await ask('schemaApply', diff);
    assert.equal((await ask('readCollection', collection)).collection, collection);
  },

  async shares() {
    const collection = await table();
    await ask('createItem', collection, { title: 'shared' });
    const { id: role } = (await ask('readRoles', { limit: 1 }))[0];
    const share = await ask('createShare', { collection, item: '1', name: 'Link', role, password: 'open' });
    assert.equal((await ask('readShareInfo', share.id)).id, share.id);
    await ask('authenticateShare', share.id, 'open', 'json');
    assert.equal((await ask('updateShare', share.id, { name: 'Other' })).name, 'Other');
    await ask('inviteShare', share.id, ['somebody@example.com']);
    await ask('deleteShare', share.id);
  },
};

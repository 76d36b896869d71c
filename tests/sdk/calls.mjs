// Runs every command of the SDK against a service, and prints as JSON the outcome of each part, the commands
// that were sent, all that the package exports, and the commands that should have been refused but were not.
import { counterparts } from './without_counterpart.mjs';
import { parts as accounts } from './account_parts.mjs';
import { parts as items } from './item_parts.mjs';
import { parts as service } from './service_parts.mjs';
import { client, sdk, sent } from './session.mjs';

const outcomes = {};
for (const [name, part] of Object.entries({ ...items, ...service, ...accounts })) {
  try {
    await part();
    outcomes[name] = null;
  } catch (error) {
    outcomes[name] = error.errors ? JSON.stringify(error.errors) : String(error.stack ?? error);
  }
}

/** Send a command that has no counterpart; return what is wrong with the answer. */
async function unexpected(name, { args }) {
  try {
    await client.request(sdk[name](...args));
  } catch (error) {
    const code = error.errors?.[0]?.extensions.code;
    const isRefused = ['ROUTE_NOT_FOUND', 'METHOD_NOT_ALLOWED', 'NOT_FOUND', 'INVALID_QUERY', 'INVALID_PAYLOAD'].includes(code);
    return isRefused ? null : `${name}: ${JSON.stringify(error.errors) ?? error}`;
  }
  return `${name} has a counterpart now`;
}

const problems = [];
for (const [name, entry] of Object.entries(counterparts)) {
  const problem = name in sdk ? await unexpected(name, entry) : null;
  if (problem) problems.push(problem);
}
await client.logout();

console.log(JSON.stringify({ outcomes, sent: [...sent], exported: Object.keys(sdk), problems }));

// What the SDK exports and the parts do not run: commands without a counterpart, each with arguments and the
// reason, which docs/directus.md shows; and what sends nothing.
const versions = 'there are no content versions; revisions keep the history of every item';
const webhooks = 'a flow with the trigger `event` and the operation `request` does the same';
const policies = 'a permission belongs to a role';
const extensions = 'there are no extensions';
const deployments = 'there are no deployments; a flow with the operation `request` starts one elsewhere';
const archives = 'there are no archives of files; `readAssetRaw` reads each of them';
const graphql = 'there is no GraphQL';

const list = (reason, commands) =>
  Object.fromEntries(Object.entries(commands).map(([name, args]) => [name, { reason, args }]));

export const counterparts = {
  ...list(versions, {
    createContentVersion: [{}],
    createContentVersions: [[{}]],
    readContentVersion: ['1'],
    readContentVersions: [],
    updateContentVersion: ['1', {}],
    updateContentVersions: [['1'], {}],
    updateContentVersionsBatch: [[{}]],
    deleteContentVersion: ['1'],
    deleteContentVersions: [['1']],
    saveToContentVersion: ['1', {}],
    compareContentVersion: ['1'],
    promoteContentVersion: ['1', 'hash'],
  }),
  ...list(webhooks, {
    createWebhook: [{}],
    createWebhooks: [[{}]],
    readWebhook: [1],
    readWebhooks: [],
    updateWebhook: [1, {}],
    updateWebhooks: [[1], {}],
    deleteWebhook: [1],
    deleteWebhooks: [[1]],
  }),
  ...list(policies, {
    createPolicy: [{}],
    createPolicies: [[{}]],
    readPolicy: ['1'],
    readPolicies: [],
    readPolicyGlobals: [],
    updatePolicy: ['1', {}],
    updatePolicies: [['1'], {}],
    updatePoliciesBatch: [[{}]],
    deletePolicy: ['1'],
    deletePolicies: [['1']],
  }),
  ...list(`${policies}; \`readMe\` with the fields of \`role\` tells the caller's`, { readRolesMe: [] }),
  ...list(extensions, {
    readExtensions: [],
    updateExtension: ['bundle', 'name', {}],
    deleteExtension: ['1'],
    readRegistryAccount: ['1'],
    readRegistryExtension: ['1'],
    readRegistryExtensions: [],
    installRegistryExtension: ['1', '2'],
    reinstallRegistryExtension: ['1'],
    uninstallRegistryExtension: ['1'],
  }),
  ...list(deployments, {
    createDeployment: [{}],
    readDeployment: ['vercel'],
    readDeployments: [],
    readDeploymentDashboard: ['vercel'],
    readDeploymentProject: ['vercel', '1'],
    readDeploymentProjects: ['vercel'],
    readDeploymentRun: ['vercel', '1'],
    readDeploymentRuns: ['vercel', '1'],
    readDeploymentRunStats: ['vercel', '1'],
    updateDeployment: ['vercel', {}],
    updateDeploymentProjects: ['vercel', [], []],
    deleteDeployment: ['vercel'],
    triggerDeployment: ['vercel', '1'],
    cancelDeployment: ['vercel', '1'],
  }),
  ...list(archives, { downloadFilesZip: [['1']], downloadFolderZip: ['1'] }),
  ...list('an import fills one collection: `utilsImport` for each', { utilsImportBatch: [new FormData()] }),
  ...list(graphql, { readGraphqlSdl: [] }),
  ...list('operations run with their flow: `triggerFlow`', { triggerOperation: ['1', {}] }),
};

export const helpers = [
  // What clients are composed of.
  'auth', 'authentication', 'createDirectus', 'graphql', 'memoryStorage', 'realtime', 'rest', 'staticToken',
  // Functions that other programs may use.
  'formatFields', 'generateUid', 'getAuthEndpoint', 'isDirectusError', 'messageCallback', 'pong', 'queryToParams',
  'sleep', 'throwIfCoreCollection', 'throwIfEmpty',
];

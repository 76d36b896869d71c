// What the composables of nuxt-directus take from Nuxt, for a program without it.
import { $fetch } from 'ofetch';
import { ref } from 'vue';

globalThis.$fetch = $fetch;

const directus = {
  url: process.argv[2],
  cookieNameToken: 'directus_token',
  cookieNameRefreshToken: 'directus_refresh_token',
  autoRefresh: true,
};
const app = {};
const states = {};

export const useRuntimeConfig = () => ({ public: { directus } });
export const useNuxtApp = () => app;
export const useState = (name) => (states[name] ??= ref());
export const useCookie = () => ref();
export const createError = (values) => Object.assign(new Error(values.statusMessage), values);
export const useRoute = () => ({ fullPath: '/' });
export const navigateTo = (path) => path;

"use strict";

const viewer = document.querySelector("rapi-doc");
const form = document.querySelector("form");
const message = document.querySelector("output");

// The page is at …/docs, whatever stands before that.
const service = new URL(".", document.baseURI);

// Throws an Error with a sentence for people.
async function readDocument(token) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(new URL("server/specs/oas", service), { headers });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.errors[0].message);
  return body;
}

// Returns the document with components in place of references to them. Collections refer to each
// other without end: a schema inside another one is named only.
function withoutReferences(specification) {
  const { securitySchemes, ...components } = specification.components;

  function inline(value, isInSchema) {
    if (Array.isArray(value)) return value.map((element) => inline(element, isInSchema));
    if (value === null || typeof value !== "object") return value;
    if ("$ref" in value) return inlineReference(value.$ref, isInSchema);
    const members = Object.entries(value).map(([name, member]) => {
      if (name === "description" && typeof member === "string") return [name, withoutHtml(member)];
      return [name, inline(member, isInSchema)];
    });
    return Object.fromEntries(members);
  }

  function inlineReference(reference, isInSchema) {
    const [kind, name] = reference.split("/").slice(2);
    if (kind !== "schemas") return inline(components[kind][name], isInSchema);
    if (isInSchema) return { type: "object", description: `\`${name}\`` };
    return inline(components.schemas[name], true);
  }

  return { ...inline({ ...specification, components: {} }, false), components: { securitySchemes } };
}

// The viewer looks for the ways to log in at each operation only.
function withSecurity(paths, security) {
  for (const operation of Object.values(paths).flatMap((path) => Object.values(path))) {
    if (operation.responses) operation.security = security;
  }
}

// The viewer shows descriptions as Markdown, where HTML of whoever wrote a note would be shown as such.
function withoutHtml(text) {
  return text.replaceAll("<", "&lt;");
}

async function show(token) {
  message.textContent = "";
  message.className = "";
  try {
    const specification = withoutReferences(await readDocument(token));
    withSecurity(specification.paths, specification.security);
    // The document names the service by a path; calls need its whole address.
    specification.servers = [{ url: service.href.replace(/\/$/, "") }];
    // The viewer's own search for references takes many seconds, so that it gets the document when
    // that is over.
    const give = (event) => Object.assign(event.detail.spec, specification);
    viewer.addEventListener("before-render", give, { once: true });
    await viewer.loadSpec({ ...specification, paths: {}, components: {} });
    if (token) viewer.setApiKey("token", token);
  } catch (error) {
    message.textContent = error.message;
    message.className = "error";
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  show(document.querySelector("#token").value.trim());
});

customElements.whenDefined("rapi-doc").then(() => show(""));

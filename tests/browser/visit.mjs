// Visits /docs in Chromium as a reader would, and prints what was seen as JSON.
// node visit.mjs <browser> <address of the service> <token> <file of the screenshot> <session cookie>
import { chromium } from "playwright-core";

const [executablePath, service, token, picture, cookie] = process.argv.slice(2);
const LIST = "get-/items/planets";

const seen = { requests: [], problems: [] };
// Chromium refuses to run as root in its sandbox.
const args = process.getuid() === 0 ? ["--no-sandbox"] : [];
const browser = await chromium.launch({ executablePath, args });
try {
  await visit(await browser.newPage({ viewport: { width: 1300, height: 900 } }));
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));

async function visit(page) {
  const listen = () => {
    page.on("request", (request) => seen.requests.push(request.url()));
    page.on("requestfailed", (request) => seen.problems.push(`failed: ${request.url()}`));
    page.on("console", (line) => seen.problems.push(`${line.type()}: ${line.text()}`));
    page.on("pageerror", (error) => seen.problems.push(error.message));
  };
  listen();
  await page.goto(`${service}/docs`);
  await entry(page, "get-/server/ping").waitFor();
  seen.public = await operations(page);

  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Show" }).click();
  await entry(page, LIST).waitFor();
  seen.own = await operations(page);

  await entry(page, LIST).click();
  await page.getByText("List planets").first().waitFor();
  seen.note = await page.getByText("Its usual").first().textContent();
  seen.html = await page.locator("#of-the-note").count();
  await page.screenshot({ path: picture });

  const answered = page.waitForResponse((response) => response.url().includes("/items/planets"));
  await page.getByRole("button", { name: "Try" }).click();
  seen.status = (await answered).status();
  await page.getByText('"Jupiter"').first().waitFor();
  seen.stored = await page.evaluate(() => localStorage.length + sessionStorage.length);

  // What follows is refused, which the console tells as well.
  page.removeAllListeners();
  seen.foreignScript = await page.evaluate(addScript);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Show" }).click();
  await page.locator("output.error").waitFor();
  seen.message = await page.locator("output").textContent();

  await page.context().addCookies([{ name: "cms_session_token", value: cookie, url: `${service}/` }]);
  await page.reload();
  await entry(page, LIST).waitFor();
  seen.ofSession = await operations(page);
}

function entry(page, operation) {
  return page.locator(`rapi-doc [data-content-id="${operation}"]`);
}

async function operations(page) {
  const entries = page.locator("rapi-doc [data-content-id][data-action=navigate]");
  return entries.evaluateAll((elements) => elements.map((element) => element.dataset.contentId));
}

// Adds a script of this host without the nonce, as it might be a file that somebody has uploaded.
function addScript() {
  return new Promise((resolve) => {
    const script = document.createElement("script");
    script.src = "docs/page.js";
    script.onload = () => resolve("run");
    script.onerror = () => resolve("refused");
    document.body.append(script);
  });
}

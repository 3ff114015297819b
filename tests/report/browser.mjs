// What the report pages promise, tried in a browser: no violation of accessibility, no horizontal scroll at 400 pixels,
// nothing fetched, ready within 2 seconds. With --pictures FOLDER also the documentation's pictures of the first page.
// Pages of compare, reproduce and bench are tried likewise; they have no explorer.
//   npm install --no-save axe-core playwright-core
//   node tests/report/browser.mjs [--pictures docs/pictures] releases/NAME/report.html ...
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const here = createRequire(path.join(process.cwd(), "x"));
const { chromium } = here("playwright-core");
const axe = readFileSync(here.resolve("axe-core/axe.min.js"), "utf8");
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"];
const READY = 2000;  // milliseconds

async function opened(browser, file, width, colorScheme) {
  const page = await (await browser.newContext({ viewport: { width, height: 900 }, colorScheme })).newPage();
  const wrong = [];
  page.on("pageerror", error => wrong.push(String(error)));
  page.on("request", asked => { if (!/^(file|data|blob):/.test(asked.url())) wrong.push(`asks for ${asked.url()}`); });
  const start = Date.now();
  await page.goto(pathToFileURL(file).href);
  if (await page.locator("#explorer").count()) await page.waitForSelector("#explorer h3");
  return { page, wrong, milliseconds: Date.now() - start };
}

async function compare(page) {
  for (const [name, place] of [["find", 0], ["compare", 1]]) {
    const search = page.locator("#explorer .find > div").nth(place);
    await page.fill(`#${name}`, "1");
    await search.locator("ul button")[place ? "last" : "first"]().click();  // another region than the first
  }
  await page.evaluate(() => document.querySelectorAll("details").forEach(part => { part.open = true; }));
}

async function tried(browser, file, width, scheme) {
  const { page, wrong, milliseconds } = await opened(browser, file, width, scheme);
  const over = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (await over() > 0) wrong.push("scrolls sideways");
  if (await page.locator("#explorer").count()) await compare(page);
  else await page.evaluate(() => document.querySelectorAll("details").forEach(part => { part.open = true; }));
  if (await over() > 0) wrong.push("scrolls sideways once a region is chosen");
  await page.evaluate(axe);
  for (const found of (await page.evaluate(() => axe.run())).violations) {
    wrong.push(`${found.id}: ${found.help} (${found.nodes.map(one => one.target).slice(0, 3).join("; ")})`);
  }
  if (milliseconds > READY) wrong.push(`ready after ${milliseconds} ms only`);
  console.log(`${file} ${width} ${scheme}: ready in ${milliseconds} ms; ${wrong.length ? wrong.join("\n  ") : "nothing wrong"}`);
  await page.context().close();
  return wrong.length;
}

async function pictures(browser, file, folder) {
  for (const [name, width, scheme, height] of [["report", 900, "light", 1330], ["report-wide-dark", 900, "dark", 1330], ["report-dark", 400, "dark", 1100]]) {
    const { page } = await opened(browser, file, width, scheme);
    await page.screenshot({ path: path.join(folder, `${name}.png`), fullPage: true, clip: { x: 0, y: 0, width, height } });
    await page.context().close();
  }
}

const asked = process.argv.slice(2);
const folder = asked[0] === "--pictures" ? asked.splice(0, 2)[1] : null;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: QUIET });
if (folder) await pictures(browser, asked[0], folder);
let wrong = 0;
for (const file of asked) for (const width of [400, 1200]) for (const scheme of ["light", "dark"]) wrong += await tried(browser, file, width, scheme);
await browser.close();
process.exit(wrong ? 1 : 0);

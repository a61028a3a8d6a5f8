// Drives a page in Chromium for a test that talks to it in lines of JSON: one command in, one answer out.

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";
import AxeBuilder from "@axe-core/playwright";
import { chromium } from "playwright-core";

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const context = await browser.newContext();
const page = await context.newPage();
const complaints = [];
page.on("pageerror", (error) => complaints.push(String(error)));
page.on("console", (message) => {
  // A stream that ends or is refused is no fault of the page.
  if (message.type() === "error" && !message.text().includes("Failed to load resource")) complaints.push(message.text());
});
const foreign = [];
let origin = "";
page.on("request", (request) => {
  if (origin !== "" && !request.url().startsWith(origin)) foreign.push(request.url());
});

// Bytes of memory that a process has for itself: what it shares with others, such as the browser's program, is not its own.
async function privateBytes(pid) {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  const kib = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(status)?.[1] ?? 0);
  return 1_024 * (kib("RssAnon") + kib("VmSwap"));
}

const ofBrowser = await browser.newBrowserCDPSession();
const ofPage = await context.newCDPSession(page);

const commands = {
  async open({ url }) {
    origin = new URL(url).origin;
    await page.goto(url, { waitUntil: "domcontentloaded" });
  },
  async look({ width, height, scheme }) {
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: scheme });
  },
  // The text of the first element, or null.
  async text({ at }) {
    const element = page.locator(at).first();
    return (await element.count()) > 0 ? await element.innerText() : null;
  },
  async count({ at }) {
    return page.locator(at).count();
  },
  async click({ at }) {
    await page.locator(at).first().click({ timeout: 20_000 });
  },
  async type({ at, text }) {
    await page.locator(at).first().fill(text, { timeout: 20_000 });
  },
  async choose({ at, value }) {
    await page.locator(at).first().selectOption(value, { timeout: 20_000 });
  },
  // Keys, by which a reader without a mouse goes through the page.
  async press({ key }) {
    await page.keyboard.press(key);
  },
  async keys({ text }) {
    await page.keyboard.type(text);
  },
  // The element that keys go to, and whether a reader sees which one it is.
  async focused() {
    return page.evaluate(() => {
      const at = document.activeElement;
      if (at === null || at === document.body) return null;
      const { outlineStyle, outlineWidth } = getComputedStyle(at);
      const box = at.getBoundingClientRect();
      return {
        name: at.id || at.getAttribute("data-key") || at.textContent.trim(),
        is_seen: outlineStyle !== "none" && parseFloat(outlineWidth) > 0 && box.width > 0 && box.height > 0,
      };
    });
  },
  // Marks an element, to see whether it is still the same one later.
  async mark({ at }) {
    await page.locator(at).first().evaluate((element) => { element.isMarked = true; });
  },
  async is_marked({ at }) {
    return page.locator(at).first().evaluate((element) => element.isMarked === true);
  },
  // Never answers the first request whose address has this end.
  async stall({ end }) {
    let isFirst = true;
    await page.route(`**${end}`, (route) => {
      if (!isFirst) return route.continue();
      isFirst = false;
    });
  },
  async elements() {
    return page.evaluate(() => document.querySelectorAll("*").length);
  },
  async picture({ path }) {
    await page.screenshot({ path, fullPage: true });
  },
  // How far the page is wider than the window.
  async overflow() {
    return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  },
  async axe() {
    const { violations } = await new AxeBuilder({ page }).analyze();
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
  },
  // The memory of the process that shows the page, and of the objects of its program, dead ones included.
  async memory() {
    const { processInfo } = await ofBrowser.send("SystemInfo.getProcessInfo");
    const renderers = processInfo.filter(({ type }) => type === "renderer");
    const sizes = await Promise.all(renderers.map(({ id }) => privateBytes(id)));
    const { usedSize } = await ofPage.send("Runtime.getHeapUsage");
    return { process_bytes: Math.max(...sizes), heap_bytes: usedSize };
  },
  async complaints() {
    return { complaints, foreign };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { command, ...rest } = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await commands[command](rest)) ?? null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();

/** The browsers that pages are tested in, each started for one page: `open(context, url)` answers with what the page printed. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

/** Long, because other work on the machine makes a page's threads wait for each other. */
const PATIENCE = 180_000;
/** For each of three tries: four times what the slowest page took beside six busy loops, with the engine's own 30 s for a hang. */
const FIREFOX_PATIENCE = 90_000;
/** What a page has printed; null before. */
const PRINTED = "document.querySelector('output')?.textContent || null";

/** A Chromium with an empty profile; in a folder, what pages keep is on disk as users have it, else in memory. `extensions` lets DevTools load them. */
export function launch(folder, { extensions = false } = {}) {
  const executablePath = found("chromium", process.env.CHROMIUM ?? "/usr/bin/chromium");
  const options = { executablePath, args: flags, timeout: PATIENCE };
  if (extensions) {
    options.args = [...flags, "--enable-unsafe-extension-debugging"];
    options.ignoreDefaultArgs = ["--disable-extensions"];
  }
  return folder ? chromium.launchPersistentContext(folder, options) : chromium.launch(options);
}

/** The browser runs as root in containers and must not call out. */
const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Opens a page in Chromium, with a profile as `launch` says; `seen` is what went wrong on the way, for messages and for tests. */
export async function open(context, url, folder) {
  const browser = await launch(folder);
  context.after(() => browser.close());
  const tab = await browser.newPage();
  const seen = [];
  tab.on("console", (message) => seen.push(`${message.type()}: ${message.text()}`));
  tab.on("pageerror", (error) => seen.push(`error: ${error.message}`));
  tab.on("requestfailed", (request) => seen.push(`failed: ${request.url()} ${request.failure()?.errorText}`));
  tab.on("response", (response) => response.status() >= 400 && seen.push(`${response.status()}: ${response.url()}`));
  try {
    await tab.goto(url, { timeout: PATIENCE });
    const output = tab.locator("output:not(:empty)");
    await output.waitFor({ timeout: PATIENCE });
    return { printed: await output.textContent(), seen };
  } catch (error) {
    throw new Error(`${url} printed nothing; the browser saw:\n${seen.join("\n")}`, { cause: error });
  } finally {
    await browser.close();
  }
}

/**
 * On busy cores some pages stop in Firefox 153 (4 of 65 that split a model, beside six busy loops): all threads of the process sleep,
 * a worker that was started last has used no time, and the engine's hears nothing any more. Why is not known. Such a page is opened again.
 */
export async function openInFirefox(context, url) {
  for (let tries = 1; ; tries++) {
    const { printed, seen } = await openOnceInFirefox(context, url);
    const hangs = !printed || printed.includes("has not answered for");
    if (!hangs) return { printed, seen };
    const said = `${url} printed ${printed ?? "nothing"}; Firefox saw:\n${seen.join("\n")}`;
    assert.ok(tries < 3, said);
    context.diagnostic(said);
  }
}

/** Firefox speaks WebDriver BiDi itself, by a WebSocket. */
async function openOnceInFirefox(context, url) {
  const profile = await mkdtemp(path.join(tmpdir(), "ternlight-firefox-"));
  context.after(() => rm(profile, { recursive: true, force: true, maxRetries: 5 }));
  await writeFile(path.join(profile, "user.js"), preferences());
  const program = found("firefox", process.env.FIREFOX ?? "/usr/bin/firefox-esr");
  const args = ["--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"];
  const { child, match } = await started(context, program, args, /WebDriver BiDi listening on (ws:\S+)/);
  const bidi = await Bidi.connect(`${match[1]}/session`);
  try {
    const seen = [];
    bidi.onEvent = ({ params }) => seen.push(`${params.level}: ${params.text}`);
    await bidi.call("session.new", { capabilities: {} });
    await bidi.call("session.subscribe", { events: ["log.entryAdded"] });
    const { context } = await bidi.call("browsingContext.create", { type: "tab" });
    await bidi.call("browsingContext.navigate", { context, url, wait: "none" });
    const ask = { expression: PRINTED, target: { context }, awaitPromise: false };
    const printed = await until(async () => {
      // Between two pages there is none to ask.
      const { result } = await bidi.call("script.evaluate", ask).catch(() => ({}));
      return result?.value;
    }, FIREFOX_PATIENCE);
    return { printed, seen };
  } finally {
    bidi.close();
    await ended(child);
  }
}

/** Nothing leaves this machine: all but loopback goes to a proxy that is not there. */
const preferences = () =>
  Object.entries({
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "remote.active-protocols": 1,
    "browser.shell.checkDefaultBrowser": false,
    "datareporting.policy.dataSubmissionEnabled": false,
    "toolkit.telemetry.enabled": false,
    "app.normandy.enabled": false,
    "app.update.disabledForTesting": true,
  })
    .map(([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`)
    .join("");

class Bidi {
  #socket;
  #waiting = new Map();
  #next = 0;
  onEvent = () => {};

  static async connect(address) {
    const bidi = new Bidi();
    bidi.#socket = new WebSocket(address);
    bidi.#socket.onmessage = ({ data }) => bidi.#receive(JSON.parse(data));
    bidi.#socket.onclose = () => {
      for (const { reject } of bidi.#waiting.values()) reject(new Error("the browser has gone"));
      bidi.#waiting.clear();
    };
    await new Promise((resolve, reject) => Object.assign(bidi.#socket, { onopen: resolve, onerror: reject }));
    return bidi;
  }

  call(method, params) {
    const id = ++this.#next;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  close() {
    this.#socket.close();
  }

  #receive(message) {
    if (message.type === "event") return this.onEvent(message);
    const { resolve, reject } = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.type === "success") resolve(message.result);
    else reject(new Error(`${message.error}: ${message.message}`));
  }
}

/** WebKitGTK's small browser, by the WebDriver that comes with it, on a screen that nobody sees. */
export async function openInWebKit(context, url) {
  const [browser] = globSync(process.env.WEBKIT ?? "/usr/lib/*/webkit2gtk-4*/MiniBrowser");
  found("webkit", browser ?? "MiniBrowser of WebKitGTK");
  const { match: screen } = await started(context, "Xvfb", ["-displayfd", "1", "-nolisten", "tcp"], /^(\d+)\n/m);
  const env = {
    ...process.env,
    DISPLAY: `:${screen[1]}`,
    // It runs as root in containers, which have no room for a sandbox, nor a graphics card.
    WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS: "1",
    WEBKIT_DISABLE_DMABUF_RENDERER: "1",
    NO_AT_BRIDGE: "1",
    // Safari moves an isolated page to a process that has it; under automation pages stay in the first one.
    JSC_useSharedArrayBuffer: "1",
  };
  const port = await startDriver(context, env);
  const ask = async (method, what, body) => {
    const init = { method, ...(body && { body: JSON.stringify(body) }) };
    const { value } = await (await fetch(`http://127.0.0.1:${port}/session${what}`, init)).json();
    if (value?.error) throw new Error(`${value.error}: ${value.message}`);
    return value;
  };
  const options = { "webkitgtk:browserOptions": { binary: browser, args: ["--automation"] } };
  const capabilities = { alwaysMatch: { ...options, pageLoadStrategy: "none" } };
  const session = await until(() => ask("POST", "", { capabilities }).catch(retryRefused));
  assert.ok(session, "WebKit's driver does not answer");
  const its = `/${session.sessionId}`;
  try {
    await ask("POST", `${its}/url`, { url });
    const script = { script: `return ${PRINTED}`, args: [] };
    const printed = await until(() => ask("POST", `${its}/execute/sync`, script).catch(() => null));
    assert.ok(printed, `${url} printed nothing in WebKit`);
    return { printed, seen: [] };
  } finally {
    await ask("DELETE", its).catch(() => {});
  }
}

/** The port that a driver listens at. Another program may take it first: then the driver ends, and gets another one. */
async function startDriver(context, env) {
  for (let tries = 0; tries < 5; tries++) {
    const port = await freePort();
    const driver = spawn("WebKitWebDriver", [`--port=${port}`], { env, stdio: "ignore", detached: true });
    context.after(() => ended(driver));
    const over = new Promise((resolve) => driver.once("exit", () => resolve(false)));
    const ready = until(async () => {
      if (driver.exitCode !== null) return { own: false };
      const answer = await fetch(`http://127.0.0.1:${port}/status`).catch(() => null);
      return answer && { own: "value" in (await answer.json().catch(() => ({}))) };
    }).then((found) => found?.own);
    // One that answers there may be the other program.
    if ((await Promise.race([over, ready])) && (await Promise.race([over, sleep(200, true)]))) return port;
  }
  throw new Error("WebKitWebDriver does not start");
}

/** The driver is not listening yet. */
function retryRefused(error) {
  if (error.cause?.code === "ECONNREFUSED") return null;
  throw error;
}

function found(part, file) {
  assert.ok(existsSync(file), `no browser at ${file}: \`scripts/setup.sh ${part}\` installs it`);
  return file;
}

/** A program of its own process group, by when it has printed what it is waited for. */
function started(context, program, args, wanted) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], detached: true });
  context.after(() => ended(child));
  return new Promise((resolve, reject) => {
    let printed = "";
    const look = (chunk) => {
      printed += chunk;
      const match = wanted.exec(printed);
      if (match) resolve({ child, match });
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`${program} ended with ${code}:\n${printed}`)));
  });
}

/** Ends a program and what it has started. */
async function ended(child) {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const exit = new Promise((resolve) => child.once("exit", resolve));
  process.kill(-child.pid, "SIGKILL");
  await exit;
}

async function until(get, patience = PATIENCE) {
  for (const end = Date.now() + patience; Date.now() < end; await sleep(100)) {
    const value = await get();
    if (value) return value;
  }
  return null;
}

async function freePort() {
  const { createServer } = await import("node:net");
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

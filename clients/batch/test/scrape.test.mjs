/** What the files of deploy/ ask of jobs, asked of a Prometheus that has scraped them: a scrape adds labels of its own. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openMetrics, submit } from "@ternlight/batch";
import { broker, freePort, missing } from "./support/brokers.mjs";
import { IDENTITY, rows } from "./support/lines.mjs";

const PROMETHEUS = process.env.PROMETHEUS ?? "/usr/bin/prometheus";
const deploy = (name) => readFile(fileURLToPath(new URL(`../../../deploy/${name}`, import.meta.url)), "utf8");
const why = missing("redis") ?? (existsSync(PROMETHEUS) ? null : "prometheus (Debian's package prometheus)");

test("jobs stay apart in a scrape", why ? { skip: `${why} is not installed` } : {}, async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), "ternlight-scrape-"));
  const queue = await broker("redis");
  const place = { queue: queue.url, folder: path.join(folder, "jobs") };
  const give = (lines) => submit({ ...place, rows: rows(lines), identity: IDENTITY, model: "m", chunk: 4 });
  const jobs = [await give(400), await give(800)];
  const metrics = await openMetrics(place);
  let away = false;
  const server = createServer(async (_, response) => {
    if (away) return response.writeHead(503).end();
    response.setHeader("content-type", "text/plain; version=0.0.4");
    response.end(await metrics.text());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const targets = [`127.0.0.1:${server.address().port}`];
  const config = {
    global: { scrape_interval: "500ms", scrape_timeout: "500ms" },
    scrape_configs: [{ job_name: "ternlight-batch", static_configs: [{ targets }] }],
  };
  // YAML knows JSON.
  await writeFile(path.join(folder, "prometheus.yml"), JSON.stringify(config));
  const port = await freePort();
  const flags = [`--config.file=${folder}/prometheus.yml`, `--storage.tsdb.path=${folder}/tsdb`];
  const child = spawn(PROMETHEUS, [...flags, `--web.listen-address=127.0.0.1:${port}`], { stdio: "ignore" });
  context.after(async () => {
    child.kill("SIGKILL");
    await once(child, "exit");
    server.closeAllConnections();
    server.close();
    await metrics.close();
    await queue.end();
    await rm(folder, { recursive: true, force: true });
  });
  const ask = async (query) => {
    const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(query)}`;
    const found = await fetch(url)
      .then((response) => response.json())
      .catch(() => null);
    return found?.data?.result.map(({ metric, value }) => ({ ...metric, value: Number(value[1]) })) ?? [];
  };
  for (let tries = 0; tries < 200 && (await ask("ternlight_batch_job_chunks")).length === 0; tries++)
    await new Promise((resolve) => setTimeout(resolve, 50));

  const [, scaled] = /^ +query: (.*job_chunks.*)$/m.exec(await deploy("kubernetes/batch.yaml"));
  assert.deepEqual(await ask(scaled), [{ value: 300 }]);
  const { panels } = JSON.parse(await deploy("grafana/dashboards/batches.json"));
  const targetsOf = panels.flatMap(({ targets = [] }) => targets.filter(({ expr }) => expr.includes("job_chunks")));
  assert.equal(targetsOf.length, 2);
  for (const { expr, legendFormat } of targetsOf) {
    const found = await ask(expr.replace("$queue", ".*"));
    if (expr.startsWith("sum")) assert.deepEqual(found, [{ value: 300 }]);
    else {
      const own = jobs.map(({ id, chunks }) => ({ batch_job: id, model: "m", value: chunks }));
      assert.deepEqual(
        found.toSorted((a, b) => a.value - b.value),
        own,
      );
      for (const [, label] of legendFormat.matchAll(/\{\{(\w+)\}\}/g)) assert.ok(label in found[0], label);
    }
  }
  const [, standing] = /TernlightJobStands\n +expr: >-\n +.*\n +and (.*)/.exec(await deploy("prometheus/alerts.yml"));
  assert.deepEqual((await ask(standing)).map((one) => one.batch_job).sort(), jobs.map(({ id }) => id).sort());
  // A scrape that is missing ends series, and no worker.
  away = true;
  for (let tries = 0; tries < 200 && (await ask("up == 0")).length === 0; tries++)
    await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(await ask("ternlight_batch_job_chunks"), []);
  assert.deepEqual(await ask(scaled), [{ value: 300 }]);
});

/** Compose files and manifests of deploy/: read as YAML, what they name of each other is there, and their servers have what is asked of them. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { get } from "node:http";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { runtimes, serve } from "../server/support/command.ts";

const run = promisify(execFile);
const deploy = fileURLToPath(new URL("../../../deploy/", import.meta.url));
const demo = fileURLToPath(new URL("../../models/ternlight-demo/", import.meta.url));

interface Container {
  name: string;
  image: string;
  command?: string[];
  args?: string[];
  env?: { name: string }[];
  ports?: { name: string; containerPort: number }[];
  volumeMounts: { name: string }[];
  [probe: `${string}Probe`]: { httpGet: { path: string; port: string } } | undefined;
}

interface Pods {
  metadata: { labels: Record<string, string>; annotations?: Record<string, string> };
  spec: { containers: Container[]; volumes: { name: string }[]; enableServiceLinks?: boolean };
}

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  // biome-ignore lint/suspicious/noExplicitAny: each kind has its own.
  spec: any;
}

interface Service {
  build?: { dockerfile: string };
  image?: string;
  entrypoint?: string[];
  command?: string[];
  environment?: Record<string, string>;
  volumes?: string[];
  depends_on?: string[];
}

interface Compose {
  services: Record<string, Service>;
  volumes: Record<string, unknown>;
}

interface Scrape {
  job_name: string;
  dns_sd_configs: { names: string[]; port: number }[];
}

/** The documents of YAML files, each file's by themselves, as Bun reads them. */
async function parsed(names: readonly string[]): Promise<unknown[][]> {
  const program =
    "const read = async (name) => [Bun.YAML.parse(await Bun.file(name).text())].flat();" +
    "console.log(JSON.stringify(await Promise.all(process.argv.slice(1).map(read))))";
  const [bun] = runtimes.Bun!;
  const files = names.map((name) => path.join(deploy, name));
  return JSON.parse((await run(bun!, ["-e", program, ...files])).stdout);
}

const documents = async <T>(name: string) => (await parsed([name]))[0] as T[];

/** Files of deploy/ and below. */
async function files(): Promise<string[]> {
  const entries = await readdir(deploy, { recursive: true, withFileTypes: true });
  const found = entries.filter((entry) => entry.isFile());
  return found.map((entry) => path.relative(deploy, path.join(entry.parentPath, entry.name)));
}

const manifests = async () =>
  (
    await Promise.all(["ternlight", "keda", "batch"].map((name) => documents<Manifest>(`kubernetes/${name}.yaml`)))
  ).flat();

/** Whether every label that is asked for is there. */
const holds = (labels: Record<string, string>, asked: Record<string, string>) =>
  Object.entries(asked).every(([name, value]) => labels[name] === value);

test("manifests name what is there: labels, ports, volumes and what is scaled", async () => {
  const all = await manifests();
  const deployments = all.filter(({ kind }) => kind === "Deployment");
  const pods = all.flatMap(({ kind, spec }): Pods[] =>
    kind === "Deployment" || kind === "Job" ? [spec.template] : [],
  );
  assert.ok(pods.length >= 4);
  for (const { metadata, spec } of pods) {
    // Variables of services have names of flags: a service called ternlight makes TERNLIGHT_PORT.
    assert.equal(spec.enableServiceLinks, false, JSON.stringify(metadata.labels));
    const volumes = new Set(spec.volumes.map(({ name }) => name));
    const ports = spec.containers.flatMap(({ ports = [] }) => ports);
    for (const container of spec.containers) {
      for (const { name } of container.volumeMounts) assert.ok(volumes.has(name), name);
      for (const [key, probe] of Object.entries(container))
        if (key.endsWith("Probe"))
          assert.ok(
            ports.some(({ name }) => name === probe.httpGet.port),
            key,
          );
    }
    const scraped = metadata.annotations?.["prometheus.io/port"];
    if (scraped)
      assert.ok(
        ports.some(({ containerPort }) => String(containerPort) === scraped),
        scraped,
      );
  }
  for (const { spec } of deployments) assert.ok(holds(spec.template.metadata.labels, spec.selector.matchLabels));
  for (const { apiVersion, kind, metadata, spec } of all) {
    assert.ok(apiVersion && kind && /^[a-z-]+$/.test(metadata.name), JSON.stringify({ apiVersion, kind, metadata }));
    if (kind === "ScaledObject")
      assert.ok(
        deployments.some(({ metadata }) => metadata.name === spec.scaleTargetRef.name),
        metadata.name,
      );
    if (kind !== "Service") continue;
    const found = pods.find(({ metadata }) => holds(metadata.labels, spec.selector));
    const names = found!.spec.containers.flatMap(({ ports = [] }) => ports.map(({ name }) => name));
    for (const { targetPort } of spec.ports) assert.ok(names.includes(targetPort), targetPort);
  }
});

test("Prometheus in the cluster finds the pods under the job that the rules know", async () => {
  const [{ scrape_configs }] = (await documents("prometheus/kubernetes.yml")) as [{ scrape_configs: Scrape[] }];
  const [{ job_name, dns_sd_configs }] = scrape_configs as [Scrape];
  assert.match(
    await readFile(path.join(deploy, "prometheus/alerts.yml"), "utf8"),
    new RegExp(`up\\{job="${job_name}"\\}`),
  );
  const [{ names, port }] = dns_sd_configs as [{ names: string[]; port: number }];
  const service = (await manifests()).find(
    ({ kind, metadata }) => kind === "Service" && metadata.name === names[0]!.split(".")[0],
  );
  assert.deepEqual([service?.spec.clusterIP, service?.spec.ports[0].port], ["None", port]);
  // Else a pod whose model is not there vanishes, and no alert can be raised for it.
  assert.equal(service?.spec.publishNotReadyAddresses, true);
});

const COMPOSES = ["compose.yaml", "compose.batch.yaml"];

test("every file of YAML or JSON is read, and none is empty", async () => {
  const names = (await files()).filter((name) => /\.(?:ya?ml|json)$/.test(name));
  assert.ok(names.length >= 13, names.join(" "));
  // JSON is YAML.
  for (const [i, found] of (await parsed(names)).entries())
    for (const document of found) assert.ok(document && typeof document === "object", names[i]);
  for (const name of names.filter((name) => name.endsWith(".json")))
    JSON.parse(await readFile(path.join(deploy, name), "utf8"));
});

test("Grafana finds its dashboards and their source where compose mounts them", async () => {
  const [[providers], [sources]] = (await parsed([
    "grafana/provisioning/dashboards/ternlight.yaml",
    "grafana/provisioning/datasources/prometheus.yaml",
  ])) as [[{ providers: { options: { path: string } }[] }], [{ datasources: { uid: string; url: string }[] }]];
  const { uid, url } = sources.datasources[0]!;
  for (const name of COMPOSES) {
    const [{ services }] = (await documents<Compose>(name)) as [Compose];
    const mounts = services.grafana!.volumes!.map((mount) => mount.split(":"));
    assert.ok(
      mounts.some(([, target]) => target === providers.providers[0]!.options.path),
      name,
    );
    assert.ok(services[new URL(url).hostname], url);
    const [, config] = /^--config\.file=\/etc\/prometheus\/(\S+)$/m.exec(services.prometheus!.command!.join("\n"))!;
    assert.ok(existsSync(path.join(deploy, "prometheus", config!)), config);
  }
  for (const name of ["ternlight", "batches"]) {
    const { panels } = JSON.parse(await readFile(path.join(deploy, `grafana/dashboards/${name}.json`), "utf8"));
    for (const { datasource, title } of panels) assert.equal(datasource.uid, uid, title);
  }
});

test("compose files name what is there: services and volumes", async () => {
  for (const name of COMPOSES) {
    const [{ services, volumes }] = (await documents<Compose>(name)) as [Compose];
    assert.ok(Object.keys(services).length >= 3, name);
    for (const [service, { depends_on = [], volumes: mounts = [], ...rest }] of Object.entries(services)) {
      assert.ok(rest.image ?? rest.build, service);
      for (const other of Object.keys(
        Array.isArray(depends_on) ? Object.fromEntries(depends_on.map((one) => [one, 1])) : depends_on,
      ))
        assert.ok(services[other], `${name}: ${service} depends on ${other}`);
      for (const mount of mounts) {
        const [, volume] = /^([\w-]+):/.exec(mount) ?? [];
        const [, folder] = /^(\.\/[^:]+):/.exec(mount) ?? [];
        if (folder) assert.ok(existsSync(path.join(deploy, folder)), `${name}: ${service} mounts ${folder}`);
        if (volume) assert.ok(volume in volumes, `${name}: ${service} mounts ${volume}`);
      }
    }
  }
});

/** A container of ours: what comes behind the command line's program, and the variables that stand for flags. */
interface Call {
  where: string;
  words: string[];
  variables: string[];
}

/** What the image runs where a file says nothing else. */
async function imageCommand(): Promise<string[]> {
  const [, list] = /^ENTRYPOINT (\[.*\])$/m.exec(await readFile(path.join(deploy, "Dockerfile"), "utf8"))!;
  return JSON.parse(list!);
}

async function calls(): Promise<Call[]> {
  const image = await imageCommand();
  const call = (where: string, words: string[], names: string[]): Call => {
    const program = words.findIndex((word) => word.endsWith("/ternlight/dist/cli.js"));
    assert.ok(program > 0, `${where}: ${words.join(" ")}`);
    const variables = names.filter((name) => name.startsWith("TERNLIGHT_"));
    return { where, words: words.slice(program + 1), variables };
  };
  const pods = (await manifests()).flatMap(({ metadata, spec }) =>
    ((spec.template?.spec.containers ?? []) as Container[]).map(
      ({ image: of, command = image, args = [], env = [] }) => {
        assert.match(of, /^ternlight:/, metadata.name);
        const names = env.map(({ name }) => name);
        return call(metadata.name, [...command, ...args], names);
      },
    ),
  );
  const composes = await parsed(COMPOSES);
  const services = composes.flatMap(([compose], i) =>
    Object.entries((compose as Compose).services)
      .filter(([, { build }]) => build?.dockerfile === "deploy/Dockerfile")
      .map(([name, { entrypoint = image, command = [], environment = {} }]) =>
        call(`${COMPOSES[i]}: ${name}`, [...entrypoint, ...command], Object.keys(environment)),
      ),
  );
  return [...pods, ...services];
}

const cli = fileURLToPath(new URL("../../dist/cli.js", import.meta.url));

/** Flags of a command by their names, and whether each takes a value. */
async function flagsOf(command: readonly string[]): Promise<Map<string, boolean>> {
  const { stdout } = await run(process.execPath, [cli, ...command, "--help"]);
  return new Map(
    Array.from(stdout.matchAll(/^ {2}(--[a-z0-9-]+)( \S+)?/gm), ([, name, value]) => [name!, !!value?.trim()]),
  );
}

test("every command of ours in a manifest or a compose file has the flags and values that it is given", async () => {
  const all = await calls();
  assert.ok(all.length >= 8, String(all.length));
  let given = 0;
  for (const { where, words, variables } of all) {
    const [command, second] = words;
    const path = second === "worker" || second === "status" ? [command!, second] : [command!];
    const flags = await flagsOf(path);
    for (const variable of variables) {
      const flag = `--${variable.slice("TERNLIGHT_".length).toLowerCase().replaceAll("_", "-")}`;
      assert.ok(flags.get(flag), `${where}: ${variable}`);
    }
    const rest = words.slice(path.length);
    for (const [i, word] of rest.entries()) {
      if (!word.startsWith("--")) continue;
      given++;
      assert.ok(flags.has(word), `${where}: ${path.join(" ")} has no ${word}`);
      const valued = i + 1 < rest.length && !rest[i + 1]!.startsWith("--");
      // A flag without a value may stand before an operand, but none of these files has one there.
      assert.equal(valued, flags.get(word), `${where}: ${word}`);
    }
  }
  assert.ok(given > 12, String(given));
});

test("probes of servers ask for what they answer", async (context) => {
  const server = await serve(context);
  const servers = (await manifests()).flatMap(({ spec }) =>
    ((spec.template?.spec.containers ?? []) as Container[]).filter(({ command }) => !command),
  );
  let asked = 0;
  for (const container of servers)
    for (const [key, probe] of Object.entries(container)) {
      if (!key.endsWith("Probe")) continue;
      asked++;
      const { httpGet } = probe as { httpGet: { path: string } };
      assert.equal((await fetch(server.url + httpGet.path)).status, 200, httpGet.path);
    }
  assert.equal(asked, 3);
});

test("Prometheus of compose and clients in the cluster ask for names that the servers know", async (context) => {
  const [compose] = (await documents<Compose>("compose.yaml")) as [Compose];
  const [{ scrape_configs }] = (await documents("prometheus/prometheus.yml")) as [
    { scrape_configs: { static_configs: { targets: string[] }[] }[] },
  ];
  const targets = scrape_configs.flatMap(({ static_configs }) => static_configs.flatMap(({ targets }) => targets));
  assert.ok(targets.length > 0);
  const all = await manifests();
  const [service] = all.filter(({ kind, spec }) => kind === "Service" && spec.clusterIP !== "None");
  const { name } = service!.metadata;
  const pod = all.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === name)!.spec.template.spec;
  const servers: [string[], string[]][] = [
    [compose.services.ternlight!.command!, targets],
    [pod.containers[0].args, [name, `${name}.default`, `${name}.default.svc.cluster.local`]],
  ];
  for (const [[, ...flags], names] of servers) {
    const { port } = new URL((await serve(context, [`model=${demo}`, ...flags, "--host", "0.0.0.0"])).url);
    const status = (host: string) =>
      new Promise((resolve, reject) => {
        get({ port, host: "127.0.0.1", path: "/metrics", headers: { host } }, (response) =>
          resolve(response.resume().statusCode),
        ).on("error", reject);
      });
    for (const one of [...names, "10.0.0.7:8000"]) assert.equal(await status(one), 200, one);
    assert.equal(await status("evil.example"), 403);
  }
});

/** Names of metrics of a server with the flags that a file gives it. */
async function metricsWith(context: TestContext, args: readonly string[]) {
  const [model, ...flags] = args;
  assert.match(model!, /^model=/);
  const server = await serve(context, [`model=${demo}`, ...flags]);
  const ask = { model: "model", prompt: "Once", max_tokens: 2 };
  const headers = { "content-type": "application/json" };
  const { status } = await fetch(`${server.url}/v1/completions`, {
    method: "POST",
    headers,
    body: JSON.stringify(ask),
  });
  assert.equal(status, 200);
  const text = await (await fetch(`${server.url}/metrics`)).text();
  return { text, names: new Set(Array.from(text.matchAll(/^([a-z:_]+)(?:\{| )/gim), ([, name]) => name!)) };
}

const named = (text: string) =>
  new Set(
    Array.from(text.matchAll(/\b(?:ternlight_(?!batch_)[a-z_]{4,}|vllm:[a-z_]+|process_[a-z_]+)\b/g), ([name]) => name),
  );

test("servers of the manifest and of compose have what rules, dashboard and KEDA ask for", async (context) => {
  const read = (name: string) => readFile(path.join(deploy, name), "utf8");
  const [{ groups }] = (await documents<{ groups: { name: string }[] }>("prometheus/alerts.yml")) as [
    { groups: { name: string }[] },
  ];
  const rules = JSON.stringify(groups.find(({ name }) => name === "ternlight"));
  const all = await manifests();
  const queries = all
    .filter(({ kind, metadata }) => kind === "ScaledObject" && metadata.name === "ternlight")
    .flatMap(({ spec }): string[] => spec.triggers.map((one: { metadata: { query: string } }) => one.metadata.query));
  assert.equal(queries.length, 1);
  const asked = named([rules, await read("grafana/dashboards/ternlight.json"), ...queries].join());
  assert.ok(asked.size > 20, String(asked.size));
  const manifest = all.find(({ kind, metadata }) => kind === "Deployment" && metadata.name === "ternlight")!;
  const [compose] = (await documents<Compose>("compose.yaml")) as [Compose];
  for (const args of [manifest.spec.template.spec.containers[0].args, compose.services.ternlight!.command!]) {
    const { names, text } = await metricsWith(context, args);
    assert.deepEqual(
      [...asked].filter((name) => !names.has(name)),
      [],
      args.join(" "),
    );
    // Labels that the query selects by.
    for (const [, selector] of queries.join().matchAll(/(\w+\{[^}]*)\}/g))
      assert.ok(text.includes(selector!), selector);
    for (const signal of ["weights", "kvEntropy"])
      assert.match(text, new RegExp(`ternlight_health_state\\{[^}]*signal="${signal}"`));
  }
});

/** The clients in Python that are small; `make conformance` runs the others. */
import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const path = (name) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
const folder = path(".cache/python-clients");
const script = path("pkg/test/conformance/conformance.py");
const installed = existsSync(`${folder}/.installed`);

/** Whether an environment can be made; `scripts/setup.sh` tries to install what it takes, and fails where it cannot. */
const possible = () => spawnSync(process.env.PYTHON ?? "python3", ["-c", "import ensurepip"]).status === 0;
const skip = installed || possible() ? false : "there is no Python 3 with venv here, and none could be installed";

for (const client of ["openai", "openai-batches", "llm"]) {
  test(`${client}, in Python`, { skip, timeout: 120_000 }, async () => {
    assert.ok(installed, "the clients in Python are missing: please run scripts/setup.sh python-clients");
    // It fails with what the client said.
    await promisify(execFile)(`${folder}/bin/python`, [script, process.execPath, path("pkg/dist/cli.js"), client]);
  });
}

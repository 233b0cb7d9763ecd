/** A Next.js app, built and served as its own tools do it, with nothing configured but the two headers. */
import { cp, mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { demoModel, emptyFolderWithPackage, expectAnswer, host, open, recipe, run, startServer } from "./support.mjs";

const layout = `
  export default function Layout({ children }) {
    return <html lang="en"><body>{children}</body></html>;
  }
`;

const page = `
  "use client";
  import { useEffect, useState } from "react";
  import { program } from "../program.js";

  export default function Page() {
    const [printed, show] = useState("");
    useEffect(() => {
      program("./model/").then(show, (error) => show(\`failed: \${error.stack}\`));
    }, []);
    return <output>{printed}</output>;
  }
`;

test("Next.js", async (context) => {
  // Beside its own packages: it follows no links out of its root.
  const root = path.dirname(host(""));
  const folder = await emptyFolderWithPackage(path.join(root, "app-"));
  await mkdir(path.join(folder, "app"));
  await writeFile(path.join(folder, "app", "layout.jsx"), layout);
  await writeFile(path.join(folder, "app", "page.jsx"), page);
  await cp(demoModel, path.join(folder, "public", "model"), { recursive: true });
  const next = host("next/dist/bin/next");
  const env = { ...process.env, NEXT_TELEMETRY_DISABLED: "1" };

  const alone = `{ turbopack: { root: ${JSON.stringify(root)} } }`;
  const documented = (await recipe("docs/guide/threads.md", "headers: () =>")).replace(
    /^export default/m,
    "const config =",
  );

  for (const [name, config, flavour] of [
    ["isolated", `${documented}export default { ...config, ...${alone} };\n`, "threads-relaxed"],
    ["not isolated", `export default ${alone};\n`, "single-relaxed"],
  ]) {
    await context.test(name, { timeout: 180_000 }, async (context) => {
      await writeFile(path.join(folder, "next.config.mjs"), config);
      await run(process.execPath, [next, "build"], { cwd: folder, env });
      const start = [next, "start", "-H", "127.0.0.1", "-p", "0"];
      const url = await startServer(context, process.execPath, start, { cwd: folder, env }, /http:\/\/\S+:\d+/);
      const { printed } = await open(context, url);
      await expectAnswer(printed, { flavour });
    });
  }
});

// Checks that a dashboard for Grafana has the types that Grafana itself gives to its dashboards, its panels and their
// fields. A name that Grafana does not know is a mistake too.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const [, , path] = process.argv;
// It is not on the disk: TypeScript is told that it lies here, where the packages are found.
const here = fileURLToPath(new URL("grafana.ts", import.meta.url));
const text = `import type { Dashboard } from "@grafana/schema";\nexport const dashboard: Dashboard = ${readFileSync(path, "utf8")};\n`;
const options = {
  noEmit: true,
  strict: true,
  skipLibCheck: true,
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler,
};
const host = ts.createCompilerHost(options);
const { fileExists, readFile } = host;
host.fileExists = (name) => name === here || fileExists(name);
host.readFile = (name) => (name === here ? text : readFile(name));
const program = ts.createProgram([here], options, host);
const found = ts.getPreEmitDiagnostics(program);
for (const { file, start, messageText } of found) {
  // The import comes before the dashboard's first line.
  const line = file === undefined ? 0 : file.getLineAndCharacterOfPosition(start ?? 0).line;
  console.error(`${path}:${line}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}
process.exit(found.length > 0 ? 1 : 0);

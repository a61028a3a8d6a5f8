// Runs the binary that the environment variable RATEKEEPER names, on ports that are free.

import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const BINARY = process.env["RATEKEEPER"];

/** A running service or gateway. */
export class Running {
  readonly folder: string;
  readonly #child: ChildProcess;
  readonly #addresses: Map<string, string>;

  constructor(child: ChildProcess, folder: string, addresses: Map<string, string>) {
    this.#child = child;
    this.folder = folder;
    this.#addresses = addresses;
  }

  /** The URL of a listener by its name in what the binary prints. */
  url(name: string): string {
    const address = this.#addresses.get(name.toLowerCase());
    if (!address) throw new Error(`there is no ${name} among ${[...this.#addresses.keys()].join(", ")}`);
    return `http://${address}`;
  }

  writeRules(rules: string): void {
    writeFileSync(join(this.folder, "rules.yaml"), rules);
  }

  async stop(): Promise<void> {
    const ended = once(this.#child, "exit");
    // Its whole group: a program that runs the binary may have forked to do so.
    if (this.#child.pid !== undefined) process.kill(-this.#child.pid, "SIGKILL");
    await ended;
    // Pipes that are not read to their end keep this process alive.
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Starts the binary with rules, and waits until it listens. `around` is a program that runs it, with its arguments. */
export async function start(rules: string, args: readonly string[], around: readonly string[] = []): Promise<Running> {
  if (!BINARY) throw new Error("the variable RATEKEEPER must name the binary");
  const folder = mkdtempSync(join(tmpdir(), "ratekeeper-"));
  writeFileSync(join(folder, "rules.yaml"), rules);
  const [program = "", ...rest] = [...around, BINARY, ...args, "--rules", "rules.yaml", "--admin", "127.0.0.1:0", "--drain-delay", "0s"];
  const child = spawn(program, rest, { cwd: folder, stdio: ["ignore", "pipe", "pipe"], detached: true, env: { PATH: process.env["PATH"] } });
  const addresses = new Map<string, string>();
  let said = "";
  child.stderr.on("data", (text: Buffer) => { said += text.toString(); });
  for await (const line of createInterface({ input: child.stdout })) {
    said += `${line}\n`;
    const [, name, address] = /^\s*(\S+)\s+listening on\s+(?:http:\/\/)?(\S+)/.exec(line) ?? [];
    if (name && address) addresses.set(name.toLowerCase(), address);
    if (line.startsWith("Try:")) return new Running(child, folder, addresses);
  }
  throw new Error(`it ended before it listened: ${said}`);
}

export function startService(rules: string): Promise<Running> {
  return start(rules, ["serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]);
}

export function startGateway(rules: string, upstream: string, args: readonly string[] = [], around: readonly string[] = []): Promise<Running> {
  return start(rules, ["gateway", "--listen", "127.0.0.1:0", "--upstream", upstream, ...args], around);
}

/** A server of a test. */
export class Serving {
  readonly #server: Server;
  readonly url: string;

  constructor(server: Server) {
    this.#server = server;
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }
}

export async function serve(listener: RequestListener): Promise<Serving> {
  const server = createServer(listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return new Serving(server);
}

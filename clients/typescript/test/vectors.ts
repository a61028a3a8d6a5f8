// Reads the vectors that all clients share.

import { readFileSync } from "node:fs";

/** The contents of a file of vectors. */
export function vectors<T>(file: string): T[] {
  const text = readFileSync(new URL(`../../vectors/${file}`, import.meta.url), "utf8");
  return (JSON.parse(text) as { vectors: T[] }).vectors;
}

// Draws what clients sent over time: requests that passed, and on top of them those that were denied.

export interface Point {
  /** Milliseconds. */
  readonly at: number;
  readonly denied: boolean;
}

/** A batch run by a client: its answers in their order. */
export interface Run {
  readonly client: string;
  readonly batch: string;
  readonly points: readonly Point[];
}

const [WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM] = [720, 300, 64, 36, 16, 36];
const STEPS = 120;

/** Two panels side by side with the same scales, as SVG. */
export function draw(runs: readonly Run[]): string {
  const longest = Math.max(...runs.map(({ points }) => (points.at(-1)?.at ?? 0) - (points[0]?.at ?? 0)));
  const most = Math.max(...runs.map(({ points }) => points.length));
  const panels = runs.map((run, at) => panel(run, at * (WIDTH / runs.length), WIDTH / runs.length, longest, most));
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>
${panels.join("\n")}
</svg>
`;
}

function panel({ client, points }: Run, left: number, width: number, longest: number, most: number): string {
  const start = points[0]?.at ?? 0;
  const [x0, x1, y0, y1] = [left + LEFT, left + width - RIGHT, HEIGHT - BOTTOM, TOP];
  const x = (ms: number): string => (x0 + ((x1 - x0) * ms) / longest).toFixed(1);
  const y = (count: number): string => (y0 - ((y0 - y1) * count) / most).toFixed(1);
  const [passed, sent]: [string[], string[]] = [[], []];
  let [next, allowed] = [0, 0];
  for (let step = 0; step <= STEPS; step++) {
    const until = (longest * step) / STEPS;
    for (; next < points.length && (points[next]?.at ?? 0) - start <= until; next++) if (!points[next]?.denied) allowed += 1;
    passed.push(`${x(until)},${y(allowed)}`);
    sent.push(`${x(until)},${y(next)}`);
  }
  const area = (upper: string[], colour: string): string => `<polygon points="${x0},${y0} ${upper.join(" ")} ${x1},${y0}" fill="${colour}"/>`;
  const text = (px: number, py: number, words: string, anchor = "middle"): string => `<text x="${px}" y="${py}" text-anchor="${anchor}">${words}</text>`;
  return [
    area(sent, "#d9534f"),
    area(passed, "#4a90c2"),
    `<path d="M${x0} ${y1}V${y0}H${x1}" fill="none" stroke="#333"/>`,
    text((x0 + x1) / 2, 20, client.replaceAll("*", "")),
    text(x0 - 6, y0, "0", "end"),
    text(x0 - 6, y1 + 4, most.toLocaleString("en"), "end"),
    text(x0, y0 + 16, "0 s"),
    text(x1 - 12, y0 + 16, `${(longest / 1000).toFixed(0)} s`),
    text((x0 + x1) / 2, y0 + 30, "blue: passed; red: denied"),
  ].join("\n");
}

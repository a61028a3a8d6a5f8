/** The two charts: answers by second, and how long checks took. */

import uPlot from "uplot";
import type { Second } from "./types";
import { micros, rate } from "./words";

const HOUR = 3_600;

/** The seconds that charts show; they are kept for an hour, as the server keeps them. */
export class History {
  private seconds: Second[] = [];

  replace(seconds: Second[]): void {
    this.seconds = seconds.slice(-HOUR);
  }

  push(second: Second): void {
    this.seconds.push(second);
    if (this.seconds.length > HOUR) this.seconds.splice(0, this.seconds.length - HOUR);
  }

  /**
   * The milliseconds from the end of a second until now, over gaps in the stream; 0 if nobody remembers that second.
   * Ends are whole seconds and tell lengths only roughly.
   */
  msSince(second: Second): number {
    const found = this.seconds.findLastIndex(({ at, span_ms }) => at === second.at && span_ms === second.span_ms);
    if (found < 0) return 0;
    const told = this.seconds.slice(found + 1).reduce((sum, { span_ms }) => sum + span_ms, 0);
    // A page that slept was not told of some.
    const apart = (this.seconds.at(-1)?.at ?? second.at) - second.at;
    return Math.max(told, (apart - 2) * 1_000);
  }

  last(count: number): Second[] {
    return this.seconds.slice(-count);
  }
}

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

interface Line {
  label: string;
  color: string;
  dash?: number[];
  read: (second: Second) => number | null;
}

const perSecond = (value: number, second: Second): number => (value * 1_000) / Math.max(1, second.span_ms);

const ANSWERS: Line[] = [
  { label: "allowed", color: "--allowed", read: (it) => perSecond(it.allowed, it) },
  { label: "denied", color: "--denied", read: (it) => perSecond(it.denied, it) },
  { label: "would be denied", color: "--shadow", dash: [6, 3], read: (it) => perSecond(it.shadow_denied, it) },
  { label: "by failure mode", color: "--degraded", dash: [2, 3], read: (it) => perSecond(it.degraded, it) },
  { label: "refused by overload", color: "--shed", dash: [8, 2, 2, 2], read: (it) => perSecond(it.shed, it) },
];

const DURATIONS: Line[] = [
  { label: "p50", color: "--allowed", read: (it) => onLogScale(it.p50_us) },
  { label: "p99", color: "--denied", dash: [6, 3], read: (it) => onLogScale(it.p99_us) },
];

/** A logarithm has no place for zero. */
const SHORTEST_US = 0.1;

function onLogScale(micros: number | null): number | null {
  return micros === null ? null : Math.max(SHORTEST_US, micros);
}

/** Whole decades, so that the median is seen beside durations a hundred times as long. */
const decades: uPlot.Range.Function = (_, least: number | null, most: number | null) => {
  if (least === null || most === null) return [1, 1_000];
  const low = 10 ** Math.floor(Math.log10(least));
  return [low, Math.max(low * 10, 10 ** Math.ceil(Math.log10(most)))];
};

export class Chart {
  private readonly plot: uPlot;
  private readonly lines: Line[];
  private readonly resized: ResizeObserver;

  private constructor(at: HTMLElement, lines: Line[], shown: (value: number) => string, y: uPlot.Scale) {
    this.lines = lines;
    const axis = (): Partial<uPlot.Axis> => ({
      stroke: () => color("--muted"),
      grid: { stroke: () => color("--line"), width: 1 },
      ticks: { stroke: () => color("--line"), width: 1 },
      font: "12px system-ui, sans-serif",
    });
    this.plot = new uPlot(
      {
        width: Math.max(200, at.clientWidth),
        height: 150,
        // Room for the last label of the time axis.
        padding: [8, 28, 0, 0],
        cursor: { drag: { x: false, y: false } },
        // Without a pointer over the chart, the legend tells the latest values.
        hooks: {
          setLegend: [
            (plot) => {
              const last = plot.data[0].length - 1;
              if (last >= 0 && (plot.cursor.left ?? -1) < 0) plot.setLegend({ idx: last }, false);
            },
          ],
        },
        // As all times of the page.
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1_000), "Etc/UTC"),
        scales: { x: { time: true }, y },
        axes: [
          { ...axis(), space: 90, values: [[1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
          { ...axis(), size: 64, values: (_, ticks) => ticks.map((tick: number | null) => (tick === null ? "" : shown(tick))) },
        ],
        series: [
          { value: "{HH}:{mm}:{ss}" },
          ...lines.map((line) => ({
            label: line.label,
            stroke: () => color(line.color),
            width: 1.5,
            points: { show: false },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : shown(value)),
            ...(line.dash === undefined ? {} : { dash: line.dash }),
          })),
        ],
      },
      [[], ...lines.map(() => [])],
      at,
    );
    this.resized = new ResizeObserver(() => {
      const width = Math.max(200, at.clientWidth);
      if (width !== this.plot.width) this.plot.setSize({ width, height: 150 });
    });
    this.resized.observe(at);
  }

  /** Takes the chart away, to be made again in other colors. */
  destroy(): void {
    this.resized.disconnect();
    this.plot.destroy();
  }

  static answers(at: HTMLElement): Chart {
    return new Chart(at, ANSWERS, rate, { range: (_, __, most) => [0, Math.max(1, most * 1.1)] });
  }

  static durations(at: HTMLElement): Chart {
    return new Chart(at, DURATIONS, micros, { distr: 3, range: decades });
  }

  show(seconds: Second[]): void {
    const values = this.lines.map((line) => seconds.map(line.read));
    this.plot.setData([seconds.map((second) => second.at), ...values]);
  }
}

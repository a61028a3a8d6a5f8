/**
 * A `fetch` that reads rate limits and paces itself ahead of them.
 *
 * @module
 */

export { createFetch, defaultLane, type Fetch, type FetchEvent, type FetchOptions } from "./fetch.ts";
export { Gate, RateLimitError } from "./gate.ts";
export { readRateLimitInfo, type HeaderPairs, type LimitInfo, type RateLimitInfo } from "./info.ts";
export type { Lane, PacerOptions, Ticket } from "./pacer.ts";

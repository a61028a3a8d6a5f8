/** Dialogs: the switch of a rule, a token. */

import { type Refused, send, setToken } from "./api";
import { why } from "./tenant";
import { fill, h, showDialog } from "./dom";
import type { Rule } from "./types";

function dialog(title: string, ...content: (Node | string)[]): HTMLDialogElement {
  const close = h("button", { class: "close", "aria-label": "Close", click: () => element.close() }, "×");
  const head = h("header", {}, h("h2", {}, title), close);
  const element = h("dialog", { "aria-label": title }, head, ...content);
  showDialog(element);
  return element;
}

/** What came of a switch, in words. */
export interface Switched {
  rule: string;
  mode: string;
  text: string;
}

/** What the node answers to a switch. */
interface Answer {
  mode: string;
  scope?: string;
  warning?: string;
}

/** A switch in words: the mode that came of it, where, and what the node warns of. */
export function switchedInWords(rule: string, name: string, { mode, scope, warning }: Answer): string {
  const where = scope === "node" ? " on this node alone" : "";
  return `${rule}: ${name}. It is now ${mode}${where}.${warning === undefined ? "" : ` Mind: ${warning}.`}`;
}

/** Asks before a rule is switched, since it changes what the API lets pass. */
export function switchRule(rule: Rule, done: (switched: Switched) => void): void {
  const said = h("p", { role: "status", class: "said" });
  const choose = (name: string, note: string, method: "POST" | "DELETE", verb: string): HTMLElement =>
    h(
      "button",
      {
        class: "choice",
        click: () => {
          fill(said, "Switching…");
          send<Answer>(method, `/admin/v1/rules/${encodeURIComponent(rule.id)}/${verb}`).then(
            (answer) => {
              element.close();
              done({ rule: rule.id, mode: answer?.mode ?? rule.mode, text: switchedInWords(rule.id, name, answer ?? rule) });
            },
            (error: unknown) => fill(said, `Not switched: ${why(error)}`),
          );
        },
      },
      h("strong", {}, name),
      h("span", {}, note),
    );
  const element = dialog(
    "Switch a rule",
    h("p", {}, h("code", {}, rule.id), ` is ${rule.mode} now. A switch is in force at the next request, on all nodes of the quota database if there is one.`),
    choose("Shadow", "Decides and counts, and denies nothing.", "POST", "shadow"),
    choose("Off", "Takes no part in any decision.", "POST", "disable"),
    choose("On", "Takes part even if the file turns it off; enforces unless its file has it in shadow mode.", "POST", "enable"),
    choose("As the file says", "Takes the switch away.", "DELETE", "switch"),
    said,
  );
}

/** Asks for a token; it stays in memory until the page is closed. */
export function askToken(at: HTMLElement, refused: Refused, go: () => void): void {
  const field = h("input", { type: "password", autocomplete: "off", id: "token", "data-key": "token" });
  const form = h(
    "form",
    {
      class: "token",
      submit: (event) => {
        event.preventDefault();
        setToken(field.value);
        go();
      },
    },
    h("h2", {}, "This node wants a token"),
    h("p", {}, refused.message),
    h("label", { for: "token" }, "Token of the admin API (a viewer may look, an editor may switch rules)"),
    field,
    h("button", { type: "submit" }, "Connect"),
    h("p", { class: "note" }, "Kept in memory until the page is closed. ", h("code", {}, "ratekeeper token create"), " makes one."),
  );
  fill(at, form);
  field.focus();
}

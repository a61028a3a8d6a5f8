/** Makes elements. Text always becomes a text node, so nothing that a caller sent can become markup. */

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | boolean | EventListener | undefined>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

export function add(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      parent.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
    }
  }
}

/** Replaces all children of an element, and keeps the keyboard where it was: on the element with the same `data-key`. */
export function fill(parent: Element, ...children: Child[]): void {
  const focused = document.activeElement;
  const key = focused !== null && parent.contains(focused) ? focused.getAttribute("data-key") : null;
  parent.replaceChildren();
  add(parent, children);
  if (key !== null) {
    parent.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  }
}

/** The same, unless nothing would change: what is read aloud when it changes must not be read each second. */
export function fillIfNew(parent: Element, ...children: Child[]): void {
  const next = h("div", {}, ...children);
  const isSame = next.childNodes.length === parent.childNodes.length;
  if (isSame && [...next.childNodes].every((child, index) => child.isEqualNode(parent.childNodes[index] ?? null))) return;
  fill(parent, ...next.childNodes);
}

/** Shows a dialog. When it is closed, the keyboard is where it was: lists are drawn anew meanwhile, and what had it is gone. */
export function showDialog(dialog: HTMLDialogElement, closed: () => void = () => {}): void {
  const key = document.activeElement?.getAttribute("data-key") ?? null;
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
    const isLost = document.activeElement === null || document.activeElement === document.body;
    if (key !== null && isLost) {
      document.querySelector<HTMLElement>(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
    }
  });
  document.body.append(dialog);
  dialog.showModal();
}

/** A name that may be broken behind its punctuation, where it is longer than its place. */
export function breakable(text: string): DocumentFragment {
  const parts = document.createDocumentFragment();
  for (const part of text.split(/(?<=[.:_/])/)) parts.append(part, document.createElement("wbr"));
  return parts;
}

/** Sets the text of an element only if it changed, so that screen readers and selections are left alone. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** The folds that a reader has opened or closed, by name; the page is redrawn each second. */
const folds = new Map<string, boolean>();

/** A line that opens on a click, and stays as it was left. */
export function fold(name: string, line: Child, isOpen: boolean, ...children: Child[]): HTMLDetailsElement {
  const element = h(
    "details",
    { open: folds.get(name) ?? isOpen },
    h("summary", { "data-key": `fold ${name}`, click: () => folds.set(name, !element.open) }, line),
    ...children,
  );
  return element;
}

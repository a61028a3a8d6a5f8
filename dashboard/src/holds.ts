/** Lists are drawn anew each second. What is under the pointer, or selected, must stay: it is drawn when it is let go. */

/** How long after a button was let go its click has come. */
const CLICK_MS = 100;
/** A selection that lasts longer is told of: what the page shows is old then. */
const LONG_MS = 3_000;

export class Holds {
  private isPressed = false;
  private since = 0;
  private readonly waiting = new Map<unknown, () => void>();

  /** `isSelected` tells whether text is selected. */
  constructor(private readonly isSelected: () => boolean) {}

  /** Follows the pointer and the selection. */
  watch(at: Document): void {
    at.addEventListener("pointerdown", () => this.press(), true);
    for (const end of ["pointerup", "pointercancel"]) {
      at.addEventListener(end, () => setTimeout(() => this.release(), CLICK_MS), true);
    }
    at.addEventListener("selectionchange", () => this.settle());
  }

  press(): void {
    this.isPressed = true;
  }

  release(): void {
    this.isPressed = false;
    this.settle();
  }

  /** Draws a list, now or when nothing is held any more; of several drawings of a list only the last one is kept. */
  draw(list: unknown, work: () => void): void {
    if (this.isHeld()) {
      if (this.waiting.size === 0) this.since = Date.now();
      this.waiting.set(list, work);
      return;
    }
    this.settle();
    this.waiting.delete(list);
    work();
  }

  /** True if lists have waited for some seconds. */
  isLong(): boolean {
    return this.waiting.size > 0 && this.isHeld() && Date.now() - this.since > LONG_MS;
  }

  settle(): void {
    if (this.isHeld()) return;
    const all = [...this.waiting.values()];
    this.waiting.clear();
    for (const work of all) work();
  }

  private isHeld(): boolean {
    return this.isPressed || this.isSelected();
  }
}

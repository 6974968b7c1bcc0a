"use strict";
// Draws one picture a phase from the JSON beside it (data.py has its form). Text from the input only ever becomes text.
(() => {
  const GUTTER = 46, CURVE = 190, STRIP = 20;
  const HALF_LOW = 1, HALF_BOTH = 3;
  const KINDS = { spill: "--spill", reload: "--spill", split: "--split", copy: "--copy", accumulator: "--copy", rematerialised: "--remat", rematerialise: "--remat" };
  const views = new Map();

  function element(tag, attributes, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value);
    }
    made.append(...children);
    return made;
  }

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const cache = new Map();
    return (name) => {
      if (!cache.has(name)) cache.set(name, style.getPropertyValue(name).trim());
      return cache.get(name);
    };
  }

  // The last entry at or before a slot, of a list sorted by its first column.
  function lastBefore(list, slot) {
    let low = 0, high = list.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle][0] <= slot) low = middle; else high = middle;
    }
    return list[low];
  }

  class View {
    constructor(host, data) {
      this.host = host;
      this.data = data;
      this.shown = 0;
      this.mode = "bank";
      this.rowMode = "fit";
      this.from = 0;
      this.span = Math.max(data.slots, 4);
      this.cursor = null;
      this.pinned = null;
      this.pointers = new Map();
      this.bankOfRow = [];
      for (const [bank, first, count] of data.banks) for (let k = 0; k < count; k++) this.bankOfRow[first + k] = bank;
      this.build();
      new ResizeObserver(() => this.draw()).observe(this.curve);
    }

    build() {
      const d = this.data;
      const choose = (label, options, then) => element("label", {}, label,
        element("select", { onchange: (e) => { then(e.target.value); this.draw(); } },
          ...options.map(([value, text]) => element("option", { value }, text))));
      const bar = element("div", { class: "bar" });
      if (d.placements.length > 1)
        bar.append(choose("allocation", d.placements.map((p, k) => [k, p.name === "llvm" ? "LLVM's" : p.name]), (v) => { this.shown = +v; this.legend(); this.describe(); }));
      if (d.difference.length)
        bar.append(choose("colour", [["bank", "by bank"], ["difference", "by difference from LLVM's"]], (v) => { this.mode = v; this.legend(); }));
      bar.append(choose("rows", [["fit", "fit"], ["4", "low"], ["8", "middle"], ["14", "high"]], (v) => { this.rowMode = v; }));
      const button = (text, label, act) => element("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
      bar.append(element("span", { class: "zoom" },
        button("−", "zoom out", () => this.zoom(2)), button("+", "zoom in", () => this.zoom(0.5)),
        button("◀", "earlier", () => this.pan(-0.25)), button("▶", "later", () => this.pan(0.25)), button("all", "whole program", () => this.whole())));
      this.legendList = element("ul", { class: "legend" });
      this.curveLegend = element("ul", { class: "legend" },
        ...[["--curve", "registers in use", ""], ["--demand", "wanted at once", "dash"], ["--step", "a wave is lost above", "dash"], ["--budget", "may be used", "dash"], ["--loop", "loop", ""]]
          .filter(([c]) => (c !== "--step" || d.steps.length) && (c !== "--loop" || d.loops.length))
          .map(([c, text, kind]) => element("li", {}, element("i", { class: kind, style: kind ? `border-color:var(${c})` : `background:var(${c});outline:1px solid var(--line)` }), text)));
      this.curve = element("canvas", { class: "curve", role: "img", "aria-label": `Pressure of ${d.function}, ${d.phase} phase: registers in use at each instruction, with the counts at which a wave is lost` });
      this.map = element("canvas", {});
      this.spacer = element("div", {});
      this.scroll = element("div", { class: "scroll", tabindex: "0", role: "application",
        "aria-label": `Registers of ${d.function} over its instructions. Arrow keys move, plus and minus zoom, Enter keeps a live range, Escape lets it go.` }, this.map, this.spacer);
      this.info = element("div", { class: "info", role: "status", "aria-live": "polite" });
      this.host.replaceChildren(bar, this.curveLegend, this.curve, this.legendList, this.scroll, this.info);
      this.legend();
      this.describe();
      this.scroll.addEventListener("scroll", () => this.draw());
      for (const surface of [this.scroll, this.curve]) this.listen(surface);
      this.scroll.addEventListener("keydown", (event) => this.key(event));
    }

    legend() {
      const d = this.data, entry = (colour, text) => element("li", {}, element("i", { style: `background:var(${colour})` }), text);
      const items = this.mode === "difference"
        ? d.differenceNames.map((text, k) => [text, k]).filter(([, k]) => d.difference.includes(k)).map(([text, k]) => entry(`--d${k}`, text))
        : d.banks.filter(([bank]) => bank !== "special").map(([bank]) => entry(`--${bank}0`, bank.toUpperCase() + "s (shades tell live ranges apart)"));
      if (d.fixed.length) items.push(entry("--fixed", "taken by something else"));
      const kinds = new Set(d.moves.map((m) => m[1]));
      if (kinds.has("spill") || kinds.has("reload")) items.push(entry("--spill", "marks above: spills, reloads"));
      if (kinds.has("split")) items.push(entry("--split", "splits"));
      if (kinds.has("copy") || kinds.has("accumulator")) items.push(entry("--copy", "copies"));
      this.legendList.replaceChildren(...items);
    }

    listen(surface) {
      surface.addEventListener("pointerdown", (event) => {
        this.pointers.set(event.pointerId, event.clientX);
        this.start = { x: event.clientX, from: this.from, moved: false };
        this.pinch = this.pointers.size === 2 ? { gap: this.gap(), span: this.span } : null;
        if (event.pointerType === "mouse") surface.setPointerCapture(event.pointerId);
      });
      surface.addEventListener("pointermove", (event) => {
        if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, event.clientX);
        if (this.pinch && this.pointers.size === 2) {
          this.setSpan(this.pinch.span * this.pinch.gap / Math.max(this.gap(), 1), this.slotAt(event.offsetX));
          this.draw();
        } else if (this.start && this.pointers.size === 1) {
          const by = event.clientX - this.start.x;
          if (Math.abs(by) > 4) this.start.moved = true;
          if (this.start.moved && this.span < this.data.slots) {
            this.from = this.clampFrom(this.start.from - by * this.span / this.width());
            this.draw();
          }
        } else if (event.pointerType === "mouse" && surface === this.scroll && !this.pinned) this.point(event);
      });
      const end = (event) => {
        this.pointers.delete(event.pointerId);
        if (event.type === "pointerup" && this.start && !this.start.moved && !this.pinch) {
          this.point(event, surface === this.curve);
          const box = this.boxAtCursor();
          const other = box && (!this.pinned || this.pinned.owner !== box[0]);
          this.pinned = surface === this.scroll && other ? { owner: box[0] } : null;
          this.describe();
          this.draw();
        }
        if (!this.pointers.size) { this.start = null; this.pinch = null; }
      };
      surface.addEventListener("pointerup", end);
      surface.addEventListener("pointercancel", end);
      surface.addEventListener("pointerleave", (event) => { if (event.pointerType !== "mouse") this.pointers.delete(event.pointerId); });
      surface.addEventListener("wheel", (event) => {
        if (event.ctrlKey || event.metaKey) {
          event.preventDefault();
          this.setSpan(this.span * (event.deltaY > 0 ? 1.25 : 0.8), this.slotAt(event.offsetX));
        } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          event.preventDefault();
          this.from = this.clampFrom(this.from + (event.deltaX || event.deltaY) * this.span / this.width());
        } else return;
        this.draw();
      }, { passive: false });
    }

    gap() { const [a, b] = [...this.pointers.values()]; return Math.abs(a - b); }
    width() { return Math.max(this.curve.clientWidth - GUTTER, 1); }
    slotAt(x) { return this.from + (x - GUTTER) * this.span / this.width(); }
    clampFrom(value) { return Math.max(0, Math.min(value, Math.max(this.data.slots, 4) - this.span)); }
    setSpan(span, around) {
      const least = Math.min(32, Math.max(this.data.slots, 4)), at = (around - this.from) / this.span;
      this.span = Math.max(least, Math.min(span, Math.max(this.data.slots, 4)));
      this.from = this.clampFrom(around - at * this.span);
    }
    zoom(factor) { this.setSpan(this.span * factor, this.cursor && this.visible(this.cursor.slot) ? this.cursor.slot : this.from + this.span / 2); this.draw(); }
    pan(part) { this.from = this.clampFrom(this.from + part * this.span); this.draw(); }
    whole() { this.from = 0; this.span = Math.max(this.data.slots, 4); this.draw(); }
    visible(slot) { return slot >= this.from && slot < this.from + this.span; }
    rowHeight() {
      if (this.rowMode !== "fit") return +this.rowMode;
      const grain = Math.min(devicePixelRatio || 1, 2), most = Math.min(540, innerHeight * 0.5);
      return Math.max(1, Math.min(14, Math.floor(grain * most / Math.max(this.data.rows.length, 1)) / grain));
    }

    point(event, keepRow) {
      const slot = this.slotAt(event.offsetX);
      if (slot < 0 || slot >= this.data.slots) return;
      const bounds = this.scroll.getBoundingClientRect();
      const y = event.clientY - bounds.top - this.scroll.clientTop + this.scroll.scrollTop;
      const row = keepRow ? (this.cursor ? this.cursor.row : 0) : Math.floor(y / this.rowHeight());
      if (row < 0 || row >= this.data.rows.length) return;
      this.cursor = { slot: Math.floor(slot), row };
      this.describe();
      this.draw();
    }

    key(event) {
      const step = event.shiftKey ? 10 : 1, last = Math.max(this.data.slots / 4 - 1, 0);
      const at = this.cursor || { slot: Math.floor(this.from / 4) * 4 + 1, row: 0 };
      let index = Math.floor(at.slot / 4), row = at.row;
      switch (event.key) {
        case "ArrowLeft": index -= step; break;
        case "ArrowRight": index += step; break;
        case "ArrowUp": row -= step; break;
        case "ArrowDown": row += step; break;
        case "Home": index = 0; break;
        case "End": index = last; break;
        case "+": case "=": this.zoom(0.5); event.preventDefault(); return;
        case "-": this.zoom(2); event.preventDefault(); return;
        case "0": this.whole(); event.preventDefault(); return;
        case "Escape": this.pinned = null; break;
        case "Enter": { const box = this.boxAtCursor(); this.pinned = box ? { owner: box[0] } : null; break; }
        default: return;
      }
      event.preventDefault();
      this.go(Math.max(0, Math.min(index, last)), Math.max(0, Math.min(row, this.data.rows.length - 1)));
    }

    go(index, row) {
      this.cursor = { slot: 4 * index + 1, row };
      if (!this.visible(this.cursor.slot)) this.from = this.clampFrom(this.cursor.slot - this.span / 2);
      const h = this.rowHeight(), top = row * h;
      if (top < this.scroll.scrollTop || top + h > this.scroll.scrollTop + this.scroll.clientHeight) this.scroll.scrollTop = top - this.scroll.clientHeight / 2;
      this.describe();
      this.draw();
    }

    boxes() { const p = this.data.placements[this.shown]; return p ? p.boxes : []; }
    boxAt(boxes, { slot, row }) { return boxes.find((b) => row >= b[1] && row < b[1] + b[2] && slot >= b[4] && slot < b[5]); }
    boxAtCursor() { return this.cursor ? this.boxAt(this.boxes(), this.cursor) : undefined; }

    describe() {
      const d = this.data, info = this.info;
      if (!this.cursor) {
        info.replaceChildren(element("p", {}, "Point at the picture, or tap it: the live range, its register, where it is defined and used. Drag to move when zoomed in; plus and minus, or control and wheel, zoom. A click keeps a live range, Escape lets it go."));
        return;
      }
      const index = Math.floor(this.cursor.slot / 4), block = lastBefore(d.blocks, index);
      const found = this.boxAtCursor(), owner = this.pinned ? this.pinned.owner : found ? found[0] : -1;
      const use = lastBefore(d.use, this.cursor.slot)[1], wanted = lastBefore(d.demand, this.cursor.slot)[1];
      const rows = [];
      const add = (term, text, wide) => rows.push(element("dt", {}, term), element("dd", wide ? { class: "wide" } : {}, ...[text].flat()));
      add("instruction", `${index} of ${d.slots / 4}, ${block[1]}, loop depth ${block[2]}`);
      add("pressure", `${use} in use, ${wanted} wanted`);
      add("text", element("code", {}, d.instructions[index] || ""), true);
      if (owner >= 0) {
        const [name, cls, width, weight, defs, uses] = d.ranges[owner];
        add("live range", element("b", {}, name));
        add("class", `${cls}, ${width} × 32 bits`);
        d.placements.forEach((p) => add(p.name === "llvm" ? "LLVM's registers" : "registers", p.registers[owner] || "none"));
        if (d.difference.length) add("difference", d.differenceNames[d.difference[owner]]);
        add("weight", weight.toLocaleString("en"));
        const places = (list) => list.length ? list.slice(0, 8).join(", ") + (list.length > 8 ? ` and ${list.length - 8} more` : "") : "none";
        add("defined at", places(defs));
        add("used at", places(uses));
      } else {
        const fixed = this.boxAt(d.fixed, this.cursor);
        add("register", `${d.rows[this.cursor.row]}: ${fixed ? d.reasons[fixed[0]] : "free here"}`, true);
      }
      info.replaceChildren(element("dl", {}, ...rows));
    }

    // The canvas with what does not follow the cursor on it; that is drawn anew only when `key` changes.
    surface(canvas, height, key, colour, below) {
      const ratio = Math.min(devicePixelRatio || 1, 3), width = canvas.clientWidth;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      canvas.style.height = `${height}px`;
      const state = [key, width, height, ratio, this.from, this.span, colour("--bg")].join();
      if (canvas.state !== state) {
        const still = canvas.still || (canvas.still = document.createElement("canvas"));
        still.width = canvas.width;
        still.height = canvas.height;
        const context = still.getContext("2d");
        context.scale(ratio, ratio);
        context.font = '11px system-ui, "DejaVu Sans", sans-serif';
        below(context, width);
        canvas.state = state;
      }
      const context = canvas.getContext("2d");
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(canvas.still, 0, 0);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      return [context, width];
    }

    draw() {
      if (this.waiting || !this.curve.clientWidth) return;
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.drawNow(); });
    }

    drawNow() {
      const colour = colours();
      this.drawCurve(colour);
      this.drawMap(colour);
    }

    x(slot) { return GUTTER + (slot - this.from) * this.width() / this.span; }

    drawCurve(colour) {
      const [c] = this.surface(this.curve, CURVE, "", colour, (below, width) => this.curveBelow(below, width, colour));
      this.drawCursor(c, colour, CURVE);
    }

    curveBelow(c, width, colour) {
      const d = this.data, bottom = CURVE - STRIP, top = 8;
      const peak = Math.max(...d.use.map((p) => p[1]), ...d.demand.map((p) => p[1]), 4);
      const next = d.steps.find(([n]) => n >= peak);
      const most = Math.max(peak * 1.08, next && next[0] <= peak * 1.6 ? next[0] * 1.08 : 0, d.budget >= peak && d.budget <= peak * 1.6 || d.budget < peak ? d.budget * 1.08 : 0);
      const y = (n) => bottom - n * (bottom - top) / most;
      this.drawLoops(c, colour, top, bottom);
      c.save();
      c.beginPath(); c.rect(GUTTER, 0, width - GUTTER, CURVE); c.clip();
      const trace = (curve, close) => {
        c.beginPath();
        const list = curve.concat([[d.slots, 0]]);
        c.moveTo(this.x(list[0][0]), close ? y(0) : y(list[0][1]));
        for (let k = 0; k + 1 < list.length; k++) {
          if (list[k + 1][0] < this.from || list[k][0] > this.from + this.span) continue;
          c.lineTo(this.x(list[k][0]), y(list[k][1]));
          c.lineTo(this.x(list[k + 1][0]), y(list[k][1]));
        }
        if (close) { c.lineTo(this.x(d.slots), y(0)); c.closePath(); }
      };
      if (d.placements.length) {
        trace(d.use, true);
        c.fillStyle = colour("--curve-fill"); c.fill();
        trace(d.use, false);
        c.strokeStyle = colour("--curve"); c.lineWidth = 1.5; c.stroke();
      }
      trace(d.demand, false);
      c.setLineDash([3, 3]); c.strokeStyle = colour("--demand"); c.lineWidth = 1; c.stroke(); c.setLineDash([]);
      c.restore();
      // Lines first, labels on top of them; a label stands on its own line and hides a piece of it.
      const labels = [];
      const line = (n, name, text, align) => {
        c.strokeStyle = colour(name); c.setLineDash([6, 4]); c.lineWidth = 1;
        c.beginPath(); c.moveTo(GUTTER, y(n)); c.lineTo(width, y(n)); c.stroke(); c.setLineDash([]);
        if (text) labels.push([text, align === "left" ? GUTTER + 6 : width - 4, y(n), name, align]);
      };
      let last = Infinity;
      for (const [n, waves] of d.steps) {
        if (n > most) break;
        const room = y(n) < last - 13;
        line(n, "--step", room ? `${n}: ${waves} ${waves === 1 ? "wave" : "waves"}` : "", "right");
        if (room) last = y(n);
      }
      if (d.budget <= most) line(d.budget, "--budget", `${d.budget} may be used`, "left");
      for (const [text, x, at, name, align] of labels) {
        const w = c.measureText(text).width;
        c.fillStyle = colour("--bg"); c.fillRect(align === "left" ? x - 3 : x - w - 3, at - 6, w + 6, 12);
        c.fillStyle = colour(name); c.textAlign = align; c.textBaseline = "middle"; c.fillText(text, x, at);
      }
      c.fillStyle = colour("--muted"); c.textAlign = "right"; c.textBaseline = "middle";
      for (const n of [0, peak]) c.fillText(n, GUTTER - 5, y(n));
      for (const [slot, kind] of d.moves) {
        if (!this.visible(slot)) continue;
        c.fillStyle = colour(KINDS[kind] || "--spill");
        c.fillRect(this.x(slot) - 0.75, bottom + (kind === "copy" ? 12 : 4), 1.5, kind === "copy" ? 6 : 14);
      }
      c.fillStyle = colour("--line"); c.fillRect(GUTTER, bottom, width - GUTTER, 1);
      if (this.span < d.slots) {
        const total = this.width() / d.slots;
        c.fillStyle = colour("--grid"); c.fillRect(GUTTER, 0, this.width(), 4);
        c.fillStyle = colour("--muted"); c.fillRect(GUTTER + this.from * total, 0, Math.max(this.span * total, 3), 4);
      }
    }

    drawLoops(c, colour, top, bottom) {
      for (const [first, end, depth] of this.data.loops) {
        const a = Math.max(this.x(4 * first), GUTTER), b = Math.min(this.x(4 * end), GUTTER + this.width());
        if (b <= a) continue;
        c.fillStyle = colour("--loop"); c.fillRect(a, top, b - a, bottom - top);
        if (b - a > 80) { c.fillStyle = colour("--muted"); c.textAlign = "left"; c.textBaseline = "bottom"; if (top > 0) c.fillText(`loop, depth ${depth}`, a + 5, bottom - 2 - 13 * (depth - 1)); }
      }
    }

    drawCursor(c, colour, height) {
      if (!this.cursor || !this.visible(this.cursor.slot)) return;
      c.fillStyle = colour("--fg"); c.globalAlpha = 0.6;
      c.fillRect(Math.round(this.x(Math.floor(this.cursor.slot / 4) * 4 + 2)), 0, 1, height);
      c.globalAlpha = 1;
    }

    drawMap(colour) {
      const d = this.data, h = this.rowHeight(), total = Math.max(d.rows.length * h, 24);
      const port = Math.min(total, Math.max(innerHeight * 0.7, 200));
      this.scroll.style.height = `${port + 2}px`;
      this.spacer.style.height = `${Math.max(total - port, 0)}px`;
      const top = this.scroll.scrollTop, focus = this.pinned ? this.pinned.owner : -1;
      const key = [h, top, this.shown, this.mode, focus].join();
      const [c, width] = this.surface(this.map, port, key, colour, (below, w) => this.mapBelow(below, w, colour, h, port, top, focus));
      c.save();
      c.beginPath(); c.rect(GUTTER, 0, width - GUTTER, port); c.clip();
      const owner = focus >= 0 ? focus : (this.boxAtCursor() || [-1])[0];
      if (owner >= 0) {
        c.strokeStyle = colour("--fg"); c.lineWidth = 1.5;
        for (const box of this.boxes()) {
          const p = box[0] === owner && this.place(box, h, port, top);
          if (p) c.strokeRect(p[0], p[1], Math.max(p[2], 2), Math.max(p[3], 2));
        }
      }
      this.drawCursor(c, colour, port);
      c.restore();
    }

    place(b, h, port, top) {
      if (b[5] <= this.from || b[4] >= this.from + this.span) return null;
      const y = b[1] * h - top, tall = b[2] * h, scale = this.width() / this.span;
      if (y + tall < 0 || y > port) return null;
      const half = b[3] === HALF_BOTH ? 0 : h / 2;
      return [GUTTER + (b[4] - this.from) * scale, y + (b[3] === HALF_LOW ? half : 0), Math.max((b[5] - b[4]) * scale, 0.75), b[3] === HALF_BOTH ? tall : h / 2];
    }

    mapBelow(c, width, colour, h, port, top, focus) {
      const d = this.data;
      if (!d.rows.length) { c.fillStyle = colour("--muted"); c.textBaseline = "middle"; c.fillText("no register of this phase holds anything", 8, port / 2); return; }
      this.drawLoops(c, colour, 0, port);
      c.save();
      c.beginPath(); c.rect(GUTTER, 0, width - GUTTER, port); c.clip();
      c.fillStyle = colour("--fixed"); c.globalAlpha = 0.55;
      for (const box of d.fixed) { const p = this.place(box, h, port, top); if (p) c.fillRect(...p); }
      const gap = h >= 5 ? 0.75 : 0, byDifference = this.mode === "difference" && d.difference.length;
      for (const box of this.boxes()) {
        const p = this.place(box, h, port, top);
        if (!p) continue;
        c.globalAlpha = focus < 0 || focus === box[0] ? 1 : 0.3;
        const bank = this.bankOfRow[box[1]] === "special" ? "sgpr" : this.bankOfRow[box[1]];
        c.fillStyle = colour(byDifference ? `--d${d.difference[box[0]]}` : `--${bank}${box[0] % 5}`);
        c.fillRect(p[0], p[1], p[2] > 4 ? p[2] - gap : p[2], p[3] - gap);
      }
      c.globalAlpha = 1;
      if (this.width() / this.span * 4 > 7) {
        c.fillStyle = colour("--grid");
        for (let k = Math.ceil(this.from / 4); 4 * k < this.from + this.span; k++) c.fillRect(this.x(4 * k), 0, 1, port);
      }
      c.fillStyle = colour("--muted"); c.globalAlpha = 0.5;
      for (const [first] of d.blocks) if (first && this.visible(4 * first)) c.fillRect(this.x(4 * first), 0, 1, port);
      c.globalAlpha = 1;
      c.restore();
      c.textAlign = "right"; c.textBaseline = "middle";
      const every = [1, 2, 4, 8, 16, 32, 64, 128].find((n) => n * h >= 15) || 256;
      for (const [, first, count] of d.banks) {
        c.fillStyle = colour("--line"); if (first) c.fillRect(0, first * h - top, width, 1);
        for (let k = 0; k < count; k += every) {
          const y = (first + k) * h - top;
          if (y < -h || y > port - 5) continue;
          c.fillStyle = colour("--grid"); c.fillRect(GUTTER, y, width - GUTTER, 1);
          c.fillStyle = colour("--muted"); c.fillText(d.rows[first + k], GUTTER - 5, Math.max(y + Math.max(h, 12) / 2, 7));
        }
      }
    }
  }

  function open(host) {
    const key = host.dataset.for;
    if (!views.has(key)) {
      const data = JSON.parse(document.getElementById(key).textContent);
      views.set(key, new View(host, data));
    }
    return views.get(key);
  }

  const hosts = [...document.querySelectorAll(".picture")];
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); open(entry.target); }
  }, { rootMargin: "800px" });
  hosts.forEach((host) => { host.style.minHeight = "30rem"; near.observe(host); });
  const redraw = () => views.forEach((view) => { view.host.style.minHeight = ""; view.drawNow(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.dataset.print = ""; hosts.forEach(open); views.forEach((v) => { v.rowMode = "fit"; }); redraw(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.print; redraw(); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest(".at");
    if (!button) return;
    const host = hosts.find((h) => h.dataset.for === button.dataset.phase);
    if (!host) return;
    const view = open(host), index = +button.dataset.at;
    view.span = Math.min(view.span, Math.max(240, view.width() / 6));
    view.from = view.clampFrom(4 * index - view.span / 2);
    view.go(index, view.cursor ? view.cursor.row : 0);
    host.scrollIntoView({ block: "start" });
    view.scroll.focus({ preventScroll: true });
  });
})();

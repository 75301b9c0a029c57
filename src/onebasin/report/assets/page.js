"use strict";
// What the page does beside drawing: the theme, sorting, sliders, switches, downloads.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const states = [];

  function startTheme() {
    const button = document.getElementById("theme");
    const kept = () => { try { return localStorage.getItem("onebasin-theme"); } catch { return null; } };
    const keep = (name) => { try { localStorage.setItem("onebasin-theme", name); } catch { /* a file may not */ } };
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
    const show = () => { button.setAttribute("aria-pressed", String(isDark())); redraw(); };
    if (kept()) root.dataset.theme = kept();
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      keep(root.dataset.theme);
      show();
    });
    dark.addEventListener("change", show);
    show();
  }

  const redraw = () => Promise.all(states.map((state) => Figures.drawAll(state)));

  function startTables() {
    for (const table of document.querySelectorAll("table.sortable")) {
      for (const body of table.tBodies) [...body.rows].forEach((row, i) => { row.dataset.place = i; });
      for (const head of table.querySelectorAll("th[data-sort]")) {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        const arrow = document.createElement("span");
        arrow.className = "arrow";
        arrow.setAttribute("aria-hidden", "true");
        button.append(arrow);
        head.append(button);
        head.setAttribute("aria-sort", "none");
        button.addEventListener("click", () => turn(table, head));
      }
    }
  }

  // The first press shows the best first, the second the worst, the third the order of the report.
  function turn(table, head) {
    const first = head.dataset.better === "higher" ? "descending" : "ascending";
    const second = first === "descending" ? "ascending" : "descending";
    const now = head.getAttribute("aria-sort");
    const next = now === "none" ? first : now === first ? second : "none";
    for (const other of table.querySelectorAll("th[data-sort]")) {
      other.setAttribute("aria-sort", other === head ? next : "none");
      const sign = other !== head || next === "none" ? "" : next === "ascending" ? "▲" : "▼";
      other.querySelector(".arrow").textContent = sign;
    }
    for (const body of table.tBodies) sort(body, head.dataset.sort, next);
  }

  function sort(body, column, order) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
    const place = (row) => Number(row.dataset.place);
    const value = (row) => {
      const text = row.cells[Number(column) + 1].dataset.value;
      return text === undefined ? null : Number(text);
    };
    const sign = order === "descending" ? -1 : 1;
    rows.sort((a, b) => {
      if (order === "none") return place(a) - place(b);
      const [x, y] = [value(a), value(b)];
      if (x === null || y === null) return (x === null) - (y === null) || place(a) - place(b);
      return sign * (x - y) || place(a) - place(b);
    });
    body.append(...rows);
  }

  function save(name, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function startFigure(spec) {
    const node = document.getElementById(spec.name);
    const state = { spec, frame: 0, hidden: new Set(), plots: [...node.querySelectorAll(".plot")] };
    node.querySelector("[data-csv]").addEventListener("click", () =>
      save(`${spec.name}.csv`, Figures.csv(spec)));
    for (const box of node.querySelectorAll("[data-key]")) {
      // A browser may keep a box as it was when the page is loaded again.
      box.checked = true;
      box.addEventListener("change", () => {
        if (box.checked) state.hidden.delete(box.dataset.key);
        else state.hidden.add(box.dataset.key);
        Figures.drawAll(state);
      });
    }
    const slider = node.querySelector("input[type=range]");
    if (slider) {
      slider.value = 0;
      slider.addEventListener("input", () => {
        state.frame = Number(slider.value);
        const label = spec.frames[state.frame].label;
        slider.setAttribute("aria-valuetext", label);
        node.querySelector("output").textContent = label;
        Figures.draw(state, 0);
      });
    }
    return state;
  }

  async function loadPlotly() {
    const held = document.getElementById("plotly");
    const packed = Uint8Array.from(atob(held.textContent.trim()), (char) => char.charCodeAt(0));
    held.remove();
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }

  async function startFigures() {
    const specs = JSON.parse(document.getElementById("figures").textContent);
    if (specs.length) {
      await loadPlotly();
      for (const spec of specs) {
        const state = startFigure(spec);
        await Figures.drawAll(state);
        states.push(state);
        await new Promise((resolve) => setTimeout(resolve));
      }
    }
    root.dataset.ready = "true";
  }

  function startContents() {
    const links = new Map([...document.querySelectorAll(".contents li a")]
      .map((link) => [link.hash.slice(1), link]));
    const heads = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
    const mark = () => {
      const passed = heads.filter((head) => head.getBoundingClientRect().top < innerHeight * 0.3);
      const current = links.get((passed.pop() || heads[0])?.id);
      for (const link of links.values()) {
        if (link === current) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    };
    addEventListener("scroll", mark, { passive: true });
    mark();
  }

  // Paper is white, whatever the screen is.
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
    Figures.print(true);
    redraw();
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
    Figures.print(false);
    redraw();
  });
  startTheme();
  startTables();
  startContents();
  startFigures().catch((error) => {
    root.dataset.ready = "failed";
    console.error(error);
    for (const plot of document.querySelectorAll(".plot:empty")) {
      plot.textContent = "This figure could not be drawn in this browser.";
    }
  });
})();

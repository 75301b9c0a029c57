"use strict";
// Draws the figures. A figure is drawn anew from its record whenever its slider, its switches or
// the theme change: there is one way to what one sees.
const Figures = (() => {
  let printing = false;

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Plotly reads a few tags in its texts; ours are meant as they are written.
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const known = (value) => value !== null && value !== undefined;
  // Math.min(...values) fails where there are very many.
  const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
  const largest = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
  const colour = (look) => css(`--series-${look.colour}`);
  const faint = (hex, alpha) =>
    `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;

  function hover(series) {
    const lines = series.labels && series.style !== "bars" ? ["<b>%{text}</b>"] : [];
    lines.push("%{xaxis.title.text}: %{x:.5~g}", "%{yaxis.title.text}: %{y:.5~g}");
    if (series.low) lines.push("from %{customdata[0]:.5~g} to %{customdata[1]:.5~g}");
    return lines.join("<br>") + "<extra>%{fullData.name}</extra>";
  }

  function band(series, axis) {
    const at = series.x.map((_, i) => i)
      .filter((i) => [series.x[i], series.low[i], series.high[i]].every(known));
    const positive = series.y.filter((y) => known(y) && y > 0);
    const floor = axis.log ? least(positive) / 100 : -Infinity;
    const edge = (values, fill) => ({
      type: "scatter", mode: "lines", x: at.map((i) => series.x[i]),
      y: at.map((i) => Math.max(values[i], floor)), hoverinfo: "skip", showlegend: false,
      line: { width: 0, shape: series.style === "step" ? "hv" : "linear", color: colour(series.look) },
      fill, fillcolor: faint(colour(series.look), 0.16),
    });
    return [edge(series.low, "none"), edge(series.high, "tonexty")];
  }

  function bars(low, high, y, tint) {
    return {
      type: "data", symmetric: false, color: tint, thickness: 1.2, width: 3,
      array: y.map((v, i) => (known(high[i]) && known(v) ? high[i] - v : null)),
      arrayminus: y.map((v, i) => (known(low[i]) && known(v) ? v - low[i] : null)),
    };
  }

  function traces(series, panel, onMap) {
    const tint = onMap ? "#ffffff" : colour(series.look);
    const name = plain(series.group && series.group !== series.name
      ? `${series.group}: ${series.name}` : series.name);
    const base = { x: series.x, y: series.y, name, hovertemplate: hover(series) };
    if (series.labels) base.text = series.labels.map(plain);
    if (series.low) base.customdata = series.x.map((_, i) => [series.low[i], series.high[i]]);
    if (series.style === "bars") {
      const trace = { ...base, type: "bar", textposition: "none", marker: {
        color: tint, line: { color: tint, width: 1 },
        pattern: { shape: series.look.pattern, fillmode: "replace", fgcolor: tint, size: 6, solidity: 0.35 },
      } };
      if (series.low) trace.error_y = bars(series.low, series.high, series.y, css("--text"));
      return [trace];
    }
    const points = series.style.includes("points");
    const trace = {
      ...base, type: "scatter", mode: series.style === "points" ? "markers"
        : points ? "lines+markers" : "lines",
      line: { color: tint, width: 2.2, dash: series.look.dash, shape: series.style === "step" ? "hv" : "linear" },
      marker: {
        color: onMap ? "#ffffff" : tint, size: onMap ? 10 : series.x.length > 200 ? 5 : 8,
        symbol: series.look.symbol + (series.look.open && !onMap ? "-open" : ""),
        line: { width: onMap ? 1.5 : series.look.open ? 1.6 : 0, color: onMap ? "#000000" : tint },
        opacity: series.x.length > 200 ? 0.65 : 1,
      },
    };
    if (onMap && series.style !== "points") {
      const under = { ...trace, mode: "lines", hoverinfo: "skip", hovertemplate: undefined,
        line: { ...trace.line, color: "#000000", width: 4.5, dash: "solid" } };
      return [under, trace];
    }
    if (!series.low) return [trace];
    if (series.style === "points") {
      return [{ ...trace, error_y: bars(series.low, series.high, series.y, tint) }];
    }
    return [...band(series, panel.y), trace];
  }

  function steps(low, high) {
    const fine = high - low < 2 ? [1, 2, 5] : [1];
    const found = [];
    const stride = Math.max(1, Math.ceil((high - low) / 6));
    for (let power = Math.floor(low); power <= high; power += stride) {
      for (const digit of fine) {
        const at = power + Math.log10(digit);
        if (at >= low - 1e-9 && at <= high + 1e-9) found.push([at, digit * 10 ** power]);
      }
    }
    return found;
  }

  function heat(map, level) {
    const lift = (z) => (known(z) && (!map.log || z > 0) ? (map.log ? Math.log10(z) : z) : null);
    const z = map.z.map((row) => row.map(lift));
    const [low, high] = level || [0, 1];
    const bar = {
      title: { text: plain(map.label), side: "right", font: { size: 12 } }, thickness: 12,
      outlinewidth: 0, len: 1, tickfont: { size: 11 },
    };
    if (map.log) {
      const marks = steps(low, high);
      bar.tickvals = marks.map(([at]) => at);
      bar.ticktext = marks.map(([, value]) => Number(value.toPrecision(3)).toString());
    }
    return {
      type: "heatmap", x: map.x, y: map.y, z, customdata: map.z, zmin: low, zmax: high, name: "",
      colorscale: "Viridis", colorbar: bar,
      hovertemplate: "%{xaxis.title.text}: %{x:.4~g}<br>%{yaxis.title.text}: %{y:.4~g}"
        + "<br>%{customdata:.5~g}<extra></extra>",
    };
  }

  function names(series, panel) {
    const place = (value, log) => (log ? Math.log10(value) : value);
    return series.filter((s) => s.labels && s.style === "points" && s.labels.length <= 12)
      .flatMap((s) => s.labels.map((label, i) => ({
        x: place(s.x[i], panel.x.log), y: place(s.y[i], panel.y.log), text: plain(label),
        showarrow: false, yshift: 16, bgcolor: "rgba(255,255,255,0.85)", borderpad: 2,
        font: { color: "#16191f", size: 11 },
      })));
  }

  // Between powers of ten, labels only where there are few of those; in equal steps where there is none.
  function decades(shown, which) {
    const values = shown.flatMap((s) => s[which]).filter((v) => known(v) && v > 0);
    const span = Math.log10(largest(values) / least(values));
    if (span > 0 && span < 0.5) {
      const fifth = (largest(values) - least(values)) / 5;
      const power = 10 ** Math.floor(Math.log10(fifth));
      return { dtick: `L${[1, 2, 5, 10].find((n) => n * power >= fifth) * power}`, exponentformat: "none" };
    }
    if (!(span > 1.2)) return { dtick: "D2", tickfont: { size: 10 } };
    // Plotly sets powers larger than other labels.
    return { dtick: Math.ceil(span / 6), tickfont: { size: 9.5 }, minor: { ticks: "outside", ticklen: 2, dtick: "D1" } };
  }

  function axis(record, range, shown, which) {
    const made = {
      title: { text: plain(record.label), standoff: 8, font: { size: 12.5 } },
      type: record.log ? "log" : "linear", automargin: true, zeroline: false,
      gridcolor: css("--grid"), linecolor: css("--strong-line"), tickcolor: css("--strong-line"),
      showline: true, ticks: "outside", ticklen: 4, tickfont: { size: 11.5 },
      exponentformat: "power", nticks: 7,
    };
    if (record.log) Object.assign(made, decades(shown, which));
    if (range && range[which]) Object.assign(made, { range: range[which], autorange: false });
    const barred = shown.filter((s) => s.style === "bars");
    if (which === "x" && barred.length && barred.every((s) => s.labels)) {
      const ticks = new Map(barred.flatMap((s) => s.x.map((x, i) => [x, plain(s.labels[i])])));
      // Word under word where there are many: names that lie aslant run out of the figure.
      const broken = [...ticks.values()].map((text) => (ticks.size > 8 ? text.replaceAll(" ", "<br>") : text));
      Object.assign(made, { tickvals: [...ticks.keys()], ticktext: broken, showgrid: false });
    }
    return made;
  }

  function draw(state, number) {
    const panel = state.spec.panels[number];
    const framed = number === 0 && state.spec.frames.length;
    const content = framed ? state.spec.frames[state.frame] : panel;
    const shown = content.series.filter((s) => !state.hidden.has(s.key));
    const data = content.map ? [heat(content.map, panel.level)] : [];
    for (const series of shown) data.push(...traces(series, panel, Boolean(content.map)));
    const node = state.plots[number];
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      font: { family: getComputedStyle(document.body).fontFamily, color: css("--text"), size: 12 },
      margin: { l: 52, r: 14, t: 10, b: 46 }, hovermode: "closest", barmode: "group", bargap: 0.25,
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      xaxis: axis(panel.x, panel.range, shown, "x"), yaxis: axis(panel.y, panel.range, shown, "y"),
      annotations: content.map ? names(shown, panel) : [],
      hoverlabel: { bgcolor: css("--raised"), bordercolor: css("--strong-line"), font: { color: css("--text") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--muted"), activecolor: css("--accent") },
      uirevision: "kept",
    };
    // The width of paper is not known here: one panel, or two beside each other, fit A4 and Letter.
    if (printing) {
      const width = state.plots.length > 1 ? 325 : 600;
      Object.assign(layout, { width, height: state.plots.length > 1 ? 280 : 340, autosize: false });
    }
    return Plotly.react(node, data, layout, {
      responsive: true, displaylogo: false, displayModeBar: true,
      modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
      toImageButtonOptions: { filename: state.spec.name, scale: 2 },
    });
  }

  const drawAll = (state) => Promise.all(state.plots.map((_, number) => draw(state, number)));

  function csv(spec) {
    // What a spreadsheet would compute is marked as text.
    const formula = (value) => typeof value === "string" && /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/.test(value)
      && !Number.isFinite(Number(value));
    const plain = (value) => `${formula(value) ? "'" : ""}${value}`.replace(/"/g, '""');
    const cell = (value) => (known(value) ? `"${plain(value)}"` : "");
    const rows = [["panel", "frame", "group", "series", "label", "x", "y", "low", "high", "z"]];
    const add = (panel, frame, content) => {
      for (const s of content.series) {
        s.x.forEach((x, i) => rows.push([panel, frame, s.group, s.name, s.labels?.[i], x, s.y[i],
          s.low?.[i], s.high?.[i], null]));
      }
      const map = content.map;
      if (map) {
        map.z.forEach((row, i) => row.forEach((z, j) =>
          rows.push([panel, frame, null, map.label, null, map.x[j], map.y[i], null, null, z])));
      }
    };
    spec.panels.forEach((panel, number) => {
      if (number === 0 && spec.frames.length) spec.frames.forEach((f) => add(panel.title, f.label, f));
      else add(panel.title, null, panel);
    });
    return "\ufeff" + rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  return { csv, draw, drawAll, print: (on) => { printing = on; } };
})();

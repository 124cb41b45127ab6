// Draws the charts of a report, says what a mark means, shows each chart's data and hands out the embedded logs.
"use strict";
(() => {
  const figures = [...document.querySelectorAll("figure.chart")];
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["autoScale2d"] };
  const plain = html => {
    const holder = document.createElement("template");
    holder.innerHTML = String(html).replaceAll("<br>\u200b", " ").replaceAll("<br>", " · ");
    return holder.content.textContent;
  };

  // Headings have places where they may break; where a line is too long they do, and the figure grows by those lines.
  const shaped = (layout, width) => {
    const { title } = layout, narrow = width < 640;
    const long = text => Math.max(...text.split("<br>").map(line => plain(line).length)) * (text === title.text ? 9 : 6.8) > width - 16;
    const breaks = text => (text && long(text) ? text.split("\n").length - 1 : 0);
    const lines = 20 * breaks(title.text) + 16 * breaks(title.subtitle.text);
    const pad = { ...title.pad, t: title.pad.t + (breaks(title.text) ? 12 : 0) }; // plotly lifts a title of several lines
    const broken = text => (breaks(text) ? text.replaceAll("\n", "<br>") : text);
    const axes = Object.keys(layout).filter(name => narrow && name.startsWith("xaxis"));
    const nticks = Math.max(4, Math.round((width - (layout.yaxis?.ticktext ? 200 : 60)) / 65)); // lanes have names beside them
    const subtitle = { ...title.subtitle, text: broken(title.subtitle.text) };
    return {
      ...layout,
      title: { ...title, text: broken(title.text), subtitle, pad },
      margin: { ...layout.margin, t: layout.margin.t + lines },
      height: layout.height + lines,
      annotations: layout.annotations?.map(one => ({ ...one, text: broken(one.text) })),
      ...Object.fromEntries(axes.map(name => [name, { ...layout[name], nticks }])),
    };
  };

  // A legend that wraps on a narrow screen takes its height from the page, not from the lanes.
  const fit = plot => {
    const wanted = plot.layout.meta?.plot_height, has = plot._fullLayout._size.h;
    if (has < wanted - 8) Plotly.relayout(plot, { height: plot.layout.height + wanted - has });
  };

  const say = (figure, text) => {
    const said = figure.querySelector(".said");
    said.textContent = text;
    said.hidden = !text;
  };

  async function draw(figure) {
    if (figure.drawn) return;
    figure.drawn = true;
    const plot = figure.querySelector(".plot");
    const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
    await Plotly.newPlot(plot, data, shaped(layout, plot.clientWidth), config);
    fit(plot);
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${plain(layout.title?.text ?? "chart")}: arrow keys move, plus and minus zoom, Home resets`);
    plot.on("plotly_click", event => say(figure, plain(event.points[0].hovertext ?? event.points[0].text ?? "")));
    plot.addEventListener("keydown", event => move(plot, event));
    figure.dataset.drawn = "yes";
    performance.mark("figure");
  }

  // The keyboard moves and zooms the first time axis as the mouse does; matching axes follow.
  function move(plot, event) {
    const [low, high] = plot._fullLayout.xaxis.range, span = high - low, middle = (low + high) / 2;
    const ranges = {
      ArrowLeft: [low - span / 5, high - span / 5],
      ArrowRight: [low + span / 5, high + span / 5],
      "+": [middle - span / 4, middle + span / 4],
      "-": [middle - span, middle + span],
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Home") {
      const first = JSON.parse(plot.parentElement.querySelector("script").textContent).layout.xaxis ?? {};
      Plotly.relayout(plot, first.range ? { "xaxis.range": first.range } : { "xaxis.autorange": true });
    } else if (ranges[event.key]) Plotly.relayout(plot, { "xaxis.range": ranges[event.key] });
    else return;
    event.preventDefault();
  }

  // Every mark of a chart as a row of a table, made when somebody opens it.
  function tabulate(figure) {
    const details = figure.querySelector(".data"), plot = figure.querySelector(".plot"), rows = [];
    if (!details.open || details.querySelector("table") || !plot.data) return;
    const many = value => (value === undefined || typeof value === "string" ? null : Array.from(value._inputArray ?? value));
    for (const trace of plot._fullData) {
      if (trace.hoverinfo === "skip") continue;
      const x = many(trace.x), y = many(trace.y), base = many(trace.base);
      const texts = Array.isArray(trace.hovertext) ? trace.hovertext : null;
      if (trace.type === "heatmap") continue;
      for (let at = 0; at < (x?.length ?? 0); at++) {
        const told = texts ? texts[at] : trace.hovertext;
        const from = base ? base[at] : x[at];
        rows.push([from, trace.name ?? "", told ? plain(told) : `${round(x[at])}, ${round(y[at])}`]);
      }
    }
    rows.sort((a, b) => a[0] - b[0]);
    const table = document.createElement("table");
    const body = table.createTBody();
    for (const [from, name, text] of rows.slice(0, 2000)) {
      const row = body.insertRow();
      for (const cell of [round(from), name, text]) row.insertCell().textContent = cell;
    }
    const caption = table.createCaption();
    caption.textContent = `${Math.min(rows.length, 2000)} of ${rows.length} marks, in order of the horizontal axis`;
    details.append(table);
  }
  const round = value => (typeof value === "number" ? Number(value.toPrecision(6)) : value);

  // The names of columns and causes may break at their underscores.
  for (const cell of document.querySelectorAll(".dataframe th, .dataframe td")) {
    const parts = cell.children.length ? [] : cell.textContent.split("_");
    if (parts.length > 1) cell.replaceChildren(...parts.flatMap((part, at) => (at ? ["_", document.createElement("wbr"), part] : [part])));
  }

  // The embedded logs become files only when the page is opened: nothing is fetched.
  for (const holder of document.querySelectorAll("script[data-name]")) {
    const link = document.querySelector(`a[data-file="${CSS.escape(holder.dataset.name)}"]`);
    const bytes = Uint8Array.from(atob(holder.textContent.trim()), letter => letter.charCodeAt(0));
    link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
    link.download = holder.dataset.name;
  }

  // Every answer of a what-if is in the page; its controls choose the one that is shown.
  for (const form of document.querySelectorAll("form.whatif")) {
    const show = () => {
      const wanted = [...new FormData(form).values()].join(" ");
      for (const cell of form.querySelectorAll("[data-cell]")) cell.hidden = cell.dataset.cell !== wanted;
    };
    form.addEventListener("input", show);
    show();
  }

  for (const figure of figures) figure.querySelector(".data").addEventListener("toggle", () => tabulate(figure));
  let later;
  addEventListener("resize", () => {
    clearTimeout(later);
    later = setTimeout(() => figures.forEach(figure => figure.dataset.drawn && fit(figure.querySelector(".plot"))), 250);
  });
  // Paper is narrower than most screens: charts are drawn anew at its width, and again at the screen's after printing.
  const redraw = width => figures.forEach(figure => Plotly.relayout(figure.querySelector(".plot"), { width, autosize: !width }));
  addEventListener("beforeprint", () => redraw(680));
  addEventListener("afterprint", () => redraw(null));

  (async () => {
    for (const figure of figures) {
      await draw(figure);
      await new Promise(resume => setTimeout(resume)); // lets the page answer between two charts
    }
    document.body.dataset.ready = "yes";
  })();
})();

"use strict";
// Every region of a release, from the data embedded in this page; nothing is fetched.
(async () => {
  const home = document.getElementById("explorer");
  const letters = atob(document.getElementById("explorer-data").textContent), packed = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
  let data;
  try {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    data = JSON.parse(await new Response(stream).text());
  } catch (error) {
    home.textContent = "This browser is too old to unpack the regions of this page; the tables lie beside it.";
    return;
  }
  const { names, parent, level, ids, weight, rows, keys, values, lower, upper, labels, levels, words } = data;
  const starts = [0], children = names.map(() => []), paths = [];
  rows.forEach((count, region) => starts.push(starts[region] + count));
  parent.forEach((above, region) => { if (above >= 0) children[above].push(region); });
  const escaped = name => name.replaceAll("\\", "\\\\").replaceAll("/", "\\/");
  names.forEach((name, region) => paths.push(region ? paths[parent[region]] + "/" + escaped(name) : name));
  // Names are found without their accents and in any case: Iğdır by "igdir" and "IĞDIR", Łódź by "lodz".
  const PLAIN = { ı: "i", ł: "l", ø: "o", đ: "d", ð: "d", þ: "th", æ: "ae", œ: "oe", ß: "ss" };
  const plain = text => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replace(/[ıłøđðþæœß]/g, letter => PLAIN[letter]);
  const plainPaths = paths.map((path, region) => plain(path + " " + (ids[region] ?? "")));
  const largest = (least, numbers) => numbers.reduce((most, number) => Math.max(most, number), least);
  const figure = number => Number(number).toLocaleString("en", { maximumFractionDigits: 1 });
  const wideOf = digits => 6.3 * digits.length;  // pixels
  const SHOWN = 50;
  const probe = document.createElement("div");
  probe.innerHTML = "<svg></svg>";
  const pictures = probe.firstChild.namespaceURI;  // so that no address stands in the page
  const room = () => Math.max(320, Math.min(760, home.clientWidth || 720));  // pixels: letters keep their size
  let current = 0, other = -1, all = false;

  const node = (tag, text, attributes = {}) => {
    const made = document.createElement(tag);
    if (text !== undefined && text !== null) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "onclick" || name === "oninput") made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value);
    }
    return made;
  };
  const drawn = (tag, attributes = {}, text) => {
    const made = document.createElementNS(pictures, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const label = region => names[region] + (ids[region] ? ` (${ids[region]})` : "");
  const key = row => (labels ? labels[keys[row]] : keys[row]);
  const go = region => { current = region; all = false; show(); heading.focus(); };

  // --- finding a region, and a second one to compare with ---
  function finder(id, words, picked) {
    const box = node("div"), list = node("ul");
    const input = node("input", null, { id, type: "search", autocomplete: "off", "aria-describedby": id + "-found" });
    const found = node("p", "", { id: id + "-found", class: "note", role: "status" });
    input.addEventListener("input", () => {
      list.replaceChildren();
      const text = plain(input.value.trim());
      found.textContent = "";
      if (!text) { picked(-1); return; }
      const hits = [];
      let total = 0;
      plainPaths.forEach((path, region) => { if (path.includes(text) && ++total <= 12) hits.push(region); });
      found.textContent = `${figure(total)} found`;
      for (const region of hits) {
        const item = node("li");
        item.append(node("button", paths[region] + (ids[region] ? ` (${ids[region]})` : ""), {
          type: "button",
          onclick: () => { list.replaceChildren(); found.textContent = ""; input.value = names[region]; picked(region); },
        }));
        list.append(item);
      }
    });
    box.append(node("label", words, { for: id }), input, found, list);
    return box;
  }
  const finders = node("div", null, { class: "find" });
  finders.append(
    finder("find", `Find one of ${figure(names.length)} ${words.places ?? "regions"}`, region => { if (region >= 0) go(region); }),
    finder("compare", "Compare with", region => { other = region; show(); }),
  );
  const heading = node("h3", "", { tabindex: "-1" });
  const trail = node("nav", null, { "aria-label": "Regions above" });
  const summary = node("p"), picture = node("div"), parts = node("div"), listing = node("div"), place = node("div", null, { class: "place" });
  home.replaceChildren(finders, trail, heading, summary, picture, listing, place, parts);
  const map = data.map ? choropleth(place, { data, paths, children, starts, label, figure, node, drawn, room, go: region => { current = region; all = false; show(); } }) : null;

  // --- one region ---
  function show() {
    const above = [];
    for (let region = parent[current]; region >= 0; region = parent[region]) above.unshift(region);
    trail.replaceChildren(...above.flatMap(region =>
      [node("button", names[region], { type: "button", onclick: () => go(region) }), document.createTextNode(" / ")]));
    heading.textContent = `${levels[level[current]]}: ${label(current)}`;
    const rest = other >= 0 ? `, beside ${paths[other]} (${figure(weight[other])})` : "";
    summary.textContent = `${figure(weight[current])} ${words.weight}${rest}; ${figure(rows[current])} ${words.rows}.`;
    picture.replaceChildren(labels ? bars() : histogram());
    tables();
    if (map) map(current);
    tiles();
  }
  const rowsOf = region => Array.from({ length: rows[region] }, (_, k) => starts[region] + k);

  function histogram() {
    const mine = rowsOf(current), theirs = other >= 0 ? rowsOf(other) : [];
    const share = other >= 0;
    const height = (row, region, ends = values) => share ? 100 * ends[row] / Math.max(1, weight[region]) : ends[row];
    const most = largest(1e-9, [...mine.map(row => height(row, current, upper ?? values)), ...theirs.map(row => height(row, other))]);
    const places = [...mine, ...theirs].map(row => keys[row]);
    const first = data.from_zero ? 0 : -largest(-Infinity, places.map(place => -place)), last = largest(first + 1, places);
    const W = room(), H = 260, left = Math.max(52, 14 + wideOf(figure(Math.round(most)))), right = 8, top = 8, bottom = 34;
    const wide = data.from_zero && last > 60, tall = data.from_zero && !share && most > 60, across = W - left - right;
    const apart = data.from_zero ? 1 : nearest(places);  // what two neighbouring bars are apart
    const x = size => left + across * (wide ? Math.log1p(size) / Math.log1p(last + 1) : (size - first + apart / 2) / (last - first + apart));
    const scaled = value => tall ? Math.log1p(value) / Math.log1p(most) : value / most;
    const y = value => top + (H - top - bottom) * (1 - scaled(Math.max(0, value)));
    const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label":
      `${words.value} by ${words.key} in ${names[current]}${share ? " and " + names[other] : ""}; the table below has the figures` });
    const ticks = tall ? [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].filter(value => value <= most) : steps(most);
    let labelled = Infinity;
    for (const value of ticks) {
      svg.append(drawn("line", { class: "grid", x1: left, x2: W - right, y1: y(value), y2: y(value) }));
      if (labelled - y(value) < 11) continue;  // letters are that high
      svg.append(drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, figure(value)));
      labelled = y(value);
    }
    const sizes = wide ? [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5, 1e6].filter(size => size <= last) : steps(last, first, true);
    let free = 0;  // where the last label ends
    for (const size of sizes) {
      const half = wideOf(figure(size)) / 2, middle = Math.min(x(size), W - half);
      if (middle - half < free) continue;
      svg.append(drawn("text", { x: middle, y: H - bottom + 16, "text-anchor": "middle" }, figure(size)));
      free = middle + half + 6;
    }
    svg.append(drawn("text", { x: (left + W) / 2, y: H - 4, "text-anchor": "middle" },
      `${words.key}${wide ? " (logarithmic)" : ""}; ${share ? "per cent of " : ""}${words.value}${tall ? " (logarithmic)" : ""}`));
    const thick = Math.max(1.5, Math.min(28, wide ? 4 : .7 * across * apart / (last - first + apart)));
    for (const row of mine) {
      const at = x(keys[row]), to = y(height(row, current));
      const bar = drawn("rect", { class: "bar", x: at - thick / 2, width: thick, y: to, height: Math.max(0, H - bottom - to) });
      bar.append(drawn("title", {}, `${words.key} ${figure(keys[row])}: ${figure(values[row])}`));
      svg.append(bar);
      if (upper && upper[row] > lower[row]) {
        svg.append(drawn("line", { class: "range", x1: at, x2: at, y1: y(height(row, current, lower)), y2: y(height(row, current, upper)) }));
      }
    }
    for (const row of theirs) svg.append(drawn("circle", { class: "other", cx: x(keys[row]), cy: y(height(row, other)), r: 4 }));
    svg.append(drawn("line", { class: "axis", x1: left, x2: W - right, y1: H - bottom, y2: H - bottom }));
    return svg;
  }
  function steps(most, least = 0, whole = false) {
    let step = 10 ** Math.floor(Math.log10((most - least) / 4 || 1));
    for (const factor of [1, 2, 5, 10]) if ((most - least) / (step * factor) <= 6) { step *= factor; break; }
    if (whole) step = Math.max(1, Math.round(step));
    const start = Math.ceil(least / step);
    return Array.from({ length: Math.floor(most / step) - start + 1 }, (_, k) => (start + k) * step);
  }
  function nearest(places) {
    const sorted = [...new Set(places)].sort((a, b) => a - b);
    const apart = sorted.slice(1).map((place, k) => place - sorted[k]);
    return apart.length ? -largest(-Infinity, apart.map(one => -one)) : 1;
  }

  function bars() {
    const share = new Map(other >= 0 ? rowsOf(other).map(row => [keys[row], values[row] / Math.max(1, weight[other])]) : []);
    const mine = rowsOf(current).sort((a, b) => values[b] - values[a]).slice(0, 24);
    const of = row => values[row] / Math.max(1, weight[current]);
    const most = largest(1e-9, [...mine.map(of), ...mine.map(row => share.get(keys[row]) ?? 0)]);
    const grid = node("div", null, { class: "bars", "aria-hidden": "true" });
    for (const row of mine) {
      const track = node("span", null, { class: "track" });
      track.append(node("div", null, { class: "fill", style: `width:${100 * of(row) / most}%` }));
      if (other >= 0) track.append(node("div", null, { class: "fill second", style: `width:${100 * (share.get(keys[row]) ?? 0) / most}%` }));
      grid.append(node("span", key(row)), track, node("span", figure(values[row])));
    }
    return grid;
  }

  // --- the figures, and a file of them ---
  function tables() {
    const header = [words.key, words.value, ...(upper ? ["from", "to"] : [])];
    const cells = row => [key(row), values[row], ...(upper ? [lower[row], upper[row]] : [])];
    const mine = rowsOf(current);
    const table = node("table"), head = node("tr"), body = node("tbody"), top = node("thead");
    table.append(node("caption", `${words.value} by ${words.key} in ${names[current]}`, { class: "note" }));
    header.forEach((name, k) => head.append(node("th", name, { scope: "col", ...(k || !labels ? { class: "n" } : {}) })));
    top.append(head);
    for (const row of all ? mine : mine.slice(0, SHOWN)) {
      const line = node("tr");
      cells(row).forEach((cell, k) => line.append(node("td", k || !labels ? figure(cell) : cell, k || !labels ? { class: "n" } : {})));
      body.append(line);
    }
    table.append(top, body);
    const more = node("button", `Show all ${figure(mine.length)} rows`, { type: "button", class: "tool", onclick: () => { all = true; tables(); } });
    const quote = text => /[",\n]/.test(text) ? '"' + String(text).replaceAll('"', '""') + '"' : text;
    const file = node("button", "Download as CSV", { type: "button", class: "tool", onclick: () => {
      const lines = [["region", ...header], ...mine.map(row => [paths[current], ...cells(row)])];
      const text = lines.map(line => line.map(quote).join(",")).join("\r\n") + "\r\n";
      const link = node("a", null, { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${names[current]}.csv` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } });
    const details = node("details"), box = node("div", null, { class: "wide", tabindex: "0", role: "group", "aria-label": "The figures" });
    details.open = all;
    box.append(table);
    details.append(node("summary", "The figures"), box);
    if (!all && mine.length > SHOWN) details.append(more);
    listing.replaceChildren(details, file);
  }

  // --- the parts of a region, by their weight: a squarified treemap (Bruls, Huizing, van Wijk 2000) ---
  function tiles() {
    parts.replaceChildren();
    const below = [...children[current]].sort((a, b) => weight[b] - weight[a]);
    if (!below.length) return;
    parts.append(node("h3", `Its ${figure(below.length)} parts (${levels[level[below[0]]]}), by ${words.weight}`));
    const W = room(), H = 300, svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "group", "aria-label": `Parts of ${names[current]}` });
    const shown = below.filter(region => weight[region] > 0).slice(0, 400);
    const total = shown.reduce((sum, region) => sum + weight[region], 0);
    let x = 0, y = 0, w = W, h = H, line = [];
    const area = region => weight[region] / total * W * H;
    const worst = (row, side) => {
      const sum = row.reduce((all, one) => all + area(one), 0), s2 = side * side, q = sum * sum;
      return Math.max(...row.map(one => Math.max(s2 * area(one) / q, q / (s2 * area(one)))));
    };
    const lay = () => {
      const sum = line.reduce((all, one) => all + area(one), 0);
      let along = 0;
      for (const region of line) {
        const long = area(region) / sum;
        if (w >= h) tile(region, x, y + along * h, sum / h, long * h);
        else tile(region, x + along * w, y, long * w, sum / w);
        along += long;
      }
      if (w >= h) { x += sum / h; w -= sum / h; } else { y += sum / w; h -= sum / w; }
      line = [];
    };
    const tile = (region, left, top, width, height) => {
      const link = drawn("a", { href: "#explorer", role: "link", "aria-label": `${names[region]} ${figure(weight[region])} ${words.weight}${ids[region] ? ", " + ids[region] : ""}` });
      link.addEventListener("click", event => { event.preventDefault(); go(region); });
      const rect = drawn("rect", { class: "tile", x: left, y: top, width, height });
      rect.append(drawn("title", {}, `${label(region)}: ${figure(weight[region])}`));
      link.append(rect);
      const long = wideOf(names[region]) + 10;
      if (width <= long && width > 16 && height > long) {  // from top to bottom
        link.append(drawn("text", { class: "tile-name", transform: `translate(${left + width / 2 - 4} ${top + 5}) rotate(90)` }, names[region]));
      }
      if (width > long && height > 18) {
        const text = drawn("text", { class: "tile-name", x: left + 5, y: top + 15 }, names[region]);
        if (height > 34 && width > wideOf(figure(weight[region])) + 10) text.append(" ", drawn("tspan", { x: left + 5, y: top + 30 }, figure(weight[region])));
        link.append(text);
      }
      svg.append(link);
    };
    for (const region of shown) {
      const side = Math.min(w, h);
      if (line.length && worst([...line, region], side) > worst(line, side)) lay();
      line.push(region);
    }
    if (line.length) lay();
    parts.append(svg);
    const hidden = below.length - shown.length;
    if (hidden) parts.append(node("p", hidden === 1 ? "The smallest is not drawn; find it by name." : `The ${figure(hidden)} smallest are not drawn; find them by name.`, { class: "note" }));
  }
  show();
})();

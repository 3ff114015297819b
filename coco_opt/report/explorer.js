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
  const figure = number => Number(number).toLocaleString("en", { maximumFractionDigits: Math.abs(number) >= 10 ? 0 : 1 });
  const digits = number => {
    const size = Math.abs(number);
    return Number(number).toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3 });
  };
  const wideOf = digits => 6.3 * digits.length;  // pixels
  const probe = document.createElement("div");
  probe.innerHTML = "<svg></svg>";
  const pictures = probe.firstChild.namespaceURI;  // so that no address stands in the page
  const room = () => Math.max(320, Math.min(760, home.clientWidth || 720));  // pixels: letters keep their size
  let current = 0, other = -1, log = false;

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
  const label = region => names[region] + (ids[region] && ids[region] !== names[region] ? ` (${ids[region]})` : "");
  const key = row => (labels ? labels[keys[row]] : keys[row]);
  const go = region => { current = region; show(); heading.focus(); };
  const capital = text => text.charAt(0).toUpperCase() + text.slice(1);
  const between = row => upper && upper[row] > lower[row] ? `, between ${figure(lower[row])} and ${figure(upper[row])}` : "";

  // --- a table that sorts by any column, and a file of it ---
  function sheet(caption, header, rows, texts = 1, opened) {  // `texts` columns are texts; `opened` goes to a row's region
    const SHOWN = 50, box = node("div", null, { class: "wide", tabindex: "0", role: "group", "aria-label": caption });
    let by = -1, down = true, all = false;
    const draw = () => {
      const table = node("table"), head = node("tr"), top = node("thead"), body = node("tbody");
      header.forEach((name, k) => {
        const cell = node("th", null, { scope: "col", ...(k < texts ? {} : { class: "n" }), ...(k === by ? { "aria-sort": down ? "descending" : "ascending" } : {}) });
        cell.append(node("button", name + (k === by ? (down ? " \u2193" : " \u2191") : ""), { type: "button", title: `Sort by ${name}`, onclick: () => {
          down = k === by ? !down : k >= texts;
          by = k;
          draw();
          box.querySelectorAll("th button")[k].focus();
        } }));
        head.append(cell);
      });
      top.append(head);
      const order = (a, b) => by < texts ? String(a[by]).localeCompare(String(b[by]), "en", { numeric: true }) : (Number.isNaN(b[by]) - Number.isNaN(a[by])) || a[by] - b[by];
      const sorted = by < 0 ? rows : [...rows].sort((a, b) => (down ? -1 : 1) * order(a, b));
      for (const row of all ? sorted : sorted.slice(0, SHOWN)) {
        const line = node("tr");
        header.forEach((_, k) => {
          const text = k < texts ? row[k] : Number.isNaN(row[k]) ? "not defined" : digits(row[k]), cell = node("td", null, k < texts ? {} : { class: "n" });
          cell.append(k || !opened ? text : node("button", text, { type: "button", onclick: () => opened(row) }));
          line.append(cell);
        });
        body.append(line);
      }
      table.append(node("caption", caption, { class: "note" }), top, body);
      const more = node("button", `Show all ${figure(rows.length)} rows`, { type: "button", class: "tool", onclick: () => { all = true; draw(); } });
      box.replaceChildren(table, ...(all || rows.length <= SHOWN ? [] : [more]));
    };
    draw();
    return box;
  }
  function folded(words, parts, open = false) {
    const details = node("details", null, open ? { open: "" } : {});
    details.append(node("summary", words), ...parts);
    return details;
  }
  const inert = text => /^\s*[=+\-@]/.test(text) && Number.isNaN(Number(text)) ? "'" + text : String(text);  // no name is run as a formula
  const quoted = text => /[",\r\n]/.test(inert(text)) ? '"' + inert(text).replaceAll('"', '""') + '"' : inert(text);
  function file(words, name, lines) {
    return node("button", words, { type: "button", class: "tool", onclick: () => {
      const text = "\ufeff" + lines().map(line => line.map(quoted).join(",")).join("\r\n") + "\r\n";
      const link = node("a", null, { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${name}.csv` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } });
  }

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
  home.replaceChildren(finders, trail, heading, summary, place, parts, picture, listing);
  const map = data.map ? choropleth(place, { data, paths, children, starts, label, figure, node, drawn, room, digits, sheet, folded, go: region => { current = region; show(); } }) : null;

  // --- one region ---
  function show() {
    const above = [];
    for (let region = parent[current]; region >= 0; region = parent[region]) above.unshift(region);
    trail.replaceChildren(...above.flatMap(region =>
      [node("button", names[region], { type: "button", onclick: () => go(region) }), document.createTextNode(" / ")]));
    heading.textContent = label(current);
    const rest = other >= 0 ? `, compared with ${words.places ? names[other] : paths[other]} (${figure(weight[other])})` : "";
    summary.textContent = `${figure(weight[current])} ${words.weight} in this ${levels[level[current]]}${rest}.`;
    if (map) map(current);
    tiles();
    drawChart();
    tables();
  }
  function drawChart() {
    const title = node("h3", capital(words.title) + (other >= 0 ? ", per cent" : ""));
    picture.replaceChildren(title, ...(labels ? bars() : histogram()));
  }
  const rowsOf = region => Array.from({ length: rows[region] }, (_, k) => starts[region] + k);

  const TAIL = .005, FEW = 14;  // share of all that a linear axis may leave out; bars with their figures above
  function histogram() {
    const share = other >= 0;
    // Ranges stand side by side: classes of unequal width would leave gaps where they begin.
    const spot = row => words.places && !share ? row - starts[current] : keys[row], places = region => rowsOf(region).map(spot);
    const every = share ? [...places(current), ...places(other)] : places(current);
    const first = data.from_zero ? 0 : -largest(-Infinity, every.map(place => -place));
    const last = Math.max(first + 1, data.from_zero && !log ? Math.max(tail(current), share ? tail(other) : 0) : largest(first, every));
    const drawnOf = region => rowsOf(region).filter(row => spot(row) <= last), mine = drawnOf(current), theirs = share ? drawnOf(other) : [];
    const height = (row, region, ends = values) => share ? 100 * ends[row] / Math.max(1, weight[region]) : ends[row];
    const most = largest(1e-9, [...mine.map(row => height(row, current, upper ?? values)), ...theirs.map(row => height(row, other))]);
    const W = room(), H = 280, left = Math.max(52, 14 + wideOf(figure(Math.round(most)))), right = 8, top = 30, bottom = 38;
    const wide = log && last > 60, tall = log && !share, across = W - left - right;
    const apart = data.from_zero ? 1 : nearest(every);  // what two neighbouring bars are apart
    const x = size => left + across * (wide ? Math.log1p(size) / Math.log1p(last + 1) : (size - first + apart / 2) / (last - first + apart));
    const scaled = value => tall ? Math.log1p(value) / Math.log1p(most) : value / most;
    const y = value => top + (H - top - bottom) * (1 - scaled(Math.max(0, value)));
    const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label":
      `${words.title} in ${names[current]}${share ? " and " + names[other] : ""}; the table below has the figures` });
    const ticks = tall ? [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].filter(value => value <= most) : steps(most);
    let labelled = Infinity;
    for (const value of ticks) {
      svg.append(drawn("line", { class: "grid", x1: left, x2: W - right, y1: y(value), y2: y(value) }));
      if (labelled - y(value) < 11) continue;  // letters are that high
      svg.append(drawn("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, figure(value)));
      labelled = y(value);
    }
    const below = children[current], few = new Set(mine.map(spot));
    const written = mine.length <= FEW && mine.every(row => wideOf(figure(values[row])) < across * apart / (last - first + apart));
    const named = size => (words.places && names[below.length || share ? below[mine.findIndex(row => spot(row) === size)] : current]) || figure(size);
    const sizes = !wide && few.size <= FEW ? [...few] : wide ? [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 1e4, 1e5, 1e6].filter(size => size <= last) : steps(last, first, true);
    let free = 0;  // where the last label ends
    for (const size of sizes) {
      const half = wideOf(named(size)) / 2, middle = Math.min(x(size), W - half);
      if (middle - half < free) continue;
      svg.append(drawn("text", { x: middle, y: H - bottom + 16, "text-anchor": "middle" }, named(size)));
      free = middle + half + 6;
    }
    svg.append(drawn("text", { x: (left + W) / 2, y: H - 4, "text-anchor": "middle" }, words.key), drawn("text", { x: 2, y: 12 }, share ? `% of ${words.value}` : words.value));
    const thick = Math.max(1.5, Math.min(40, wide ? 4 : .7 * across * apart / (last - first + apart)));
    for (const row of mine) {
      const at = x(spot(row)), to = y(height(row, current));
      const bar = drawn("rect", { class: "bar", x: at - thick / 2, width: thick, y: to, height: Math.max(0, H - bottom - to) });
      bar.append(drawn("title", {}, `${words.key} ${named(spot(row))}: ${figure(values[row])}${between(row)}`));
      svg.append(bar);
      const end = upper && upper[row] > lower[row] ? y(height(row, current, upper)) : to;
      if (end < to || (upper && upper[row] > lower[row])) svg.append(drawn("line", { class: "range", x1: at, x2: at, y1: y(height(row, current, lower)), y2: end }));
      if (written && !share) svg.append(drawn("text", { class: "value", x: at, y: end - 5, "text-anchor": "middle" }, figure(values[row])));
    }
    for (const row of theirs) svg.append(drawn("circle", { class: "other", cx: x(spot(row)), cy: y(height(row, other)), r: 4 }));
    svg.append(drawn("line", { class: "axis", x1: left, x2: W - right, y1: H - bottom, y2: H - bottom }));
    const parts = [svg];
    const beyond = rowsOf(current).filter(row => spot(row) > last).reduce((sum, row) => sum + values[row], 0);
    if (beyond) parts.push(node("p", `Not drawn: ${figure(beyond)} ${words.value} with more than ${figure(last)}; they are in the table, and on the logarithmic axes.`, { class: "note" }));
    if (share) parts.push(node("p", `Bars: ${names[current]}. Rings: ${names[other]}.`, { class: "note" }));
    if (data.from_zero) {
      const box = node("input", null, { type: "checkbox", id: "log" }), outer = node("label", null, { class: "switch" });
      box.checked = log;
      box.addEventListener("change", () => { log = box.checked; drawChart(); document.getElementById("log").focus(); });
      outer.append(box, " Logarithmic axes, which show small and large numbers together");
      parts.push(outer);
    }
    return parts;
  }
  function tail(region) {  // the largest key that a linear axis shows
    let left = TAIL * Math.max(1, weight[region]), row = starts[region + 1] - 1;
    while (row > starts[region] && (left -= values[row]) >= 0) row--;
    return row >= starts[region] ? keys[row] : 0;
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
    const every = rowsOf(current).sort((a, b) => values[b] - values[a]), mine = every.slice(0, 24);
    const of = row => values[row] / Math.max(1, weight[current]);
    const most = largest(1e-9, [...mine.map(of), ...mine.map(row => share.get(keys[row]) ?? 0)]);
    const grid = node("div", null, { class: "bars", "aria-hidden": "true" });
    for (const row of mine) {
      const track = node("span", null, { class: "track" });
      track.append(node("div", null, { class: "fill", style: `width:${100 * of(row) / most}%` }));
      if (other >= 0) track.append(node("div", null, { class: "fill second", style: `width:${100 * (share.get(keys[row]) ?? 0) / most}%` }));
      grid.append(node("span", key(row)), track, node("span", figure(values[row])));
    }
    const notes = [mine.length < every.length ? `The ${mine.length} largest of ${figure(every.length)}; the table has all.` : "", other >= 0 ? `Thin bars: ${names[other]}.` : ""].join(" ").trim();
    return notes ? [grid, node("p", notes, { class: "note" })] : [grid];
  }

  // --- the figures, and files of them ---
  function tables() {
    const header = [words.key, words.value, ...(upper ? ["from", "to"] : [])], below = children[current];
    const nested = !data.from_zero && !labels && below.length;  // ranges: a row is a part
    const cells = row => [labels ? labels[keys[row]] : keys[row], values[row], ...(upper ? [lower[row], upper[row]] : [])];
    const above = region => {
      const line = levels.map(() => "");
      for (let at = region; at >= 0; at = parent[at]) line[level[at]] = names[at];
      return line;
    };
    const places = words.places ? [words.places.slice(0, -1)] : [...levels, ...(ids.some(Boolean) ? ["region_id"] : [])];
    const place = region => words.places ? [names[region]] : [...above(region), ...(ids.some(Boolean) ? [ids[region] ?? ""] : [])];
    const lines = regions => [[...places, ...header], ...regions.flatMap(region => rowsOf(region).map(row => [...place(region), ...cells(row)]))];
    const rows = rowsOf(current).map((row, k) => nested ? [names[below[k]], ...cells(row).slice(1), below[k]] : cells(row));
    const title = `${capital(words.title)} in ${names[current]}`;
    listing.replaceChildren(folded("The figures as a table", [sheet(title, header, rows, 1, nested ? row => go(row.at(-1)) : null)], rows.length <= FEW),
      file("Download these figures (CSV)", names[current], () => lines([current])),
      file(`Download all ${words.places ?? "regions"} (CSV)`, document.title, () => lines(names.map((_, region) => region))));
  }

  // --- the parts of a region, by their weight: a squarified treemap (Bruls, Huizing, van Wijk 2000) ---
  function tiles() {
    parts.replaceChildren();
    const below = [...children[current]].sort((a, b) => weight[b] - weight[a]);
    if (!below.length || words.places || (map && !place.hidden)) return;  // a chart or a map shows them
    parts.append(node("h3", `${capital(words.weight)} by ${levels[level[below[0]]]}`));
    const pointed = node("p", "Choose one to see its figures.", { class: "note", role: "status" });
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
      for (const kind of ["pointerenter", "focus"]) link.addEventListener(kind, () => { pointed.textContent = `${label(region)}: ${figure(weight[region])} ${words.weight}`; });
      const rect = drawn("rect", { class: "tile", x: left, y: top, width, height });
      rect.append(drawn("title", {}, `${label(region)}: ${figure(weight[region])}`));
      link.append(rect);
      const long = wideOf(names[region]) + 10, both = `${names[region]} ${figure(weight[region])}`;
      if (width <= long && width > 16 && height > long) {  // from top to bottom
        link.append(drawn("text", { class: "tile-name", transform: `translate(${left + width / 2 - 4} ${top + 5}) rotate(90)` }, height > wideOf(both) + 10 ? both : names[region]));
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
    const rows = below.map(region => [label(region), weight[region], region]);
    parts.append(svg, pointed, folded(`All ${figure(below.length)} as a table`, [sheet(`${capital(words.weight)} by ${levels[level[below[0]]]} in ${names[current]}`, [levels[level[below[0]]], words.weight], rows, 1, row => go(row[2]))]));
  }
  show();
})();

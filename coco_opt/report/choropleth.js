"use strict";
// A map of a release's regions, from the outlines embedded in the page: counts, shares and widths of intervals in colour.
// `about` is what the explorer knows and does; the function returned draws the map of a region.
function choropleth(home, about) {
  const { data, paths, children, starts, label, figure, node, drawn, digits, sheet, folded, go } = about;
  const { names, parent, level, levels, weight, rows, keys, values, lower, upper, labels, words, map } = data;
  const CLASSES = 6, MOST = 5000, TINY = 3;  // colours; regions at once; pixels
  const chosen = { measure: "", key: null, values: map.attributes.map(() => -1), depth: -1 };
  const arcs = decoded(map), boxes = map.rings.map(boxOf);

  // --- outlines ---
  function decoded({ lengths, steps }) {
    let at = 0;
    return lengths.map(length => {
      const line = new Int32Array(2 * length);
      for (let k = 0, x = 0, y = 0; k < 2 * length; k += 2) {
        line[k] = x += steps[at++];
        line[k + 1] = y += steps[at++];
      }
      return line;
    });
  }
  function boxOf(rings) {
    if (!rings || !rings.length) return null;
    let west = Infinity, north = Infinity, east = -Infinity, south = -Infinity;
    for (const ring of rings) for (const arc of ring) {
      const line = arcs[arc < 0 ? ~arc : arc];
      for (let k = 0; k < line.length; k += 2) {
        west = Math.min(west, line[k]); east = Math.max(east, line[k]);
        north = Math.min(north, line[k + 1]); south = Math.max(south, line[k + 1]);
      }
    }
    return [west, north, east, south];
  }
  function outline(rings) {
    let path = "";
    for (const ring of rings) {
      let first = true;
      for (const arc of ring) {
        const line = arcs[arc < 0 ? ~arc : arc], end = line.length;
        for (let k = first ? 0 : 2; k < end; k += 2) {
          const at = arc < 0 ? end - 2 - k : k;
          path += (first && k === 0 ? "M" : "L") + line[at] + " " + line[at + 1];
        }
        first = false;
      }
      path += "Z";
    }
    return path;
  }
  function below(region, depth) {
    let found = [region];
    while (found.length && level[found[0]] < depth) found = found.flatMap(one => children[one]);
    return found.filter(one => boxes[one]);
  }

  // --- what is shown ---
  function selected() {  // which rows count, null where all do
    if (map.attributes.length) {
      const fixed = map.attributes.map(([, , codes], k) => [codes, chosen.values[k]]).filter(([, value]) => value >= 0);
      return fixed.length ? row => fixed.every(([codes, value]) => codes[keys[row]] === value) : null;
    }
    return chosen.key === null ? null : row => keys[row] === chosen.key;
  }
  function sum(region, counts, ends) {
    let total = 0;
    for (let row = starts[region]; row < starts[region + 1]; row++) if (counts(row)) total += ends[row];
    return total;
  }
  const mean = region => {
    let total = 0;
    for (let row = starts[region]; row < starts[region + 1]; row++) total += keys[row] * values[row];
    return weight[region] ? total / weight[region] : NaN;
  };
  const percent = (part, all) => all > 0 ? 100 * part / all : NaN;
  function measures() {  // each: its name, a region's value, the unit behind it
    const counts = selected(), count = region => counts ? sum(region, counts, values) : weight[region];
    const own = { id: "own", name: `share of its ${words.weight}`, of: region => percent(count(region), weight[region]), unit: " %" };
    const part = { id: "part", name: `share of the ${levels[depth - 1]}'s ${words.weight}`, of: region => percent(weight[region], weight[parent[region]]), unit: " %" };
    const all = counts ? [own] : labels ? [part] : [{ id: "mean", name: `mean ${words.key}`, of: mean, unit: "" }, part];
    all.push({ id: "count", name: `number of ${words.value}`, of: count, unit: "" });
    if (counts && upper && chosen.key !== null) {
      const width = region => sum(region, counts, upper) - sum(region, counts, lower);
      all.push({ id: "width", name: "width of the interval", of: width, unit: "", spread: true });
      all.push({ id: "relative", name: "width relative to the number", of: region => percent(width(region), count(region)), unit: " %", spread: true });
    }
    if (!counts && map.widths) all.push({ id: "width", name: words.width, of: region => map.widths[region] < 0 ? NaN : map.widths[region], unit: "", spread: true });
    return all;
  }
  const shown = (number, unit) => Number.isNaN(number) ? "not defined" : digits(number) + unit;
  function breaks(numbers) {  // where classes begin: quantiles, with as few digits as tell them apart
    const sorted = numbers.filter(number => !Number.isNaN(number)).sort((a, b) => a - b), quantiles = new Set();
    for (let k = 1; k < CLASSES; k++) quantiles.add(sorted[Math.floor(k * sorted.length / CLASSES)]);
    let found = [];
    for (let precision = 2; precision <= 5 && found.length < quantiles.size; precision++) {
      const rounded = [...quantiles].map(number => Number(Number(number).toPrecision(precision)));
      found = [...new Set(rounded)].filter(limit => limit > sorted[0] && limit <= sorted.at(-1));
    }
    return found;
  }
  const limit = number => number.toLocaleString("en", { maximumSignificantDigits: 5 });

  // --- controls, built once ---
  const title = node("h3", ""), bar = node("div", null, { class: "choices" }), frame = node("div", null, { class: "frame" });
  const tip = node("p", "", { class: "tip", role: "status" }), legend = node("ul", null, { class: "legend", "aria-label": "Colours of the map" });
  const note = node("p", "", { class: "note" }), box = node("div"), table = folded("The map's figures as a table", [box]);
  const up = node("button", "", { type: "button", class: "tool", onclick: () => moved(above()) });
  table.addEventListener("toggle", list);
  home.append(title, bar, frame, legend, note, up, table);
  function chooser(id, words, options, value, picked) {
    const outer = node("div"), select = node("select", null, { id });
    for (const [value, text] of options) select.append(node("option", text, { value }));
    select.value = value;
    select.addEventListener("change", () => picked(select.value));
    outer.append(node("label", words, { for: id }), select);
    return outer;
  }
  function controls(depths) {
    const parts = [chooser("map-measure", "Colour shows", [], "", id => { chosen.measure = id; refresh(); })];
    if (depths.length > 1) {
      parts.push(chooser("map-level", "By", depths.map(depth => [depth, levels[depth]]), depth, value => { chosen.depth = Number(value); draw(current); document.getElementById("map-level").focus(); }));
    }
    if (map.attributes.length) {
      map.attributes.forEach(([name, list], k) => parts.push(chooser(`map-${k}`, name, [[-1, "all"], ...list.map((text, j) => [j, text])],
        chosen.values[k], value => { chosen.values[k] = Number(value); refresh(); })));
    } else {
      const some = [...new Set(keys.slice(starts[0], starts[1]))].sort((a, b) => a - b).slice(0, 500);
      parts.push(chooser("map-key", words.key, [["", "all"], ...some.map(one => [one, figure(one)])],
        chosen.key ?? "", value => { chosen.key = value === "" ? null : Number(value); refresh(); }));
    }
    bar.replaceChildren(...parts);
  }

  // --- the picture ---
  let current = 0, base = 0, depth = 1, regions = [], shapes = new Map(), here = -1, measure, svg, mark, scale = 1, numbers = [];
  function draw(region) {
    current = region;
    base = children[region].some(one => boxes[one]) || parent[region] < 0 ? region : parent[region];
    const depths = levels.map((_, depth) => depth).filter(depth => {
      if (depth <= level[base]) return false;
      const count = below(base, depth).length;
      return count > 0 && count <= MOST;
    });
    home.hidden = !depths.length;
    if (home.hidden) return;
    depth = depths.includes(chosen.depth) ? chosen.depth : depths.at(-1);
    regions = below(base, depth);
    const missing = countBelow(base, depth) - regions.length;
    title.textContent = `Map of ${names[base]} by ${levels[depth]}`;
    const within = one => one >= 0 && (one === base || within(parent[one])), apart = map.apart.filter(within).map(one => names[one]);
    note.textContent = [
      missing ? `${figure(missing)} of ${figure(missing + regions.length)} regions have no outline and are not drawn.` : "",
      apart.length && !map.apart.includes(base) ? `Below the rest, each at a scale of its own: ${apart.join(", ")}.` : "",
    ].join(" ").trim();
    note.hidden = !note.textContent;
    up.hidden = above() < 0;
    up.textContent = up.hidden ? "" : `Up to ${names[above()]}`;
    picture();
    controls(depths);
    refresh();
  }
  const above = () => base === current || parent[base] >= 0 ? parent[base] : base;
  const countBelow = (region, depth) => level[region] === depth ? 1 : children[region].reduce((sum, one) => sum + countBelow(one, depth), 0);
  function picture() {
    const bounds = regions.map(one => boxes[one]).reduce(([a, b, c, d], [e, f, g, h]) => [Math.min(a, e), Math.min(b, f), Math.max(c, g), Math.max(d, h)]);
    const width = Math.max(1, bounds[2] - bounds[0]), height = Math.max(1, bounds[3] - bounds[1]), W = about.room();
    scale = Math.min(W / width, Math.max(260, .75 * W) / height) * .98;  // pixels a unit
    const H = Math.ceil(height * scale / .98), edge = 1 / scale;
    const view = [bounds[0] - (W / scale - width) / 2, bounds[1] - (H / scale - height) / 2, W / scale, H / scale];
    svg = drawn("svg", { class: "map", viewBox: view.join(" "), tabindex: 0, role: "application" });
    const apart = Math.sqrt(width * height / regions.length) * scale;
    const fill = drawn("g", { "stroke-width": edge * Math.max(.1, Math.min(1, apart / 45)) });
    shapes = new Map();
    for (const one of regions) {
      const shape = drawn("path", { d: outline(map.rings[one]) + dot(one) });
      shape.region = one;
      shapes.set(one, shape);
      fill.append(shape);
    }
    const lines = drawn("path", { class: "border", "stroke-width": edge * Math.max(.8, Math.min(2, apart / 10)), d: below(base, depth - 1).map(one => outline(map.rings[one])).join("") });
    mark = drawn("path", { class: "here", "stroke-width": edge * Math.max(1.4, Math.min(2.5, apart / 10)) });
    svg.append(fill, lines, mark);
    svg.addEventListener("pointermove", event => point(event.target.region ?? -1, event));
    svg.addEventListener("pointerleave", () => point(svg.matches(":focus") ? here : -1));
    svg.addEventListener("click", event => { if (event.target.region !== undefined && !touched(event)) moved(event.target.region); });
    svg.addEventListener("keydown", walked);
    svg.addEventListener("focus", () => { if (here < 0 && svg.matches(":focus-visible")) point(shapes.has(current) ? current : regions[0]); });
    svg.addEventListener("blur", () => point(-1));
    frame.replaceChildren(svg, tip);
    here = -1;
  }
  function dot(region) {  // what would be too small to see is a dot
    const [west, north, east, south] = boxes[region], r = TINY / 2 / scale;
    if ((east - west) * scale > TINY || (south - north) * scale > TINY) return "";
    return `M${(west + east) / 2 - r} ${(north + south) / 2}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  }
  function refresh() {
    const all = measures(), select = document.getElementById("map-measure");
    measure = all.find(({ id }) => id === chosen.measure) ?? all[0];
    chosen.measure = measure.id;
    select.replaceChildren(...all.map(({ id, name }) => node("option", name, { value: id })));
    select.value = measure.id;
    numbers = regions.map(measure.of);
    const limits = breaks(numbers), classes = numbers.map(number => Number.isNaN(number) ? -1 : limits.filter(limit => number >= limit).length);
    const spread = limits.length ? (CLASSES - 1) / limits.length : 0;  // few classes use both ends of the colours
    const colour = k => k < 0 ? "none" : `${measure.spread ? "w" : "m"}${Math.round(k * spread)}`;
    regions.forEach((one, k) => shapes.get(one).setAttribute("class", colour(classes[k])));
    legend.replaceChildren(...[...limits, null].map((_, k) => entry(k, limits, colour(k))), ...(classes.includes(-1) ? [entry(-1, limits, "none")] : []));
    svg.setAttribute("aria-label", description());
    point(here);
    list();
  }
  function entry(k, limits, colour) {
    const item = node("li"), swatch = drawn("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" });
    swatch.append(drawn("rect", { class: colour, width: 10, height: 10 }));
    const { unit } = measure, from = limits[k - 1], to = limits[k];
    const words = k < 0 ? "not defined" : from === undefined ? to === undefined ? `all: ${shown(numbers.find(number => !Number.isNaN(number)) ?? NaN, unit)}` : `below ${limit(to)}${unit}`
      : to === undefined ? `${limit(from)}${unit} or more` : `${limit(from)} to ${limit(to)}${unit}`;
    item.append(swatch, node("span", words));
    return item;
  }
  function description() {  // the map in words
    const known = regions.map((one, k) => [numbers[k], one]).filter(([number]) => !Number.isNaN(number)).sort((a, b) => a[0] - b[0]);
    const ends = known.length ? [known[0], known.at(-1)].map(([number, one]) => `${shown(number, measure.unit)} in ${names[one]}`).join(" to ") : "nowhere defined";
    return `Map of ${figure(regions.length)} regions of ${names[base]} (${levels[depth]}): ${measure.name}, from ${ends}. Arrow keys go from region to region, Enter opens one; the table below has the figures.`;
  }

  // --- one region on the map ---
  function point(region, event) {
    const target = region >= 0 ? region : shapes.has(current) ? current : -1;
    mark.setAttribute("d", target >= 0 ? outline(map.rings[target]) + dot(target) : "");
    if (region !== here || !event) tip.textContent = region >= 0 ? sentence(region) : "";
    here = region;
    tip.hidden = region < 0;
    if (region < 0) return;
    const area = frame.getBoundingClientRect(), middle = shapes.get(region).getBoundingClientRect();
    const x = event ? event.clientX - area.left : middle.left + middle.width / 2 - area.left;
    const y = event ? event.clientY - area.top : middle.top + middle.height / 2 - area.top;
    const left = Math.max(0, Math.min(area.width - tip.offsetWidth, x - tip.offsetWidth / 2));
    tip.style.transform = `translate(${left}px, ${y > tip.offsetHeight + 24 ? y - tip.offsetHeight - 14 : y + 20}px)`;
  }
  function sentence(region) {
    const above = parent[region] >= 0 && parent[region] !== base ? `, ${names[parent[region]]}` : "";
    const number = numbers[regions.indexOf(region)], counts = selected();
    const count = counts ? sum(region, counts, values) : weight[region];
    const rest = measure.id === "count" ? "" : `; ${figure(count)} ${words.value}`;
    return `${label(region)}${above}: ${shown(number, measure.unit)}${rest}`;
  }
  function touched(event) {  // the first touch shows a region, the second opens it
    const first = event.pointerType === "touch" && here !== event.target.region;
    if (first) point(event.target.region, event);
    return first;
  }
  function walked(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter" && here >= 0) { event.preventDefault(); moved(here); return; }
    if (!way) return;
    event.preventDefault();
    const centre = one => [(boxes[one][0] + boxes[one][2]) / 2, (boxes[one][1] + boxes[one][3]) / 2];
    const from = centre(here < 0 ? regions[0] : here);
    let best = -1, least = Infinity;
    for (const one of regions) {
      const [x, y] = centre(one), along = (x - from[0]) * way[0] + (y - from[1]) * way[1];
      const across = Math.abs((x - from[0]) * way[1]) + Math.abs((y - from[1]) * way[0]);
      if (one !== here && along > 0 && along + 2 * across < least) { least = along + 2 * across; best = one; }
    }
    if (best >= 0) point(best);
  }
  function moved(region) {  // the map stays where it is on the screen
    const top = home.getBoundingClientRect().top;
    go(region);
    if (home.hidden) return;
    window.scrollBy(0, home.getBoundingClientRect().top - top);
    svg.focus({ preventScroll: true });
  }

  // --- the figures ---
  function list() {
    if (!table.open) return;
    const order = regions.map((_, k) => k).sort((a, b) => (Number.isNaN(numbers[a]) - Number.isNaN(numbers[b])) || numbers[b] - numbers[a]);
    const rows = order.map(k => [paths[regions[k]].slice(paths[base].length + 1), numbers[k], regions[k]]);
    const header = [levels[depth], measure.name + (measure.unit && " (%)")];
    box.replaceChildren(sheet(`${measure.name}, ${names[base]} by ${levels[depth]}`, header, rows, 1, row => moved(row[2])));
  }
  return draw;
}

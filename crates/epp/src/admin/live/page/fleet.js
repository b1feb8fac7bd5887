// the endpoints, as a table or as a grid; rows keep their places until somebody sorts

const STATES = {
  ready: ["good", "ready"], ejected: ["out", "ejected"], unreachable: ["out", "unreachable"], "not ready": ["out", "not ready"],
  draining: ["wait", "draining"], asleep: ["wait", "asleep"], starting: ["wait", "starting"], leaving: ["wait", "leaving"],
};
const EVENTS = {
  live: ["good", "live"], partial: ["part", "partial"], stale: ["part", "rebuilding"], down: ["out", "down"], none: ["wait", "none"],
};
const EVENTS_MEAN = {
  live: "Every KV event of this engine was seen: its cache is known exactly",
  partial: "Only a part of its cache is known; what comes from now on is",
  stale: "Events were missed; they are being replayed",
  down: "No connection to its event stream",
  none: "It publishes no KV events: its load is followed by rate",
};
const COLUMNS = [
  { key: "address", name: "Endpoint", title: "ip:port, and the data-parallel rank", value: (e) => e.name, width: "19%" },
  { key: "state", name: "State", title: "Whether it takes requests", value: (e) => e.state, kind: "word", width: "13%" },
  { key: "bs", name: "BS", title: "Batch size: requests queued or running on it", value: (e) => e.bs, kind: "num", text: (e) => grouped(e.bs), load: true },
  { key: "q", name: "Q", title: "Uncached prompt tokens assigned to it and not computed yet", value: (e) => e.q, kind: "num", text: (e) => short(e.q), load: true },
  { key: "cache", name: "Cache", title: "Part of its KV cache that requests use, as it says itself", value: (e) => e.cache, kind: "num", text: (e) => percent(e.cache), load: true },
  { key: "hit", name: "Hit", title: "Prompt tokens of its latest requests that were cached", value: (e) => e.hit, kind: "num", text: (e) => percent(e.hit), load: true },
  { key: "ttft", name: "TTFT", title: "Mean time to first token of its latest requests", value: (e) => e.ttft, kind: "num", text: (e) => timeText(e.ttft) },
  { key: "tpot", name: "TPOT", title: "Mean time per output token of its latest requests", value: (e) => e.tpot, kind: "num", text: (e) => timeText(e.tpot) },
  { key: "events", name: "Events", title: "State of its stream of KV events", value: (e) => e.events, kind: "word", width: "11%" },
];
// above this many the grid shows them at a glance, and rows are narrow
const MANY = 48;
// longer names are told apart by their ends
const LONG = 24;

const fleet = { rows: new Map(), order: [], sort: "address", down: false, at: null, view: null, chosen: null, scale: { bs: 4, q: 1000 } };

function compare(one, other) {
  if (typeof one === "string") return one.localeCompare(other, "en", { numeric: true });
  return (one ?? -1) - (other ?? -1);
}

function sortFleet() {
  const column = COLUMNS.find((known) => known.key === fleet.sort);
  const sign = fleet.down ? -1 : 1;
  const name = (key) => fleet.rows.get(key).endpoint.name;
  fleet.order = [...fleet.rows.keys()].sort((one, other) => {
    const [a, b] = [fleet.rows.get(one).endpoint, fleet.rows.get(other).endpoint];
    return sign * compare(column.value(a), column.value(b)) || compare(name(one), name(other));
  });
  fleet.at = new Date();
  byId("table").tBodies[0].append(...fleet.order.map((key) => fleet.rows.get(key).row));
  byId("grid").append(...fleet.order.map((key) => fleet.rows.get(key).tile));
  for (const head of byId("table").tHead.rows[0].cells) {
    if (head.dataset.key === fleet.sort) head.setAttribute("aria-sort", fleet.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  byId("sort").value = fleet.sort;
  const lasting = fleet.sort === "address";
  show(byId("again"), !lasting);
  show(byId("sorted"), !lasting);
  say(byId("sorted"), `By ${column.name} as of ${clock(fleet.at)}; rows keep their places until you sort again.`);
}

function sortBy(key, turn) {
  const numbers = COLUMNS.find((column) => column.key === key).kind === "num";
  fleet.down = turn && key === fleet.sort ? !fleet.down : numbers;
  fleet.sort = key;
  sortFleet();
}

function view(name) {
  fleet.view = name;
  show(byId("table"), name === "table" && fleet.rows.size > 0);
  show(byId("grid"), name === "grid" && fleet.rows.size > 0);
  show(byId("legend"), name === "grid" && fleet.rows.size > 0);
  show(byId("detail"), name === "grid" && fleet.rows.has(fleet.chosen));
  byId("as-table").setAttribute("aria-pressed", String(name === "table"));
  byId("as-grid").setAttribute("aria-pressed", String(name === "grid"));
}

function prepareFleet() {
  for (const column of COLUMNS) {
    const head = element("th", column.kind ?? "");
    head.scope = "col";
    head.dataset.key = column.key;
    if (column.width) head.style.width = column.width;
    const button = element("button", "", column.name);
    button.type = "button";
    button.title = column.title;
    button.addEventListener("click", () => sortBy(column.key, true));
    head.append(button);
    byId("table").tHead.rows[0].append(head);
    const option = element("option", "", column.name);
    option.value = column.key;
    byId("sort").append(option);
  }
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value, false));
  byId("again").addEventListener("click", sortFleet);
  byId("as-table").addEventListener("click", () => view("table"));
  byId("as-grid").addEventListener("click", () => view("grid"));
}

function newRow(key) {
  const row = element("tr");
  const cells = COLUMNS.map((column) => {
    const cell = element(column.key === "address" ? "th" : "td", `${column.kind ?? ""} ${column.key}`.trim());
    if (column.key === "address") cell.scope = "row";
    cell.dataset.name = column.name;
    if (column.kind === "num") {
      cell.append(element("span", "text"));
      if (column.load) {
        const load = element("span", "load");
        load.append(element("i"));
        cell.append(load);
      }
    } else if (column.kind === "word") {
      cell.append(element("span", "mark"));
    }
    row.append(cell);
    return cell;
  });
  const tile = element("button", "tile");
  tile.type = "button";
  const name = element("span", "name");
  name.append(element("span", "mark"), element("span", "short"));
  tile.append(name, element("b"), element("span", "q"), element("i", "cache"));
  tile.addEventListener("click", () => {
    fleet.chosen = fleet.chosen === key ? null : key;
    for (const [other, { tile }] of fleet.rows) tile.setAttribute("aria-pressed", String(other === fleet.chosen));
    fillDetail();
  });
  return { row, cells, tile, endpoint: null };
}

function mark(node, [kind, word], text, title) {
  const name = `mark ${kind}`;
  if (node.className !== name) node.className = name;
  say(node, text ?? word);
  if (node.title !== title) node.title = title;
}

function stateText(endpoint) {
  const word = STATES[endpoint.state]?.[1] ?? endpoint.state;
  return endpoint.back_in === null ? word : `${word}, ${Math.ceil(endpoint.back_in)} s`;
}

function share(endpoint, column) {
  const value = column.value(endpoint) ?? 0;
  return column.key in fleet.scale ? value / fleet.scale[column.key] : value;
}

function fillRow({ row, cells, tile, endpoint }, [prefix, suffix]) {
  const states = STATES[endpoint.state] ?? ["wait", endpoint.state];
  const events = EVENTS[endpoint.events] ?? ["wait", endpoint.events];
  row.classList.toggle("off", endpoint.state !== "ready");
  COLUMNS.forEach((column, at) => {
    const cell = cells[at];
    if (column.key === "address") {
      say(cell, prefix > 3 && endpoint.name.length > LONG ? `…${endpoint.name.slice(prefix)}` : endpoint.name);
      cell.title = endpoint.model ? `${endpoint.name}, ${endpoint.model}` : endpoint.name;
    } else if (column.key === "state") {
      mark(cell.firstChild, states, stateText(endpoint), endpoint.why ?? "");
    } else if (column.key === "events") {
      mark(cell.firstChild, events, undefined, EVENTS_MEAN[endpoint.events] ?? "");
      cell.classList.toggle("fine", endpoint.events === "live");
    } else {
      say(cell.firstChild, column.text(endpoint));
      if (column.load) cell.lastChild.firstChild.style.width = `${(100 * Math.min(share(endpoint, column), 1)).toFixed(1)}%`;
      if (column.key === "bs") cell.title = endpoint.foreign > 0 ? `${endpoint.foreign} of them did not come past this picker` : "";
      if (column.key === "cache") cell.title = endpoint.blocks > 0 ? `${grouped(endpoint.blocks)} blocks known in its prefix cache` : "";
    }
  });
  const ill = states[0] !== "good" ? states : events[0] !== "good" ? events : ["good", ""];
  tile.classList.toggle("bad", states[0] !== "good");
  tile.classList.toggle("idle", endpoint.bs === 0);
  mark(tile.firstChild.firstChild, ill, "", "");
  say(tile.firstChild.lastChild, endpoint.name.slice(prefix, endpoint.name.length - suffix));
  say(tile.children[1], grouped(endpoint.bs));
  say(tile.children[2], short(endpoint.q));
  tile.style.setProperty("--load", (0.34 * Math.min(endpoint.bs / fleet.scale.bs, 1)).toFixed(3));
  tile.children[3].style.width = `${(100 * (endpoint.cache ?? 0)).toFixed(1)}%`;
  tile.setAttribute("aria-label", `${endpoint.name}: ${stateText(endpoint)}, batch ${endpoint.bs}, queue ${short(endpoint.q)} tokens, events ${events[1]}`);
}

function fillDetail() {
  const chosen = fleet.rows.get(fleet.chosen)?.endpoint;
  show(byId("detail"), fleet.view === "grid" && chosen !== undefined);
  if (!chosen) return;
  const facts = COLUMNS.slice(1).map((column) => {
    const texts = { state: stateText(chosen), events: EVENTS[chosen.events]?.[1] ?? chosen.events };
    const fact = element("span");
    fact.append(element("span", "k", column.name), element("span", "", texts[column.key] ?? column.text(chosen)));
    return fact;
  });
  if (chosen.why) facts.push(element("span", "why", chosen.why));
  byId("detail").replaceChildren(element("b", "", chosen.name), ...facts);
}

// how much of the names is the same in all: of their beginning to its last dot or colon, and a port at their end
function common(names) {
  if (names.length < 2) return [0, 0];
  const port = /:\d+$/.exec(names[0])?.[0];
  const suffix = port && names.every((name) => name.endsWith(port)) ? port.length : 0;
  let end = 0;
  while (end < names[0].length && names.every((name) => name[end] === names[0][end])) end += 1;
  const prefix = Math.max(names[0].lastIndexOf(".", end - 1), names[0].lastIndexOf(":", end - 1)) + 1;
  return [prefix, names.every((name) => name.length - suffix > prefix) ? suffix : 0];
}

function showFleet(endpoints) {
  const seen = new Set();
  let changed = false;
  for (const endpoint of endpoints) {
    endpoint.name = endpoint.rank === null ? endpoint.address : `${endpoint.address} rank ${endpoint.rank}`;
    seen.add(endpoint.name);
    if (!fleet.rows.has(endpoint.name)) {
      fleet.rows.set(endpoint.name, newRow(endpoint.name));
      changed = true;
    }
    fleet.rows.get(endpoint.name).endpoint = endpoint;
  }
  for (const [key, { row, tile }] of fleet.rows) {
    if (seen.has(key)) continue;
    row.remove();
    tile.remove();
    fleet.rows.delete(key);
    fleet.order = fleet.order.filter((other) => other !== key);
  }
  for (const key of ["bs", "q"]) {
    const most = Math.max(...endpoints.map((endpoint) => endpoint[key]), key === "bs" ? 4 : 1000);
    // bars keep their measure for a while, so that they can be compared from second to second
    fleet.scale[key] = Math.max(most, fleet.scale[key] * 0.97);
  }
  const same = common(endpoints.map((endpoint) => endpoint.name));
  for (const row of fleet.rows.values()) fillRow(row, same);
  if (changed) sortFleet();
  byId("table").classList.toggle("dense", endpoints.length > MANY);
  show(byId("no-endpoints"), endpoints.length === 0);
  for (const tools of byId("sort").closest(".tools").children) if (tools.id !== "again") show(tools, endpoints.length > 1);
  view(changed && fleet.view === null && endpoints.length > 0 ? (endpoints.length > MANY ? "grid" : "table") : fleet.view ?? "table");
  if (endpoints.length === 0) fleet.view = null;
  fillDetail();
  showChips(endpoints);
}

function showChips(endpoints) {
  const groups = [[STATES, "state", null], [EVENTS, "events", "KV events"]].map(([names, of, title]) => {
    const group = element("span", "group");
    if (title) group.append(element("span", "", title));
    for (const [name, [kind, word]] of Object.entries(names)) {
      const count = endpoints.filter((endpoint) => endpoint[of] === name).length;
      if (count > 0) group.append(element("span", `mark ${kind}`, `${grouped(count)} ${word}`));
    }
    return group;
  });
  byId("chips").replaceChildren(...(endpoints.length > 0 ? groups : []));
}

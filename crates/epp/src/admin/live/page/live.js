// the connection, the headline and the figures of the whole fleet

const series = { rate: [], bs: [], q: [], hit: [], ttft: [], tpot: [] };
let last = null;
let heard = null;
let source = null;
let refusal = null;
let hidden = null;
const started = Date.now();

function push(name, at, value) {
  const points = series[name];
  points.push({ at, value });
  while (points.length > 0 && at - points[0].at > SPAN + 5) points.shift();
}

function figure(name, [number, unit], why) {
  const box = document.querySelector(`[data-figure=${name}]`);
  const big = box.querySelector(".big");
  const text = unit ? `${number} ${unit}` : number;
  if (big.dataset.text !== text) {
    big.dataset.text = text;
    big.replaceChildren(number, ...(unit ? [element("small", "", unit)] : []));
  }
  say(box.querySelector(".why"), why);
  spark(box.querySelector(".spark"), series[name], Date.now() / 1e3);
}

function headline(snapshot) {
  const all = snapshot.endpoints.length;
  const able = snapshot.endpoints.filter((endpoint) => endpoint.state === "ready").length;
  if (all === 0) return "No endpoint yet";
  if (able === all) return all === 1 ? "One endpoint takes requests" : `${grouped(all)} endpoints take requests`;
  return able === 0 ? `None of ${plural(all, "endpoint")} takes requests` : `${grouped(able)} of ${grouped(all)} endpoints take requests`;
}

function showFigures(snapshot, perSecond) {
  const sum = (key) => snapshot.endpoints.reduce((total, endpoint) => total + endpoint[key], 0);
  const most = (key) => Math.max(0, ...snapshot.endpoints.map((endpoint) => endpoint[key]));
  const now = Date.now() / 1e3;
  const { hit, ttft, tpot } = snapshot.recent;
  const [bs, q] = [sum("bs"), sum("q")];
  for (const [name, value] of [["rate", perSecond], ["bs", bs], ["q", q], ["hit", hit], ["ttft", ttft], ["tpot", tpot]]) push(name, now, value);
  const lowest = snapshot.endpoints.length > 0 ? Math.min(...snapshot.endpoints.map((endpoint) => endpoint.bs)) : 0;
  const quiet = "no request ended lately";
  const unseen = hit === null ? quiet : "bodies are not seen";
  figure("rate", [perSecond === null ? "–" : rate(perSecond)], `${short(snapshot.totals.picks)} placed in all`);
  figure("bs", [grouped(bs)], snapshot.endpoints.length > 0 ? `${lowest} to ${most("bs")} per endpoint` : "");
  figure("q", [short(q)], `most on one: ${short(most("q"))}`);
  figure("hit", hit === null ? ["–"] : [(hit * 100).toFixed(hit < 0.0995 ? 1 : 0), "%"], hit === null ? quiet : "over the last minute");
  figure("ttft", ttft === null ? ["–"] : time(ttft), ttft === null ? unseen : "mean of the last minute");
  figure("tpot", tpot === null ? ["–"] : time(tpot), tpot === null ? unseen : "mean of the last minute");
}

function showSnapshot(snapshot) {
  // another version may have another page
  if (last !== null && last.version !== snapshot.version) return location.reload();
  const again = last !== null && snapshot.now < last.now;
  const seconds = last === null || again ? 0 : snapshot.now - last.now;
  const placed = last === null || again ? 0 : snapshot.totals.picks - last.totals.picks;
  const perSecond = seconds > 0.2 ? placed / (seconds * snapshot.speed) : null;
  const models = [...new Set(snapshot.endpoints.map((endpoint) => endpoint.model).filter((model) => model))];
  const faster = snapshot.speed === 1 ? "" : ` · times in model time, ${snapshot.speed} × real time`;
  const named = models.length > 3 ? `${models.slice(0, 3).join(", ")} and ${models.length - 3} more` : models.join(", ");
  say(byId("title"), headline(snapshot));
  say(byId("lede"), `policy ${snapshot.policy}${named ? ` · ${named}` : ""}${faster}`);
  say(byId("reasons"), snapshot.reasons.join("\n"));
  show(byId("reasons"), snapshot.reasons.length > 0);
  showFigures(snapshot, perSecond);
  showFleet(snapshot.endpoints);
  showPicks(snapshot.decisions);
  showHotspots(snapshot.hotspots, snapshot.now, snapshot.speed === 1 ? "a minute" : "a minute of model time");
  showTotals(snapshot.totals);
  say(byId("foot"), `lmetric-epp ${snapshot.version}, up for ${age(snapshot.now).replace(" ago", "").replace("now", "a moment")}. `
    + "Hit, TTFT and TPOT are means over requests that ended lately: after half a minute one counts half. No text of any request is ever here.");
  last = snapshot;
}

function showLink() {
  const silent = (Date.now() - (heard ?? started)) / 1e3;
  const gone = silent > 4 && hidden !== "closed";
  const link = byId("link");
  link.dataset.state = hidden === "closed" ? "wait" : gone ? "gone" : heard === null ? "wait" : "live";
  say(link, hidden === "closed" ? "paused while hidden" : gone ? "disconnected" : heard === null ? "connecting" : `live · ${clock(new Date(heard))}`);
  show(byId("gone"), gone);
  if (gone) {
    const since = heard === null ? "The picker has not answered yet" : `The picker has not answered for ${Math.round(silent)} s; what you see is from ${clock(new Date(heard))}`;
    say(byId("gone"), `${since}. ${refusal ?? "Trying again every two seconds."}`);
  }
}

// an EventSource does not tell why it was refused
async function ask() {
  const stop = new AbortController();
  try {
    const answer = await fetch("live", { signal: stop.signal });
    refusal = answer.ok ? null : `It says: ${(await answer.text()).trim()}.`;
  } catch {
    refusal = null;
  }
  stop.abort();
}

function connect() {
  source = new EventSource("live");
  source.addEventListener("message", (event) => {
    heard = Date.now();
    refusal = null;
    showSnapshot(JSON.parse(event.data));
    showLink();
  });
  source.addEventListener("error", () => {
    if (source === null) return;
    source.close();
    source = null;
    showLink();
    setTimeout(async () => {
      if (hidden === "closed" || source !== null) return;
      await ask();
      connect();
    }, 2000);
  });
}

// a page that nobody looks at asks for nothing
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hidden = setTimeout(() => {
      hidden = "closed";
      source?.close();
      source = null;
      showLink();
    }, 30000);
    return;
  }
  if (hidden === "closed") {
    hidden = null;
    if (source === null) connect();
  } else {
    clearTimeout(hidden);
    hidden = null;
  }
});

prepareFleet();
prepareLists();
connect();
setInterval(showLink, 1000);

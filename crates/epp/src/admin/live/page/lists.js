// the last picks, the hotspots, and what was counted since the picker began

let held = false;
let latest = [];

function prepareLists() {
  byId("hold").addEventListener("click", () => {
    held = !held;
    byId("hold").setAttribute("aria-pressed", String(held));
    say(byId("hold"), held ? "Go on" : "Hold");
    if (!held) showPicks(latest);
  });
}

function showPicks(picks) {
  latest = picks;
  if (held) return;
  show(byId("no-picks"), picks.length === 0);
  const items = picks.map((pick) => {
    const item = element("li");
    const facts = element("div", "facts");
    const cached = pick.tokens > 0 ? `, ${percent(Math.min(pick.hit / pick.tokens, 1))} cached` : "";
    const to = pick.rank === null ? pick.winner : `${pick.winner} rank ${pick.rank}`;
    facts.append(element("b", "", to), element("span", "", `${grouped(pick.tokens)} tokens${cached}`));
    if (pick.weight > 1) facts.append(element("span", "", `${grouped(pick.weight)} engine requests`));
    if (pick.model !== null) facts.append(element("span", "", pick.model));
    facts.append(element("span", "age", age(pick.age)));
    item.append(facts, element("div", "because", pick.why));
    return item;
  });
  byId("picks").replaceChildren(...items);
}

// alarms that are over stay for a while
const past = new Map();
const REMEMBER = 300;

function showHotspots(hotspots, now, span) {
  for (const spot of hotspots) past.set(spot.class, { spot, at: now });
  const items = [];
  for (const [key, { spot, at }] of past) {
    if (now - at > REMEMBER) {
      past.delete(key);
      continue;
    }
    const item = element("li");
    const over = at < now;
    const word = over ? `over, ${age(now - at)}` : spot.in_force ? "holders are avoided" : "alarm";
    item.append(element("span", over ? "past" : spot.in_force ? "force" : "alarm", `${over ? "○" : "▲"} ${word}`));
    const facts = ` · ${plural(spot.arrivals, "request")} of ${grouped(spot.all_arrivals)} in ${span} share ${short(spot.depth_tokens)} tokens that `
      + `${spot.holders === 1 ? "1 endpoint holds" : grouped(spot.holders) + " endpoints hold"} and ${grouped(spot.others)} do not`;
    item.append(element("span", over ? "past" : "", facts), element("span", "why", ` · class ${key}`));
    items.push(item);
  }
  show(byId("no-hot"), items.length === 0);
  byId("hot").replaceChildren(...items.reverse());
}

function showTotals(totals) {
  const lines = [
    ["Requests placed", totals.picks], ["ended well", totals.done], ["left by the client", totals.aborted],
    ["failed at the engine", totals.failed], ["ended unseen", totals.unknown], ["Refused for want of an endpoint", totals.refused],
    ["Served elsewhere than picked", totals.moved], ["Ejections", totals.ejections], ["Hotspot alarms", totals.alarms], ["Hotspot filters", totals.filters],
  ];
  const nodes = lines.flatMap(([name, count]) => [element("dt", "", name), element("dd", "", grouped(count))]);
  byId("totals").replaceChildren(...nodes);
}
